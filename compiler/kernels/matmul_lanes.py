"""Products of matrices, one matrix per lane: entries times entries, and their sums.

Rows of the first operand are multiplied by all of the second one, whose elements are entries with a lane per matrix: it
is the same for all rows, or each row has one of its own, (1, heads, rows, 1, elements).
"""

from __future__ import annotations

from itertools import product

from ...hw.isa import Mem
from .. import graph as g
from ..graph.integer_forms import Requant
from .language import Array, Kernel, Tile, Unfit, by_shape, cuts
from .on_chip import KEPT


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
    if inner > most or width > most:
        raise Unfit(f"{inner} elements, {width} columns: at most {most}")
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
    """The rows (block, row, inner), the matrices (block, their row if each has one, two axes), and the output."""
    if not op.in_lanes(k.cfg.block_in) or any(t.data is not None for t in op.inputs):
        raise Unfit("a constant operand, or matrices that are neither images nor one per lane")
    x, matrices, out = (t.merged("block", "n", "b") for t in (k.input(0), k.input(1), k.output))
    if len(op.x.shape) == 5:
        rows = op.x.shape[2]
        matrices = matrices.split("h", row=rows, h=matrices.shape["h"] // rows)
    down, across = ("column", "inner") if op.transposed else ("inner", "column")
    return x.named(h="row", w="inner"), matrices.named(h=down, w=across), out.named(h="row", w="column")


def _parameters(k: Kernel, op: g.BatchMatMul) -> Tile:
    return k.parameters(Requant(0, *op.multipliers, op.output.zero_point))
