"""Sums, differences, their squares, and products of an image with one value per pixel, as norms have them.

The array copies both to the accumulators: of the value of a pixel it makes an entry of equal lanes, which the ALU
brings into the form of its operand, once for all blocks of channels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from ...hw.isa import AluOp, Mem
from .. import graph as g
from ..graph.elementwise import SQUARE_SHIFT
from ..graph.integer_forms import OperandForm, Requant, sum_form
from .language import Kernel, Tile, Unfit

_TILE = 128  # entries: enough to hide what an instruction costs, and few enough for a short start and end
_LEAST = 16  # pixels of a tile, where the image has as many
_MOST_SHIFT = 6  # that weights of the array make; offsets shifted so far are numbers of an instruction


def value_per_pixel(k: Kernel, op: g.Add | g.Mul | g.SquaredDifference) -> None:
    """A sum, difference, its square, or product: image and values of a tile are in two banks, read in one cycle."""
    k.need("overwrite", "rescale", batch=1)
    number = values_of(op)
    if number is None:
        raise Unfit("no operand has one value per pixel of the other, an image")
    form = form_of(op, number)
    x, out = k.input(1 - number).merged("pixel", "h", "w"), k.output.merged("pixel", "h", "w")
    values = k.input(number)[:, 0].merged("pixel", "h", "w")
    images, blocks, pixels = out.shape.values()
    size = min(_TILE, k.slot // 2, k.bank // 2)
    each = min(pixels, max(min(_LEAST, size), size // blocks))
    most = min(blocks, size // max(1, each))
    whole = most * each

    to_lanes = np.zeros((k.cfg.block_out, k.cfg.block_in))
    to_lanes[:, 0] = form.y.weight  # of the only channel, in every lane
    weights = k.matrices("matrices", np.stack([np.eye(k.cfg.block_out) * form.x.weight, to_lanes]))
    par, *scales = k.tiles(Mem.PAR, {}, {}, {})
    k.load(par, k.requant(form.store))
    for name, operand, scale in zip("xy", (form.x, form.y), scales):
        if operand.scale is not None:
            k.load(scale, k.requant(Requant(0, *operand.scale, 0), f"scale_{name}"))
    xs, ys = k.slots(whole + each), k.banks(whole + each)
    for image, start, first in product(range(images), range(0, pixels, each), range(0, blocks, most)):
        pixel, block = slice(start, min(start + each, pixels)), slice(first, min(first + most, blocks))
        extents, end = {"b": block.stop - first, "pixel": pixel.stop - start}, whole + pixel.stop - start
        inputs = xs.next(pixel=whole + each)
        numbers = k.load(inputs[whole:end], values[image, pixel])
        tile = k.load(inputs.reshaped(**extents), x[image, block, pixel])
        y, z = ys.next(**extents), ys.other(pixel=whole + each)[whole:end]
        form.y.record(z, numbers, weights[1], scales[1])
        form.x.record(y, tile, weights[0], scales[0])
        y.alu(form.op, z)
        if form.square:
            y *= y
        k.store(out[image, block, pixel], y, par)


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

    def record(self, y: Tile, x: Tile, weights: Tile, scale: Tile) -> None:
        """Bring inputs `x` to the accumulators `y`; `weights` are a matrix of `weight`, `scale` the parameters."""
        y[...] = x @ weights
        y += self.offset
        y <<= self.shift
        if self.scale is not None:
            y.rescale(scale)
        if self.negated:
            y *= -1
        y += self.more

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


def values_of(op: g.Add | g.Mul | g.SquaredDifference) -> int | None:
    """Which operand of `op` has one value per pixel of the other, an image; None where none has.

    The image may be constant, of any shape that is broadcast.
    """
    shape = op.output.shape
    if len(shape) != 4 or shape[1] == 1:
        return None
    for values in (1,) if isinstance(op, g.Sub) else (1, 0):
        x, y = op.inputs[1 - values], op.inputs[values]
        if y.data is None and y.shape == (shape[0], 1, *shape[2:]) and (x.data is not None or x.shape == shape):
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
