"""Root mean square norms of rows of channels."""

from __future__ import annotations

from ...hw.isa import Mem
from .. import graph as g
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
    x, out = k.input(0).named(n="row"), k.output.named(n="row")
    rows, blocks = x.shape.values()
    most = max(1, min(rows, _ROWS, k.bank // (blocks + COPIES)))
    multiplier, exponent = op.multipliers
    store = {"multiplier": multiplier, "exponent": exponent, "zero_point": 0, "low": -128, "high": 127}
    factors = k.rec.parameters(f"{op.name}.par", bias=multiplier * 0, **store, contract="double")
    tables = root_tables(k)
    par = k.load(k.tile(Mem.PAR, b=blocks), k.array(factors, b=blocks))
    all_values = k.tile(Mem.ACC, high=k.bank, row=most, b=blocks)
    all_squares, all_roots = k.tiles(Mem.ACC, all_values.shape, {"copy row": COPIES * most}, low=k.bank)
    for x_rows, out_rows in zip(x.parts(most), out.parts(most)):
        count = x_rows.shape["row"]
        roots = all_roots[: COPIES * count]
        roots[...] = 0
        squares, values = k.load(all_squares[:count], x_rows), k.load(all_values[:count], x_rows)
        elements = squares.merged("element")
        elements *= values.merged("element")
        sums = squares[:, 0]
        if blocks > 1:
            sums += squares[:, 1:]
        sums.sum_lanes()
        sums >>= op.shift
        roots = roots.split("copy row", copy=COPIES, row=count)
        roots += sums
        values *= inverse_root(roots, tables)
        for row in range(count):
            k.store(out_rows[row], values[row], par)
