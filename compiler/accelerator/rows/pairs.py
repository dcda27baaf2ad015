"""Sums, differences, their squares, and products of an image with one value per pixel, as norms have them.

The array copies both to the accumulators: of the value of a pixel it makes an entry of equal lanes, which the ALU
brings into the form of its operand, once for all blocks of channels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from ....hw.config import Config
from ....hw.isa import AluOp, Mem
from ....hw.rtl.latencies import issue_interval
from ....hw.units import striped
from ... import cost
from ... import graph as g
from ...graph.elementwise import SQUARE_SHIFT
from ...graph.integer_forms import OperandForm, Requant, sum_form
from ..direct.on_chip import OnChip, on_chip
from ..recording import Recording, scale_parameters, store_parameters

_TILE = 128  # entries: enough to hide what an instruction costs, and few enough for a short start and end
_LEAST = 16  # pixels of a tile, where the image has as many
_MOST_SHIFT = 6  # that weights of the array make; offsets shifted so far are numbers of an instruction


@dataclass(frozen=True)
class Operand:
    """What is done to one operand: a product with `weight`, then ADD `offset`, shift left, RESCALE by `scale`.

    Then it is `negated`, and `more` is added. Nothing is done that changes nothing.
    """

    weight: int = 1
    offset: int = 0
    shift: int = 0
    scale: tuple[int, int] | None = None
    negated: bool = False
    more: int = 0

    def cycles(self, cfg: Config) -> int:
        """Cycles per entry of the array and the ALU."""
        multiply = issue_interval(cfg, multiply=True)
        return (
            1
            + sum(map(bool, (self.offset, self.shift, self.more)))
            + multiply * ((self.scale is not None) + self.negated)
        )

    def apply(self, x: np.ndarray) -> np.ndarray:
        """int64 values after the operations."""
        form = OperandForm(self.offset, self.shift, self.scale)
        return form.apply(x.astype(np.int64) * self.weight) * (-1 if self.negated else 1) + self.more


@dataclass(frozen=True)
class Form:
    """`store(x OP y)`, or with `square` of its square: x the image, y the values of pixels."""

    x: Operand
    y: Operand
    op: AluOp
    square: bool
    store: Requant


def values_of(op: g.Operator, cfg: Config) -> int | None:
    """Which operand of `op` has one value per pixel of the other, an image; None where `lower` does not apply.

    The image may be constant, of any shape that is broadcast.
    """
    able = cfg.batch == 1 and cfg.block_in == cfg.block_out and {"overwrite", "rescale"} <= cfg.extensions
    if not able or not isinstance(op, (g.Add, g.Mul, g.SquaredDifference)) or len(op.output.shape) != 4:
        return None
    n, channels, *size = shape = op.output.shape
    if channels == 1:
        return None
    for values in (1,) if isinstance(op, g.Sub) else (1, 0):
        x, y = op.inputs[1 - values], op.inputs[values]
        if y.data is None and y.shape == (n, 1, *size) and (x.data is not None or x.shape == shape):
            return values
    return None


def form_of(op: g.Operator, values: int) -> Form:
    """The operations of `op`, whose operand `values` has one value per pixel."""
    zo = op.output.zero_point
    if isinstance(op, g.Mul):
        x, y = (Operand(offset=-op.inputs[k].zero_point) for k in (1 - values, values))
        return Form(x, y, AluOp.MUL, False, Requant(0, *op.multipliers, zo, op.low, op.high))
    if isinstance(op, g.SquaredDifference):
        forms = [_square_operand(t.zero_point, *scale) for t, scale in zip(op.inputs, op.multipliers)]
        store, negated = Requant(0, *op.multipliers[2], zo), True
    else:
        assert isinstance(op, g.Add)  # `values_of` takes no others
        total = sum_form(op)
        forms, store, negated = [total.x, total.y], total.store, total.sign < 0
    x, y = _operand(forms[1 - values], False), _operand(forms[values], negated)
    if not (x.shift or x.scale):  # the offset is added once for all blocks
        x, y = replace(x, offset=0), replace(y, more=x.offset)
    return Form(x, y, AluOp.ADD, isinstance(op, g.SquaredDifference), store)


def _operand(form: OperandForm, negated: bool) -> Operand:
    """The operations of a form; the array shifts as far as it can."""
    if form.shift > _MOST_SHIFT:
        return Operand(1, form.offset, form.shift, form.scale, negated)
    return Operand(1 << form.shift, form.offset << form.shift, 0, form.scale, negated)


def _square_operand(zero_point: int, multiplier: int, exponent: int) -> OperandForm:
    """`R((x - zero_point) << SQUARE_SHIFT)`, R <= 1/2: without rounding where R is a power of two."""
    if multiplier == 1 << 30 and -SQUARE_SHIFT < exponent <= 0:
        return OperandForm(-zero_point, SQUARE_SHIFT - 1 + exponent)
    return OperandForm(-zero_point, SQUARE_SHIFT, (multiplier, exponent))


def cycles(op: g.Operator, values: int, cfg: Config) -> float:
    """Estimated cycles: the longest of array and ALU, loads and stores, and the first load and the last store."""
    n, channels, *size = op.output.shape
    blocks, pixels, form = -(-channels // cfg.block_in), n * math.prod(size), form_of(op, values)
    each, together = _tile(blocks, pixels)
    tiles = -(-pixels // each) * -(-blocks // together)
    multiply, entries = issue_interval(cfg, multiply=True), pixels * blocks
    multiplied = form.square + (form.op == AluOp.MUL)
    passes = form.x.cycles(cfg) + multiply * 2 * multiplied + (form.op == AluOp.ADD)  # the store multiplies, too
    loads = cost.transfer(striped(cfg), (entries + pixels) * cfg.inp_entry_bytes, 2 * tiles, tiles * together)
    stores = cost.transfer(cfg, entries * cfg.out_entry_bytes, tiles, tiles * together)
    compute = cost.computed(passes * entries + form.y.cycles(cfg) * pixels, 6 * tiles)
    return max(compute, loads, stores) + (loads + stores) / tiles


def _tile(blocks: int, pixels: int) -> tuple[int, int]:
    """(pixels, blocks of channels) of a tile."""
    each = min(pixels, max(_LEAST, _TILE // blocks))
    return each, min(blocks, max(1, _TILE // each))


def lower(rec: Recording, op: g.Operator, values: int) -> None:
    """Append the operator, some pixels at a time."""
    cfg, program, (n, channels, *size) = rec.cfg, rec.program, op.output.shape
    pixels, blocks = math.prod(size), -(-channels // cfg.block_in)
    each, together = _tile(blocks, pixels)
    x, y, out = rec.operand(op, 1 - values), rec.operand(op, values), rec.activations[op.output.name]
    tiles = product(range(n), range(0, pixels, each), range(0, blocks, together))
    with on_chip(rec) as chip:
        kernel, whole = _Kernel(rec, op, form_of(op, values), chip), together * each
        inp = chip.slots(Mem.INP, whole + each)
        acc = chip.banks(whole + each, whole + each, cfg.acc_depth // 2)
        for k, (image, pixel, block) in enumerate(tiles):
            count, many = min(each, pixels - pixel), min(together, blocks - block)
            place, base, numbers = inp[k % 2], acc[k % 2], acc[1 - k % 2] + whole
            where = (image * blocks + block) * pixels + pixel
            program.load(Mem.INP, place + whole, y, image * pixels + pixel, x_size=count)
            program.load(Mem.INP, place, x, where, y_size=many, x_size=count, x_stride=pixels)
            kernel.operand(1, numbers, place + whole, count)
            kernel.operand(0, base, place, many * count)
            kernel.combine(base, numbers, many, count)
            program.store(base, out, where, y_size=many, x_size=count, x_stride=pixels, par=kernel.par)


class _Kernel:
    """What the tiles share: matrices and parameters on chip."""

    def __init__(self, rec: Recording, op: g.Operator, form: Form, chip: OnChip):
        self.program, self.form = rec.program, form
        block = rec.cfg.block_in
        first = np.zeros((block, block), np.int8)
        first[:, 0] = form.y.weight  # of the only channel, in every lane
        matrices = np.stack([np.eye(block, dtype=np.int8) * form.x.weight, first]).astype(np.int8)
        self.wgt = chip.constant(Mem.WGT, rec.constant(f"{op.name}.matrices", matrices), 2)
        made = [store_parameters(rec, op, form.store)]
        for name, operand in (("x", form.x), ("y", form.y)):
            made.append(made[0] if operand.scale is None else scale_parameters(rec, op, name, operand.scale))
        self.par = chip.region(Mem.PAR, len(made))
        for k, buffer in enumerate(made):
            if k == 0 or buffer is not made[0]:
                rec.program.load(Mem.PAR, self.par + k, buffer, 0)

    def operand(self, k: int, acc: int, inp: int, count: int) -> None:
        """Bring `count` entries of the image (0) or of the values (1) to the accumulators, in their form."""
        program, made, each = self.program, (self.form.x, self.form.y)[k], [(count, 1, 0)]
        program.gemm([(count, 1, 1, 0)], acc, inp, self.wgt + k, overwrite=True)
        if made.offset:
            program.alu(AluOp.ADD, each, acc, imm=made.offset)
        if made.shift:
            program.alu(AluOp.SHR, each, acc, imm=-made.shift)
        if made.scale is not None:
            program.alu(AluOp.RESCALE, each, acc, imm=self.par + 1 + k)
        if made.negated:
            program.alu(AluOp.MUL, each, acc, imm=-1)
        if made.more:
            program.alu(AluOp.ADD, each, acc, imm=made.more)

    def combine(self, acc: int, numbers: int, blocks: int, count: int) -> None:
        """Combine each block of an image with the values."""
        self.program.alu(self.form.op, [(blocks, count, 0), (count, 1, 1)], acc, numbers)
        if self.form.square:
            self.program.alu(AluOp.MUL, [(blocks * count, 1, 1)], acc, acc)
