"""Operators on two int8 tensors, element by element, on the ALU: sums, products, squares of differences, extremes.

Both operands come to the accumulators and are brought into the form that the operator needs. One of them may have one
value for each channel of the other, as gates of squeeze-and-excite blocks have, or for each pixel, as norms do.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...hw.isa import AluOp, Mem
from .. import graph as g
from ..graph.integer_forms import UNCHANGED, Requant, pair_form, rescaling_store
from .language import TILE, Array, Kernel, Slots, Tile, Unfit, by_shape

_LEAST = 16  # entries of a tile, where there are as many: shorter transfers take longer
_MOST_SHIFT = 6  # that weights of the array make


def need_one_shape(op: g.Operator) -> None:
    """Raise `Unfit` unless operands and output are vectors or images of one shape; constants are broadcast."""
    shape = op.output.shape
    if len(shape) not in (2, 4):
        raise Unfit(f"{len(shape)} dimensions")
    for t in op.inputs:
        if t.data is None and t.shape != shape:
            raise Unfit(f"operand of shape {t.shape} is broadcast")


def _instructions(op: g.Operator) -> object:
    form = pair_form(op)
    return form.op, *((each.offset, each.shift, each.scale is None) for each in (form.x, form.y))


@by_shape(_instructions)
def pair(k: Kernel, op: g.Operator) -> None:
    """An operator that has a `pair_form`. Both operands of a tile are in two banks, which the ALU reads in one cycle.

    Operands of one shape are loaded to the accumulators. Otherwise the array copies both there, ahead of the ALU; of
    the value of a pixel it makes an entry of equal lanes. Values are formed once in each bank for all of their tiles.
    """
    k.need("acc8", "requant", "rescale")
    _pair(k, op, k.fastest(_pair, _sizes(k, min(k.bank // 2, k.slot))))


@by_shape(_instructions)
def sum_of_two(k: Kernel, op: g.Add) -> None:
    """As `pair`: a kernel of its own, which the table names as the last resort of sums."""
    pair(k, op)


def _sizes(k: Kernel, most: int) -> list[int]:
    """Entries of a tile, to be tried: a few are faster in one tile or in several, by what a transfer takes to begin."""
    return sorted({min(TILE, most, -(-k.output.size // tiles)) for tiles in (1, 2, 4)}, reverse=True)


def _pair(k: Kernel, op: g.Operator, size: int) -> None:
    form, (number, of_pixels) = pair_form(op), values_of(op)
    forms, copied, parts = [form.x, form.y], number is not None, _parts(k, op, number, of_pixels)
    values, more = 1 if number is None else number, 0
    own = forms[1 - values]
    if copied and form.op is AluOp.ADD and own.scale is None:  # its offset is added to the values, once
        more = (own.offset << own.shift) * (-1 if form.negated and not values else 1)
        forms[1 - values] = replace(own, offset=0)
    count, others = (parts[0][-1].shape[name] for name in ("value", "other"))
    size = min(size, TILE // (1 + copied), k.slot // (1 + copied))
    each = min(count, max(min(size, _LEAST) if of_pixels else 1, size // others))
    most = min(others, size // max(1, each))

    par: Tile | None = None
    ys, zs = _places(k, most * each, each)
    scales = [each.scale and k.parameters(Requant(0, *each.scale, 0)) for each in forms]
    lifts = [each.shift if copied and each.shift <= _MOST_SHIFT else 0 for each in forms]  # the array shifts
    if copied:
        k.need("overwrite")
        matrices = np.stack([np.eye(k.cfg.block_out), np.eye(k.cfg.block_out)])
        if of_pixels:
            matrices[1] = np.arange(k.cfg.block_in) == 0  # the only channel in every lane
        weights = k.matrices("matrices", matrices * 2 ** np.array([lifts[1 - values], lifts[values]])[:, None, None])
        slots = k.slots(most * each), k.slots(each)

    def bring(operand: int, y: Tile, source: Array) -> None:
        """Load an operand to the accumulators, and bring it into its form."""
        wanted, lift = forms[operand], lifts[operand]
        if copied:
            y[...] = slots[operand == values].hold(source) @ weights[int(operand == values)]
        else:
            k.load(y, source)
        y += wanted.offset << lift
        y <<= wanted.shift - lift
        if (scale := scales[operand]) is not None:
            y.rescale(scale)
        if operand and form.negated:
            y *= -1

    for image, those, out in parts:
        for first in range(0, count, each):
            these, formed = slice(first, min(first + each, count)), set[int]()
            for other in range(0, others, most):
                part = {"value": these, "other": slice(other, min(other + most, others))}
                target = out.at(**part)
                y, z = ys.next(**target.shape), zs.next(value=these.stop - first)
                if z.base not in formed:
                    bring(values, z, those[these])
                    z += more
                    formed.add(z.base)
                bring(1 - values, y, image.at(**part))
                y.alu(form.op, z)
                if form.square:
                    y *= y
                if par is None and form.store != UNCHANGED:  # the first tile has not waited for them
                    par = k.parameters(form.store)
                k.store(target, y, par)


def values_of(op: g.Operator) -> tuple[int | None, bool]:
    """(the operand with one value per channel or pixel of the other, an image; whether it is per pixel).

    (None, False) where none has. An image that meets values of pixels may be constant, of any shape that is broadcast.
    """
    shape = op.output.shape
    for number, (t, image) in ((1, op.inputs[::-1]), (0, op.inputs)) if len(shape) == 4 else ():
        one, whole = (1, 1, *t.shape)[-2:] == (1, 1), image.data is None and image.shape == shape
        if t.data is None and t.shape == (shape[0], 1, *shape[2:]) != shape and (whole or image.data is not None):
            return number, True
        if (one if t.data is not None else t.shape == (*shape[:2], 1, 1)) and whole and shape[2] * shape[3] > 1:
            return number, False
    return None, False


def _parts(k: Kernel, op: g.Operator, number: int | None, of_pixels: bool) -> list[tuple[Array, Array, Array]]:
    """Images, the values that they meet, on axis `value`, and what they become, with an axis `other` beside it."""
    if number is None:
        need_one_shape(op)
        x, y, out = (each.merged("value") for each in (k.input(0), k.input(1), k.output))
        x, out = (each.split("value", value=each.size, other=1) for each in (x, out))
        return [(x, y, out)]
    image, out, t = k.input(1 - number), k.output, op.inputs[number]
    if of_pixels:
        x, out = (each.merged("value", "h", "w").named(b="other") for each in (image, out))
        y = k.input(number)[:, 0].merged("value", "h", "w")
        return [(x[n], y[n], out[n]) for n in range(out.shape["n"])]
    whole = None if t.data is None else np.broadcast_to(t.data, (*op.output.shape[:2], 1, 1))
    y = k.input(number) if whole is None else k.packed_constant(t.name, whole)
    x, out = (each.merged("value", "n", "b").merged("other", "h", "w") for each in (image, out))
    return [(x, y.merged("value"), out)]


def _places(k: Kernel, size: int, others: int) -> tuple[Slots, Slots]:
    """Places of `size` accumulators, and of `others` beside each, in the other bank, for second operands of the ALU."""
    if k.cfg.inp_depth < k.cfg.acc_depth:  # micro-ops name so few accumulators as second operands
        zs = k.slots(others, Mem.ACC, high=k.cfg.inp_depth)
        return k.slots(size, Mem.ACC), zs
    ys, zs = k.banks(size), k.banks(others)
    zs.next()
    return ys, zs


def prelu(k: Kernel, op: g.Prelu) -> None:
    """What is above the zero point, and the product of what is below it, each rescaled, and their sum: one is 0."""
    k.need("acc8", "requant", "rescale")
    need_one_shape(op)
    x, slopes, out = (each.merged("entry") for each in (k.input(0), k.input(1), k.output))
    size = min(TILE, k.bank // 3, k.slot // 2)
    par = k.parameters(replace(UNCHANGED, zero_point=op.output.zero_point))
    scales = [k.parameters(Requant(0, *scale, 0)) for scale in op.multipliers]
    ys, zs = _places(k, size, 2 * size)
    for part, slope, target in zip(x.parts(size), slopes.parts(size), out.parts(size)):
        above, (below, factor) = ys.next(**part.shape), zs.next(entry=2 * size).pieces(part.shape, part.shape)
        for y, source, t in (above, part, op.x), (below, part, op.x), (factor, slope, op.inputs[1]):
            k.load(y, source)
            y += -t.zero_point
        above.maximum(0).rescale(scales[0])
        below.minimum(0)
        below *= factor
        above += below.rescale(scales[1])
        k.store(target, above, par)


@by_shape(lambda op: rescaling_store(op) is None)
def requantise(k: Kernel, op: g.Requantize) -> None:
    """A change of quantisation that a requantising store rounds as the operator does."""
    k.need("acc8", "requant")
    need_one_shape(op)
    _requantise(k, op, k.fastest(_requantise, _sizes(k, k.bank)))


def _requantise(k: Kernel, op: g.Requantize, size: int) -> None:
    if (store := rescaling_store(op)) is None:
        raise Unfit("no store rounds its ties to even")
    x, out = k.input(0).merged("entry"), k.output.merged("entry")
    par, ys = k.parameters(store), k.banks(size)
    for part, target in zip(x.parts(size), out.parts(size)):
        k.store(target, ys.load(part), par)
