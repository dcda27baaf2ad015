"""Operators on two int8 tensors, element by element, on the ALU: sums, products, squares of differences, extremes.

Both operands come to the accumulators and are brought into the form that the operator needs. One of them may have one
value for each channel of the other, as gates of squeeze-and-excite blocks have, or for each pixel, as norms do.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...hw.isa import Mem
from .. import graph as g
from ..graph.integer_forms import Requant, pair_form, rescaling_store
from .language import TILE, Array, Kernel, Slots, Tile, Unfit, by_shape

_LEAST = 16  # adjacent entries of a tile, where a row has as many: shorter transfers take longer


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
    """An operator that has a `pair_form`. Image and values of a tile are in two banks, which the ALU reads in one cycle.

    Operands of one shape are loaded to the accumulators. Otherwise the array copies both there, ahead of the ALU; of
    the value of a pixel it makes an entry of equal lanes. Values are formed once in each bank for all of their tiles.
    """
    k.need("acc8", "requant", "rescale")
    form, (number, of_pixels) = pair_form(op), values_of(op)
    forms, copied, parts = (form.x, form.y), number is not None, _parts(k, op, number, of_pixels)
    count, others = (parts[0][-1].shape[name] for name in ("value", "other"))
    size = min(TILE, k.bank // 2, k.slot // (1 + copied))
    each = min(count, max(min(size, _LEAST) if of_pixels else 1, size // others))
    most = min(others, size // max(1, each))

    par, (ys, zs) = k.parameters(form.store), _places(k, most * each, each)
    scales = [each.scale and k.parameters(Requant(0, *each.scale, 0)) for each in forms]
    if copied:
        k.need("overwrite")
        matrices = np.stack([np.eye(k.cfg.block_out), np.zeros((k.cfg.block_out, k.cfg.block_in))])
        matrices[1, :, 0] = 1  # the only channel in every lane
        weights, slots = k.matrices("matrices", matrices), (k.slots(most * each), k.slots(each))

    def bring(operand: int, y: Tile, source: Array) -> None:
        """Load an operand to the accumulators, and bring it into its form."""
        if copied:
            values = operand == number
            y[...] = slots[values].hold(source) @ weights[int(values and of_pixels)]
        else:
            k.load(y, source)
        y += forms[operand].offset
        y <<= forms[operand].shift
        if scales[operand]:
            y.rescale(scales[operand])
        if operand and form.negated:
            y *= -1

    meets = 1 if number is None else number
    for image, values, out in parts:
        for first in range(0, count, each):
            these, formed = slice(first, min(first + each, count)), set[int]()
            for other in range(0, others, most):
                part = {"value": these, "other": slice(other, min(other + most, others))}
                target = out.at(**part)
                y, z = ys.next(**target.shape), zs.next(value=these.stop - first)
                if z.base not in formed:
                    bring(meets, z, values[these])
                    formed.add(z.base)
                bring(1 - meets, y, image.at(**part))
                y.alu(form.op, z)
                if form.square:
                    y *= y
                k.store(target, y, par)


def values_of(op: g.Operator) -> tuple[int | None, bool]:
    """(the operand with one value per channel or pixel of the other, an image; whether it is per pixel).

    (None, False) where none has. An image that meets values of pixels may be constant, of any shape that is broadcast.
    """
    shape = op.output.shape
    for number, (t, image) in ((1, op.inputs[::-1]), (0, op.inputs)) if len(shape) == 4 else ():
        if t.data is None and shape[1] > 1 and t.shape == (shape[0], 1, *shape[2:]) != shape:
            if image.data is not None or image.shape == shape:
                return number, True
        of_channels = (1, 1, *t.shape)[-2:] == (1, 1) if t.data is not None else t.shape == (*shape[:2], 1, 1)
        if of_channels and image.data is None and image.shape == shape and shape[2] * shape[3] > 1:
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
    par = k.parameters(Requant(0, 1 << 30, 1, op.output.zero_point))
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
    if (store := rescaling_store(op)) is None:
        raise Unfit("no store rounds its ties to even")
    x, out = k.input(0).merged("entry"), k.output.merged("entry")
    size = min(TILE, k.bank)
    par, ys = k.parameters(store), k.banks(size)
    for part, target in zip(x.parts(size), out.parts(size)):
        k.store(target, ys.load(part), par)
