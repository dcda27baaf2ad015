"""Element-wise operators on int8 tensors: sums, products, squares of differences, extremes, functions of one value.

The ALU combines two operands in the accumulators; one may have a value for each channel or pixel of the other. The
multiplier array adds two tensors, with weights of several digits, and multiplies by constants of channels. A function
of one value is a table on chip, or the larger one of two lines.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache, singledispatch
from itertools import groupby, product

import numpy as np
from numpy.typing import NDArray

from ...hw.isa import AluOp, Mem
from ...hw.rounding import CONTRACTS, quantize_multiplier, rescale
from .. import graph as g
from ..graph import reference
from ..graph.elementwise import ADD_SHIFT
from ..graph.integer_forms import UNCHANGED, Requant, pair_form, rescaling_store, weighted_form
from .language import TILE, Array, Kernel, Slots, Tile, Unfit, by_shape, cuts, refuse

_LEAST = 16  # entries of a tile, where there are as many: shorter transfers take longer
_MOST_SHIFT = 6  # the largest shift that int8 weights of the array make


def need_one_shape(op: g.Operator) -> None:
    """Raise `Unfit` unless operands and output are vectors or images of one shape; constants are broadcast."""
    shape = op.output.shape
    refuse(len(shape) not in (2, 4), f"{len(shape)} dimensions")
    for t in op.inputs:
        if t.data is None and t.shape != shape:
            raise Unfit(f"operand of shape {t.shape} is broadcast")


def _instructions(op: g.Operator) -> object:
    form = pair_form(op)
    return form.op, *((each.offset, each.shift, each.scale is None) for each in (form.x, form.y))


@by_shape(_instructions)
def pair(k: Kernel, op: g.Operator) -> None:
    """An operator that has a `pair_form`, with operands in two banks, which the ALU reads in one cycle.

    Operands of one shape are loaded to the accumulators. Otherwise the array copies both there, ahead of the ALU; the
    value of a pixel becomes an entry of equal lanes. Values are formed once in each bank for all of their tiles.
    """
    k.need("acc8", "requant", "rescale")
    _pair(k, op, k.fastest(_pair, _sizes(k, min(k.bank // 2, k.slot))))


@by_shape(_instructions)
def sum_of_two(k: Kernel, op: g.Add) -> None:
    """As `pair`, under a name of its own: the table tries it last for sums."""
    pair(k, op)


def _sizes(k: Kernel, most: int) -> list[int]:
    """Sizes of tiles to be tried, in entries: a short tensor is faster in one tile or in several."""
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
    array: tuple[Tile, tuple[Slots, Slots]] | None = None  # the weights that copy, and slots of both operands
    if copied:
        k.need("overwrite")
        matrices = np.stack([np.eye(k.cfg.block_out, dtype=np.int64)] * 2)
        if of_pixels:
            matrices[1] = np.arange(k.cfg.block_in) == 0  # the only channel in every lane
        weights = k.matrices("matrices", matrices << np.array([lifts[1 - values], lifts[values]])[:, None, None])
        array = weights, (k.slots(most * each), k.slots(each))

    def bring(operand: int, y: Tile, source: Array) -> None:
        """Load an operand to the accumulators, and bring it into its form."""
        wanted, lift = forms[operand], lifts[operand]
        if array is None:
            k.load(y, source)
        else:
            y[...] = array[1][operand == values].hold(source) @ array[0][int(operand == values)]
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
    """(image, values, output): axis `value` of all counts values, axis `other` the entries that meet one value."""
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
    """Places of `size` accumulators, and of `others` in the opposite bank for second operands of the ALU."""
    if k.cfg.inp_depth < k.cfg.acc_depth:  # micro-ops name so few accumulators as second operands
        zs = k.slots(others, Mem.ACC, high=k.cfg.inp_depth)
        return k.slots(size, Mem.ACC), zs
    # one piece of each bank: what is free may be no more, and in two pieces
    banks = ((low, low + k.bank) for low in (0, k.bank))
    pairs = [k.tiles(Mem.ACC, {"entry": size}, {"entry": others}, low=low, high=high) for low, high in banks]
    (y, z), (other_y, other_z) = pairs
    return Slots((y, other_y)), Slots((other_z, z))


def prelu(k: Kernel, op: g.Prelu) -> None:
    """The sum of the rescaled part above the zero point and the rescaled product with the slope below it."""
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


_BEND_SHIFTS = 20, 16  # bits behind the point of the sums, the most that their range allows first
_NUDGES = sorted(range(-32, 33, 4), key=abs)  # of a channel's bias, which decide sums near half a step


@dataclass(frozen=True)
class Bends:
    """`store((x << shift) + sign * R(max(zero_point - x, 0)) + bias)`, where x is bent at its zero point.

    `sign`, the `scales` of R (multipliers and exponents), and `bias` have a value for each channel.
    """

    shift: int
    sign: NDArray[np.int64]
    scales: tuple[NDArray[np.int64], NDArray[np.int64]]
    bias: NDArray[np.int64]
    store: Requant


@lru_cache(maxsize=64)
def bends_of(op: g.NearestPrelu) -> Bends | None:
    """The integers whose results are right for every value of every channel, which are tried; None without."""
    change = 1 - op.slopes.astype(np.float64)  # of the slope below zero
    zero, wanted = op.x.zero_point, op.table
    shift = next((shift for shift in _BEND_SHIFTS if np.abs(change).max() < 1 << 22 - shift), None)
    if shift is None:
        return None
    multipliers, exponents = np.array([quantize_multiplier(abs(c) * 2.0**shift) for c in change], np.int64).T
    sign = np.where(change < 0, -1, 1)
    below = rescale(np.maximum(zero - _VALUES, 0), multipliers[:, None], exponents[:, None], "single")
    sums = ((_VALUES - zero) << shift) + sign[:, None] * below
    for contract in CONTRACTS:
        scale = quantize_multiplier(op.x.scale / op.output.scale / 2.0**shift)
        store = Requant(0, *scale, op.output.zero_point, op.low, op.high, contract)
        exact = np.stack([(store.apply(sums + nudge) == wanted).all(1) for nudge in _NUDGES])
        if exact.any(0).all():
            bias = np.array(_NUDGES)[exact.argmax(0)] - (zero << shift)
            return Bends(shift, sign, (multipliers, exponents), bias, store)
    return None


def prelu_of_channels(k: Kernel, op: g.NearestPrelu) -> None:
    """Bends, block by block: x, and beside it in the other bank what the slopes of the channels change below zero."""
    k.need("overwrite", "requant", "rescale")
    need_one_shape(op)
    if (bends := bends_of(op)) is None:
        raise Unfit("no integers are exact for its slopes and scales")
    lanes, out = k.cfg.block_out, k.output
    x, out = (each if "h" in each.shape else each.split("b", b=each.shape["b"], h=1, w=1) for each in (k.input(0), out))
    size = min(TILE, x.shape["h"] * x.shape["w"], k.bank // 2 - 1, k.slot)
    weights = k.matrices("signs", np.stack([np.eye(lanes, dtype=np.int64), -np.eye(lanes, dtype=np.int64)]))
    multipliers, exponents = bends.scales
    unit = Requant(0, 1 << 30, 1, 0, contract="single")
    scales = k.requant(unit, "scales", multiplier=multipliers, exponent=exponents)
    stores = k.requant(bends.store, "stores", bias=bends.bias)
    missing = -len(bends.sign) % lanes
    signs = k.known("sign", np.pad(bends.sign, (0, missing)).astype(np.int32).reshape(-1, lanes))
    xs, pars = k.slots(size), [k.slots(1, Mem.PAR) for _ in range(2)]
    ys, zs = _places(k, size + 1, size)
    for n, b in product(range(x.shape["n"]), range(x.shape["b"])):
        turned = (bends.sign[b * lanes : (b + 1) * lanes] < 0).any()
        scale, store = (each.hold(par[b : b + 1]) for each, par in zip(pars, (scales, stores)))
        for part, target in zip(*(each[n, b].merged("pixel", "h", "w").parts(size) for each in (x, out))):
            tile = xs.load(part)
            sign, y = ys.next(entry=size + 1).pieces({"sign": 1}, part.shape)
            z = zs.next(**part.shape)
            z[...] = tile @ weights[1]
            z += op.x.zero_point
            z.maximum(0)
            z.rescale(scale)
            if turned:
                z *= k.load(sign, signs[b : b + 1])[0]
            y[...] = tile @ weights[0]
            y <<= bends.shift
            y += z
            k.store(target, y, store[0])


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


_TILES = 4  # tiles on chip, two in each bank, and at least of a tensor: loads, look-ups and stores overlap


@by_shape(lambda op: ())
def lookup(k: Kernel, op: g.Lookup | g.Requantize) -> None:
    """A function of one int8 value, by a table that stays on chip for the operators that follow in a launch."""
    k.need("lookup", "acc8")
    need_one_shape(op)
    x, out = k.input(0).merged("entry"), k.output.merged("entry")
    size = min(TILE, k.cfg.acc_depth // _TILES, max(16, -(-x.size // _TILES)))
    table = k.table("table", op.table)
    ys = k.banks(size, places=_TILES // 2)
    for part, target in zip(x.parts(size), out.parts(size)):
        y = ys.load(part)
        y.lookup(table)
        k.store(target, y)


_RECTIFIER_TILE = 200  # entries
_MOST = 127  # the largest weight
_UNIT = (1 << 30, 1)  # multiplier and exponent of 1


@dataclass(frozen=True)
class Lines:
    """`store(max(a, b))` of the lines `weight * x + offset` above and below the zero point, or `min` of them.

    With `scales`, (multiplier, exponent) of each, the lines are rescaled before.
    """

    weights: tuple[int, int]
    offsets: tuple[int, int]
    store: Requant
    larger: bool
    scales: tuple[tuple[int, int], ...] = ()

    def apply(self, x: NDArray[np.integer]) -> NDArray[np.int8]:
        """int8 values of int8 `x`."""
        lines = [weight * x.astype(np.int64) + offset for weight, offset in zip(self.weights, self.offsets)]
        if self.scales:
            lines = [rescale(line, *scale) for line, scale in zip(lines, self.scales)]
        return self.store.apply(np.maximum(*lines) if self.larger else np.minimum(*lines))


def leaky_relu(k: Kernel, op: g.LeakyRelu) -> None:
    """A rectifier without a table: the larger of two lines, or the smaller one where that below zero is the steeper.

    Where both slopes are multiples of one unit, the lines are products with multiples of an identity, and the store
    scales the result: that is tried for all 256 values. Else the ALU rescales both lines as the function's definition
    does. The two lines of a tile are in two banks, so that the ALU reads both in one cycle.
    """
    need_one_shape(op)
    refuse(min(op.slopes) < 0, f"slope {min(op.slopes):g}: must not be negative")
    lines = lines_of(op)
    k.need("overwrite", "requant", *(["rescale"] if lines.scales else []))
    x, out = k.input(0).merged("entry"), k.output.merged("entry")
    size = min(_RECTIFIER_TILE, x.size, k.slot, k.bank // 2)

    identity = np.eye(k.cfg.block_out, k.cfg.block_in, dtype=np.int64)
    weights = k.matrices("multiples", np.stack([identity * weight for weight in lines.weights]))
    scales = [k.requant(Requant(0, *scale, 0), f"scale_{line}") for line, scale in enumerate(lines.scales)]
    pars = k.tile(Mem.PAR, par=1 + len(scales))
    for par, source in zip(pars.parts(1), (k.requant(lines.store), *scales)):
        k.load(par, source)
    xs, ys = k.slots(size), k.banks(2 * size)
    for part, target in zip(x.parts(size), out.parts(size)):
        tile = xs.load(part)
        above, below = ys.next(**part.shape), ys.other(line=2, entry=size)[1, : part.size]
        for line, y in enumerate((above, below)):
            y[...] = tile @ weights[line]
            y += lines.offsets[line]
            if scales:
                y.rescale(pars[1 + line])
        (above.maximum if lines.larger else above.minimum)(below)
        k.store(target, above, pars[0])


@lru_cache(maxsize=256)
def lines_of(op: g.LeakyRelu) -> Lines:
    """The two lines of a rectifier, whose slopes are not negative: multiples of one unit where these are exact."""
    zero, target, (right, left), wanted = op.x.zero_point, op.output.zero_point, op.slopes, op.table
    above_zero = _VALUES >= zero
    for above, contract in product(range(_MOST, 0, -1) if right > 0 else (), ("double", "single")):
        store = Requant(-above * zero, *quantize_multiplier(right / above), target, contract=contract)
        if np.array_equal(store.apply(above * _VALUES[above_zero]), wanted[above_zero]):
            near = round(left / right * above)
            for below in (near, near - 1, near + 1):
                found = Lines((above, below), (0, (above - below) * zero), store, below <= above)
                if 0 <= below <= _MOST and np.array_equal(found.apply(_VALUES), wanted):
                    return found
    return Lines((1, 1), (-zero, -zero), Requant(0, *_UNIT, target), left <= right, op.multipliers)


_VALUES = np.arange(-128, 128)
_WEIGHT = 64  # of a sum whose accumulators are shifted
_SHIFTS = (0, 14)  # of the accumulators of sums: with the weight a fraction of 20 bits, within int32
_NEAR = (0, 1, -1, 2, -2)  # distances of biases that are tried from the nearest one: they decide ties


def constant_per_channel(k: Kernel, op: g.Add | g.Mul) -> None:
    """A sum, difference or product of an image with one constant per channel: products of the array, and a store.

    The array multiplies by the constant of a product, in parts where it is beyond int8; the bias of the store has the
    zero points, or the constant of a sum, whose fraction needs a shift. Weights and parameters of some blocks of
    channels stay for all their pixels.
    """
    k.need("overwrite", "requant", batch=1)
    line = line_of(op)
    if line is None:
        raise Unfit("no operand is one constant per channel of the other, an image, or no store gives all its results")
    x = k.input(next(i for i, t in enumerate(op.inputs) if t.data is None)).merged("pixel", "h", "w")
    out = k.output.merged("pixel", "h", "w")
    (images, blocks, pixels), parts = x.shape.values(), len(line.weights)
    size = min(TILE, k.slot, k.bank)
    each = min(pixels, size)
    most = min(blocks, size // max(1, each), k.cfg.par_entries, k.cfg.wgt_depth // parts)

    lanes = k.cfg.block_in
    factors = np.stack([np.pad(part, (0, -len(part) % lanes)) for part in line.weights], 1)
    factors = factors.reshape(-1, lanes, parts).swapaxes(1, 2)  # (blocks, parts, lanes)
    if line.same:
        factors = np.repeat(factors[:1, :, :1], lanes, 2)
    diagonals = (factors[..., None] * np.eye(lanes, dtype=np.int64)).astype(np.int8)
    parameters = k.requant(line.store, bias=line.bias)
    matrices = k.known("weights", diagonals, b=len(diagonals), part=parts)
    pars = k.slots(most, Mem.PAR, count=1)
    weights = k.slots((1 if line.same else most) * parts, Mem.WGT, count=1)
    xs, ys = k.slots(most * each), k.banks(most * each)
    for block, image, pixel in product(cuts(blocks, most), range(images), cuts(pixels, each)):
        tile = xs.load(x[image, block, pixel])
        y, w = ys.next(**tile.shape), weights.hold(matrices[0] if line.same else matrices[block])
        y[...] = tile @ w[..., 0]
        for part in range(1, parts):
            y += (tile @ w[..., part]).over("b pixel")
        y <<= line.shift
        k.store(out[image, block, pixel], y, pars.hold(parameters[block]))


@dataclass(frozen=True)
class Line:
    """`store((sum(weights) * x << shift) + bias)`, channel by channel.

    `weights` are int64 (c,) within int8, `bias` is int64 (c,).
    """

    weights: tuple[NDArray[np.int64], ...]
    bias: NDArray[np.int64]
    store: Requant
    shift: int = 0

    @property
    def same(self) -> bool:
        """True if all channels have the same weights."""
        return all((part == part[0]).all() for part in self.weights)


@lru_cache(maxsize=64)
def line_of(op: g.Add | g.Mul) -> Line | None:
    """The line of an operator with a constant per channel; None where it is another one, or no line is exact."""
    constants = [k for k, t in enumerate(op.inputs) if t.data is not None]
    if len(op.output.shape) != 4 or len(constants) != 1 or op.inputs[1 - constants[0]].shape != op.output.shape:
        return None
    constant = op.inputs[constants[0]].data
    if constant is None or max((1, 1, 1, 1, *constant.shape)[-4:][k] for k in (0, 2, 3)) > 1:
        return None
    return _line(op, constants[0], np.broadcast_to(constant.reshape(-1), op.output.shape[1:2]).astype(np.int64))


@singledispatch
def _line(op: g.Mul, k: int, constants: NDArray[np.int64]) -> Line | None:
    """The line of a product with int64 `constants`, one per channel, in the place of operand `k`."""
    factor, weights = constants - op.inputs[k].zero_point, list[NDArray[np.int64]]()
    while not weights or (factor != sum(weights)).any():
        weights.append(np.clip(factor - sum(weights), -_MOST - 1, _MOST))
    store = Requant(0, *op.multipliers, op.output.zero_point, op.low, op.high, op.contract)
    return Line(tuple(weights), -op.inputs[1 - k].zero_point * factor, store)


@_line.register
def _(op: g.Add, k: int, constants: NDArray[np.int64]) -> Line | None:
    """The first line of a sum whose results are right for every x, which is tried."""
    distinct, places = np.unique(constants, return_inverse=True)
    pair = (_VALUES[None], distinct[:, None]) if k else (distinct[:, None], _VALUES[None])
    wanted = reference.apply(op, *(t.astype(np.int8) for t in pair))
    scales, signs = [m * 2.0 ** (e - 31) for m, e in op.multipliers], (1, op.sign)
    slope = signs[1 - k] * scales[1 - k] * scales[2] * 2.0**ADD_SHIFT  # output steps per step of x
    added = signs[k] * signs[1 - k] * (distinct - op.inputs[k].zero_point) * scales[k] / scales[1 - k]  # steps of x
    for shift, contract in product(_SHIFTS, CONTRACTS):
        weight = (_WEIGHT if shift else 1) * (1 if slope > 0 else -1)
        unit = weight * (1 << shift)
        store = Requant(0, *quantize_multiplier(slope / unit), op.output.zero_point, op.low, op.high, contract)
        nearest = np.rint((added - op.inputs[1 - k].zero_point) * unit).astype(np.int64)
        if (abs(nearest).max() + 128 * abs(unit) + max(_NEAR)) * 2.0 ** max(store.exponent, 0) >= 1 << 31:
            continue
        bias = nearest[:, None] + np.array(_NEAR)  # (constants, biases), of which the first exact one is taken
        exact = (store.apply(unit * _VALUES + bias[..., None]) == wanted[:, None]).all(2)
        if exact.any(1).all():
            bias = bias[np.arange(len(distinct)), exact.argmax(1)][places.reshape(-1)]
            return Line((np.full(len(constants), weight),), bias, store, shift)
    return None


_SUM_TILE = 64  # entries
_Lanes = tuple[int, ...]  # the number of lanes of an entry that each operand has


@by_shape(lambda op: (form := weighted_form(op)) and (form.x, form.y))
def weighted_sum(k: Kernel, op: g.Add) -> None:
    """A sum or difference on the multiplier array: weights are a few digits to base 256, one row of DWGEMM each.

    Loads of inputs run ahead of the compute queue, unlike loads of accumulators. Operands may have fewer channels: the
    values of their paddings `k.rec.padded` are part of the parameters.
    """
    k.need("depthwise", "overwrite", "requant")
    need_one_shape(op)
    form = weighted_form(op)
    if form is None:
        raise Unfit("no weights of a few digits give its sums")
    alike = _alike(k, op)
    kinds = [*dict.fromkeys(lanes for _, lanes in alike)]
    digits = sorted({(d, n) for lanes in kinds for own, n in zip((form.x, form.y), lanes) for d in own if d and n})
    rows = k.rows("w", np.array([[d] * n + [0] * (k.cfg.block_out - n) for d, n in digits]))
    bias = np.full((len(kinds), k.cfg.block_out), form.store.bias, np.int64)
    for lane_bias, lanes in zip(bias, kinds):
        for t, own, many in zip(op.inputs, (form.x, form.y), lanes):
            if many < k.cfg.block_out:
                lane_bias[many:] += k.rec.padded[t.name].value * sum(d << 8 * n for n, d in enumerate(reversed(own)))
    pars = k.load(k.tile(Mem.PAR, kind=len(kinds)), k.requant(form.store, bias=bias.reshape(-1)))

    size = min(_SUM_TILE, k.slot // 2, k.bank, max(len(part) for part, _ in alike))
    xs, ys = k.slots(2 * size), k.banks(size)
    operands, out = [k.input(number).merged("entry") for number in (0, 1)], k.output.merged("entry")
    tiles = [(first, min(first + size, p.stop), lanes) for p, lanes in alike for first in range(p.start, p.stop, size)]
    for first, end, lanes in tiles:
        inputs = xs.next(operand=2, entry=size)[:, : end - first]
        for number, operand in enumerate(operands):
            if lanes[number]:
                k.load(inputs[number], operand[first:end])
        y, empty = ys.next(entry=end - first), True
        for pair in zip(form.x, form.y):  # from the most significant digits on
            if not empty:
                y <<= 8
            for number, digit in enumerate(zip(pair, lanes)):
                if all(digit):
                    k.multiply(y, inputs[number] * rows[digits.index(digit)], overwrite=empty)
                    empty = False
        k.store(out[first:end], y, pars[kinds.index(lanes)])


def _alike(k: Kernel, op: g.Add) -> list[tuple[range, _Lanes]]:
    """The longest runs of entries of the output in which each operand has the same number of lanes: (run, lanes)."""
    block, blocks, found, first = k.cfg.block_in, k.output.shape["b"], list[tuple[range, _Lanes]](), 0
    channels = [k.rec.padded[t.name].x.shape[1] if t.name in k.rec.padded else block * blocks for t in op.inputs]
    for lanes, same in groupby(tuple(min(block, max(0, c - b * block)) for c in channels) for b in range(blocks)):
        count = k.output.size // blocks * len([*same])
        found.append((range(first, first + count), lanes))
        first += count
    return found
