"""Products of two matrices that are both computed: images whose pixels are rows, or one matrix per lane.

The zero points: `sum((x - zx) * (y - zy))` is the sum of products, minus zy times the sums of the rows of x, minus zx
times the sums of the columns of y, plus a constant. The array computes these sums, too, as products with entries of
the zero point. Axes: `matrix`, `row` of x, `column` of y in blocks, and `inner`, along which products are added, in
blocks.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from ...hw.isa import Mem
from .. import graph as g
from ..graph.integer_forms import Requant
from .cache import transpose
from .language import TILE, Array, Kernel, Tile, Unfit, by_shape, cuts, refuse
from .recording import KEPT

_SIZES = (8, 32, 128, 512)  # of tiles, in accumulators
_MOST = 64  # tiles of all sizes but the largest: more take long to compare, and are never the fastest
_COLUMNS = 8  # blocks of columns of a tile for every 256 sums: a tile of weights takes 16 times as long to load as rows
_WEIGHTS = 8  # entries of a tile of several matrices: few enough for a short start


@by_shape()
def product_of_images(k: Kernel, op: g.BatchMatMul) -> None:
    """Products of images, in tiles of the size with the fewest cycles.

    In blocks of channels the 16 entries of 16 rows are an entry of weights, so the second operand, if it is transposed,
    is read as weights where it lies; else the array transposes it. Images of other sizes than whole blocks are copied
    with zeros behind their rows and columns first.
    """
    k.need("overwrite", batch=1)
    refuse(not op.images, f"operands of shapes {op.inputs[0].shape} and {op.inputs[1].shape} are no images")
    sums = k.output.size
    _in_tiles(k, op, k.fastest(_in_tiles, [size for size in _SIZES if sums <= _MOST * size or size == _SIZES[-1]]))


def _in_tiles(k: Kernel, op: g.BatchMatMul, size: int) -> None:
    x = k.image(0)[:, :, 0].named(n="matrix", b="inner", w="row")
    out = k.output[:, :, 0].named(n="matrix", b="column", w="row")
    y, (zx, zy) = _as_weights(k, op), (t.zero_point for t in op.inputs)
    x, y = (t if t.shape["matrix"] > 1 else t[0].repeated(matrix=out.shape["matrix"]) for t in (x, y))
    block, deep, tile = k.cfg.block_in, x.shape["inner"], _tile(k, out, x, size)
    lanes = op.inner - (deep - 1) * block  # of the last block

    store = Requant(op.inner * zx * zy, *op.multipliers, op.output.zero_point, contract=op.contract)
    par = k.parameters(store)
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
    """(matrices, columns, rows, blocks of `inner`) of a tile of about `size` accumulators.

    Its products hide its loads: as many columns as rows keep busy, then as many rows as fit; only whole matrices are
    computed together.
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
    """The size of the fewest equal parts of up to `most` elements."""
    return -(-extent // -(-extent // max(1, most)))


def _zeros(k: Kernel, mem: Mem, zero_point: int, *lanes: int) -> Tile | None:
    """Entries (kind, digit) of int8 numbers whose sum along `digit` is `-zero_point`; None for zero point 0.

    Entries of a kind hold them in the first lanes, as many as `lanes` has for that kind, and 0 in the others.
    """
    if not zero_point:
        return None
    digits = np.array([64, 64] if zero_point == -128 else [-zero_point])  # 128 is no int8
    rows = k.cfg.block_out if mem is Mem.WGT else k.cfg.batch
    data = digits[:, None, None] * (np.arange(k.cfg.block_in) < np.array(lanes)[:, None, None, None])
    data = data.repeat(rows, 2).astype(np.int8).reshape(-1, rows, k.cfg.block_in)
    return k.constant(mem, mem.name, data, kind=len(lanes), digit=len(digits))


def _as_weights(k: Kernel, op: g.BatchMatMul) -> Array:
    """The second operand as entries of weights: where it lies, copied, or transposed."""
    y, block = k.image(1).merged("row", "h", "w"), k.cfg.block_in
    if y.shape["row"] % block or (op.transposed and op.inner % block) or y.address[1] % k.cfg.wgt_entry_bytes:
        y = in_whole_blocks(k, 1)
    matrices, blocks, rows = y.shape.values()
    if op.transposed:
        return k.array(y.buffer, matrix=matrices, inner=blocks, column=rows // block)
    turned = k.temporary("columns", tile=y.size // block, lane=block)
    transpose(k, k.array(y.buffer, tile=y.size // block), turned)
    return k.array(turned.buffer, matrix=matrices, column=blocks, inner=rows // block)


@by_shape(lambda op: (op.transposed, op.inner))
def product_on_array(k: Kernel, op: g.BatchMatMul) -> None:
    """The array multiplies and adds lane by lane (DWGEMM), where both operands are without zero point.

    The first operand is copied to whole entries of weights, whose rows are its elements; the second one is read as
    inputs. Where elements that are added follow one another in both, several are added in a cycle.
    """
    k.need("acc8", "depthwise", "overwrite", "requant", batch=1)
    x, matrices, out = _operands(k, op)
    (blocks, rows, inner), width, own = x.shape.values(), out.shape["column"], "row" in matrices.shape
    room = k.cfg.inp_depth - k.cfg.inp_depth // KEPT
    most = min(rows, k.cfg.wgt_depth // inner, k.bank // width, room // (inner * width) if own else rows)
    if any(t.zero_point for t in op.inputs) or inner * width > room or most < 1:
        raise Unfit(f"matrices of {inner} x {width} with zero points, or larger than the {room} inputs")
    several = op.transposed and "depthwise_rows" in k.cfg.extensions and not inner % k.cfg.row_taps
    taps = k.cfg.row_taps if several else 1
    steps, par = {"step": inner // taps, "tap": taps}, _parameters(k, op)
    for block, these in product(range(blocks), cuts(rows, most)):
        together = these.stop - these.start
        count = together * inner
        copied = -(-count // k.cfg.block_in) * k.cfg.block_in
        with k.scope():
            copy = k.tile(Mem.ACC, high=k.bank, entry=copied)
            y = k.tile(Mem.ACC, low=k.bank, **out[block, these].shape)
            weights = k.tile(Mem.WGT, high=k.cfg.wgt_depth // k.cfg.block_in, matrix=copied // k.cfg.block_in)
            matrix = matrices[block, these] if own else matrices[block]
            inputs = k.tile(Mem.INP, **matrix.shape)
            image = k.temporary(f"{block * rows + these.start}.weights", entry=copied)
            elements = x[block, these].merged("entry").split("entry", one=1, entry=count)
            k.store(image, k.load(copy, elements.window(one=(0, 1), entry=(0, copied))))
            k.load(inputs, matrix)
            k.load(weights, k.array(image.buffer, **weights.shape))
            values = inputs.split("inner", **steps).at(tap=0)
            factors = weights.rows(row=together, inner=inner).split("inner", **steps).at(tap=0)
            with k.together():
                for column in range(width):
                    y[:, column] = (values.at(column=column) * factors).with_taps(taps).over("row step")
            k.store(out[block, these], y, par)


@by_shape(lambda op: (op.transposed, op.inner))
def product_on_alu(k: Kernel, op: g.BatchMatMul) -> None:
    """The ALU multiplies and adds; several rows at a time each have a copy of the second operand.

    This is read in chunks of its rows, where one is not enough.
    """
    k.need("acc8", "requant", batch=1)
    x, matrices, out = _operands(k, op)
    (blocks, rows, inner), width, own = x.shape.values(), out.shape["column"], "row" in matrices.shape
    down, across = [*matrices.shape.values()][-2:]
    most = k.bank // 2
    refuse(inner > most or width > most, f"{inner} elements, {width} columns: at most {most}")
    chunk = min(down, most // across)
    together = max(1, min(rows, most // (down * across), most // width, most // inner))
    par = _parameters(k, op)
    copies = k.slots(together * chunk * across, Mem.ACC, 1 if chunk == down else 2, high=k.bank)
    extents = {"row": together, "column": width}, {"row": together, "inner": inner}
    all_sums, all_rows = k.tiles(Mem.ACC, *extents, low=k.bank)
    for block, these in product(range(blocks), cuts(rows, together)):
        count = these.stop - these.start
        sums = all_sums[:count]
        sums[...] = 0
        row = k.load(all_rows[:count], x[block, these])
        row += -op.x.zero_point
        for part in cuts(down, chunk):
            y = copies.load(matrices[block, these, part] if own else matrices[block, part].repeated(row=count))
            y += -op.inputs[1].zero_point
            if op.transposed:
                y *= row
                sums[:, part].add(y, over="inner row column")
            else:
                y *= row[:, part]
                sums += y.sum_along("inner")
        k.store(out[block, these], sums, par)


def _operands(k: Kernel, op: g.BatchMatMul) -> tuple[Array, Array, Array]:
    """(Rows (block, row, inner), matrices (block, row if each has its own, two axes), output) of a product in lanes.

    One matrix per lane: elements of the second operand are entries with a lane per matrix.
    """
    if not op.in_lanes(k.cfg.block_in) or any(t.data is not None for t in op.inputs):
        raise Unfit("a constant operand, or matrices that are neither images nor one per lane")
    x, matrices, out = (t.merged("block", "n", "b") for t in (k.input(0), k.input(1), k.output))
    if len(op.x.shape) == 5:
        rows = op.x.shape[2]
        matrices = matrices.split("h", row=rows, h=matrices.shape["h"] // rows)
    down, across = ("column", "inner") if op.transposed else ("inner", "column")
    return x.named(h="row", w="inner"), matrices.named(h=down, w=across), out.named(h="row", w="column")


def _parameters(k: Kernel, op: g.BatchMatMul) -> Tile:
    return k.parameters(Requant(0, *op.multipliers, op.output.zero_point, contract=op.contract))


def in_whole_blocks(k: Kernel, number: int) -> Array:
    """A copy of the input of that number, an image of rows, that is whole blocks: axes n, b, row."""
    x, lanes = k.image(number).merged("row", "h", "w"), k.cfg.block_in
    images, blocks, rows = x.shape.values()
    height, channels = -(-rows // lanes) * lanes, k.op.inputs[number].shape[1] - (blocks - 1) * lanes
    copy = k.temporary("rows", n=images, b=blocks, row=height)
    x, out = x.merged("block", "n", "b"), copy.merged("block", "n", "b")
    most = min(2 * TILE, k.slot, k.bank) // lanes * lanes
    together = max(1, most // height)  # blocks of channels in a tile
    if together > blocks:
        together = together // blocks * blocks
    with k.scope():
        whole = np.eye(k.cfg.block_out, lanes, dtype=np.int8)
        matrices = k.matrices("lanes", np.stack([whole, whole * (np.arange(lanes) < channels)]))
        xs, ys = k.slots(most), k.banks(most)
        for these, part in product(cuts(images * blocks, together), cuts(height, most)):
            target, first = out[these, part], these.start
            count, size = target.shape.values()
            tile, y = xs.load(x.window(block=(first, count), row=(part.start, size))), ys.next(**target.shape)
            with k.together():
                for block in range(count):
                    last = (first + block) % blocks == blocks - 1
                    y[block] = tile[block] @ matrices[int(last)]
            k.store(target, y)
    return copy
