"""Root mean square norms of rows of channels."""

from __future__ import annotations

from ...hw.isa import Mem
from .. import graph as g
from ..graph.integer_forms import Requant
from .language import Kernel, Unfit, by_shape
from .roots import COPIES, inverse_root, need_roots, root_tables

_ROWS = 16  # together: enough to hide the latency of products


@by_shape()
def rms_norm(k: Kernel, op: g.RmsNorm) -> None:
    """`x / sqrt(mean(x * x)) * gain`: squares, their sum over lanes and blocks, one over its root, products.

    Gains, the root of the number of elements, and scales are one factor per channel, of the store.
    """
    need_roots(k)
    if len(op.x.shape) != 2:
        raise Unfit(f"{len(op.x.shape)} dimensions: only rows of channels")
    x, out = (rows.named(n="row") for rows in (k.input(0), k.output))
    rows, blocks = x.shape.values()
    multiplier, exponent = op.multipliers
    tables = root_tables(k)
    par = k.parameters(Requant(0, 1 << 30, 1, 0), multiplier=multiplier, exponent=exponent)
    most = max(1, min(rows, _ROWS, k.bank // (blocks + COPIES)))
    for x_rows, out_rows in zip(x.parts(most), out.parts(most)):
        with k.scope():
            copies = {"copy": COPIES, "row": x_rows.shape["row"]}
            values = k.tile(Mem.ACC, high=k.bank, **x_rows.shape)
            squares, roots = k.tiles(Mem.ACC, x_rows.shape, copies, low=k.bank)
            roots[...] = 0
            for y in (squares, values):
                k.load(y, x_rows)
            squares *= values
            sums = squares[:, 0]
            if blocks > 1:
                sums += squares[:, 1:]
            sums.sum_lanes()
            sums >>= op.shift
            roots += sums
            values *= inverse_root(roots, tables)
            for row in range(values.shape["row"]):
                k.store(out_rows[row], values[row], par)
