"""Products of two matrices that are both computed, as images whose pixels are rows.

In blocks of channels, the 16 entries of 16 rows that follow one another are an entry of weights. So the second operand,
`transposed`, is read as weights where it lies. Otherwise the array transposes it. Rows that are no multiple of a block,
and columns that are none, are copied with zeros behind them first.

The zero points: `sum((x - zx) * (y - zy))` is the sum of products, that of the rows of x times -zy, that of the columns
of y times -zx, and a number for all. The array computes both sums, as products with entries of the zero point, once
for all columns or rows of a tile, and the ALU adds them.

Axes: `matrix`, `row` of x, `column` of y in blocks, and `inner` along which products are added, in blocks.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from ...hw.isa import Mem
from .. import graph as g
from ..graph.integer_forms import Requant
from .heads_out import transpose
from .language import TILE, Array, Kernel, Tile, Unfit, by_shape, cuts
from .whole_blocks import in_whole_blocks

_SIZES = (8, 32, 128, 512)  # of tiles, in accumulators
_MOST = 64  # tiles of all sizes but the largest: more take long to compare, and are never the fastest
_COLUMNS = 8  # blocks of columns of a tile for every 256 sums: a tile of weights takes 16 times as long to load as rows
_WEIGHTS = 8  # entries of a tile of several matrices: few enough for a short start


@by_shape()
def product_of_images(k: Kernel, op: g.BatchMatMul) -> None:
    """Tiles of the size with the fewest cycles."""
    k.need("overwrite", batch=1)
    if not op.images:
        raise Unfit(f"operands of shapes {op.inputs[0].shape} and {op.inputs[1].shape} are no images")
    sums = k.output.size
    _in_tiles(k, op, k.fastest(_in_tiles, [size for size in _SIZES if sums <= _MOST * size or size == _SIZES[-1]]))


def _in_tiles(k: Kernel, op: g.BatchMatMul, size: int) -> None:
    """Tiles of about `size` accumulators; the ALU reads sums for zero points from the other bank in the same cycle."""
    x = k.image(0)[:, :, 0].named(n="matrix", b="inner", w="row")
    out = k.output[:, :, 0].named(n="matrix", b="column", w="row")
    y, (zx, zy) = _as_weights(k, op), (t.zero_point for t in op.inputs)
    x, y = (t if t.shape["matrix"] > 1 else t[0].repeated(matrix=out.shape["matrix"]) for t in (x, y))
    block, deep, tile = k.cfg.block_in, x.shape["inner"], _tile(k, out, x, size)
    lanes = op.inner - (deep - 1) * block  # of the last block

    par = k.parameters(Requant(op.inner * zx * zy, *op.multipliers, op.output.zero_point))
    zero_x, zero_y = _zeros(k, Mem.INP, zx, block), _zeros(k, Mem.WGT, zy, block, lanes)
    matrices, columns, rows, depth = tile
    xs, ws = k.slots(matrices * rows * depth), k.slots(matrices * columns * depth, Mem.WGT)
    entries, beside = matrices * columns * rows, matrices * (rows + columns)
    ys = k.banks(entries + beside)
    for matrix, column, row in product(*map(cuts, out.shape.values(), tile)):
        target = out[matrix, column, row]
        acc, other = ys.next(entry=entries).reshaped(**target.shape), ys.other(entry=entries + beside)[entries:]
        of_rows, of_columns = other.pieces(acc[:, 0].shape, acc[:, :, 0].shape)
        begun = set[Tile]()
        for inner in cuts(deep, depth):
            a = xs.hold(x[matrix].at(inner=inner, row=row))
            w = ws.hold(y[matrix].at(inner=inner, column=column))
            whole = a.shape["inner"] - (inner.stop == deep)
            terms = [(acc, a @ w)]
            terms += [(of_rows, a.at(inner=slice(whole)) @ zero_y[0])] if zero_y and whole else []
            terms += [(of_rows, a.at(inner=whole) @ zero_y[1])] if zero_y and inner.stop == deep else []
            terms += [(of_columns, zero_x[0] @ w)] if zero_x else []
            for place, value in terms:
                k.multiply(place, value, overwrite=place not in begun)
                begun.add(place)
        for sums in (of_rows, of_columns):
            if sums in begun:
                acc += sums
        k.store(target, acc, par)


def _tile(k: Kernel, out: Array, x: Array, size: int) -> tuple[int, int, int, int]:
    """Matrices, columns, rows and products of each sum of a tile, the last so many that they hide what is loaded.

    There are as many columns as rows keep busy, and all rows that are left; several matrices are together as wholes.
    """
    (matrices, columns, rows), deep, size = out.shape.values(), x.shape["inner"], min(size, k.bank)
    inputs, weights = k.slot - 1, k.cfg.wgt_depth // 2 - 2  # beside those of zero points
    c = _equal(columns, min(weights, max(_COLUMNS * size // TILE, size // rows)))
    r = _equal(rows, min(inputs, size // c, (k.bank - c) // (c + 1)))
    i = _equal(deep, min(inputs // r, weights // c, TILE // (c * r)))
    if (c, r, i) != (columns, rows, deep):
        return 1, c, r, i
    together = min(size // (c * r), _WEIGHTS // (c * i), inputs // (r * i), k.bank // (c * r + c + r))
    return _equal(matrices, together), c, r, i


def _equal(extent: int, most: int) -> int:
    """The largest one of equal parts of up to `most` elements, at least 1."""
    return -(-extent // -(-extent // max(1, most)))


def _zeros(k: Kernel, mem: Mem, zero_point: int, *lanes: int) -> Tile | None:
    """Entries that hold int8 numbers, along axis `digit`, whose sum is `-zero_point`; None for 0.

    Those of each `kind` hold them in the first of `lanes`, and 0 in the others.
    """
    if not zero_point:
        return None
    digits = np.array([64, 64] if zero_point == -128 else [-zero_point])  # 128 is no int8
    rows = k.cfg.block_out if mem is Mem.WGT else k.cfg.batch
    data = digits[:, None, None] * (np.arange(k.cfg.block_in) < np.array(lanes)[:, None, None, None])
    data = data.repeat(rows, 2).astype(np.int8).reshape(-1, rows, k.cfg.block_in)
    return k.constant(mem, mem.name, data, kind=len(lanes), digit=len(digits))


def _as_weights(k: Kernel, op: g.BatchMatMul) -> Array:
    """Entries of weights of the second operand: copied, transposed, or as it lies."""
    y, block = k.image(1).merged("row", "h", "w"), k.cfg.block_in
    if y.shape["row"] % block or (op.transposed and op.inner % block) or y.address[1] % k.cfg.wgt_entry_bytes:
        y = in_whole_blocks(k, 1)
    matrices, blocks, rows = y.shape.values()
    if op.transposed:
        return k.array(y.buffer, matrix=matrices, inner=blocks, column=rows // block)
    turned = k.temporary("columns", tile=y.size // block, lane=block)
    transpose(k, k.array(y.buffer, tile=y.size // block), turned)
    return k.array(turned.buffer, matrix=matrices, column=blocks, inner=rows // block)
