"""Images as they lie in memory to int8: uint8 by a sum, float32 in 32-bit integers, as the host does bit by bit.

Without its sign the bits of a float32 value (1 + f) * 2**e other than NaN are e and f in one number that grows with it.
The difference d of this number to that of the scale has the exponent of the quotient, d >> 23; its mantissa is linear
in the low bits of d: the larger of two lines of slope 1 and 2 times 1 / s, s the mantissa of the scale. A product with
31 bits of 1 / s gives it to 2**-7 of float32's last bit; a shift and a store round it to int8.

All steps are monotonic in the magnitude, so they are right for every value if they are right on both sides of every
magnitude at which the result, or the exponent, changes. For each scale these bound the constant of either line; for one
scale in fifteen nothing is left between the bounds, and the host quantises.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ...hw.isa import Mem
from ...hw.rounding import rescale
from ...runtime.hostops.elementwise import quantize
from .. import graph as g
from ..graph.integer_forms import Requant
from .language import TILE, Kernel, Unfit

MANTISSA = 23  # bits
_FRACTION = 7  # bits behind float32's last one in the mantissa of the quotient
_MOST = _FRACTION  # the largest exponent of a quotient: 128 to 255
_POINT = MANTISSA - 1  # the fixed point of the quotient
_SCALES = 2.0**-64, 2.0**64  # far from where exponents end
EXPONENT_SHIFT = MANTISSA + 1  # magnitudes are doubled: the sign is shifted out
NUMBERS = (1 << 31) - (1 << EXPONENT_SHIFT)  # what is larger than this after step 2 is NaN


@dataclass(frozen=True)
class Steps:
    """The constants of the steps; ties go away from zero, or with `more` to even.

    Let d be the value's bits without the sign less the scale's bits, e = d >> 23 the exponent of the quotient and
    g = d mod 2**23 the rest.

    1. Multiply the value's bits by -2, which shifts out the sign.
    2. Add `NUMBERS`.
    3. Take the maximum with `least`.
    4. Add `align`: the high 8 bits are `_MOST` + 1 - e, the low 24 bits 2**24 - 1 - 2 * g.
    5. Multiply the result of step 3 by -256, add `centre`, and rescale by `reciprocal`: the mantissa.
    6. Add the larger one of the mantissa and `corner`.
    7. Add `base`. Where ties go to even, add `more` where the result of step 8 would be odd before its point.
    8. Shift right by the high bits of step 4.
    9. Multiply by the sign.
    10. Store with `store`.
    """

    least: int
    align: int
    centre: int
    reciprocal: tuple[int, int]
    corner: int
    base: int
    store: Requant
    more: int = 0

    def apply(self, x: NDArray[np.float32]) -> NDArray[np.int8]:
        """int8 values of float32 `x`, none of which is NaN, as the accelerator computes them."""
        amount, mantissa = self.parts(x)
        sums = _wrap(mantissa + np.maximum(mantissa, self.corner) + self.base)
        if self.more:
            odd = _wrap(_shifted(sums, amount) << 31 - _POINT) >> 31
            sums = _wrap(sums - self.more * odd)
        magnitude = _shifted(sums, amount)
        return self.store.apply(_wrap(magnitude * np.clip(x.view(np.int32), -1, 1)))

    def parts(self, x: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """What step 8 shifts by, and the result of step 5."""
        whole = np.maximum(_wrap(_wrap(-2 * x.view(np.int32).astype(np.int64)) + NUMBERS), self.least)
        mantissa = rescale(_wrap(-256 * whole + self.centre), *self.reciprocal, "single")
        return _wrap(whole + self.align) >> EXPONENT_SHIFT, mantissa


def _shifted(x: NDArray[np.int64], amount: NDArray[np.int64]) -> NDArray[np.int64]:
    """`x` shifted right. Far below the scale the amount may wrap, to less than -31: that shifts everything out, too."""
    return np.where(amount < 0, 0, x >> np.clip(amount, 0, 31))


def _wrap(x: NDArray[np.integer] | int) -> NDArray[np.int64]:
    return (np.asarray(x, np.int64) + (1 << 31)) % (1 << 32) - (1 << 31)


@lru_cache(maxsize=64)
def steps_of(scale: float, zero_point: int, ties_away: bool = True) -> Steps | None:
    """The steps that quantise by `scale`, a float32 value; None where none are exact."""
    if not _SCALES[0] < scale < _SCALES[1]:
        return None
    x = edges(scale)
    wanted = quantize(x, scale=scale, zero_point=zero_point, ties_away=ties_away)
    found = (_steps(scale, zero_point, ties_away, more, x, wanted) for more in sorted(range(-3, 4), key=abs))
    return next((steps for steps in found if steps and np.array_equal(steps.apply(x), wanted)), None)


def _steps(
    scale: float, zero_point: int, ties_away: bool, more: int, x: NDArray[np.float32], wanted: NDArray[np.int8]
) -> Steps | None:
    """The constants with `more` added to the last bits of 1 / s: right for values `x` if any constants are."""
    bits = int(np.float32(scale).view(np.int32))
    significand = bits % (1 << MANTISSA) + (1 << MANTISSA)
    align = 2 * bits + ((_MOST + 2) << EXPONENT_SHIFT) - 1 - NUMBERS
    least = NUMBERS - 2 * (bits + ((_MOST + 1) << MANTISSA) - 1)
    multiplier = min((1 << 31) - 1, round(Fraction(1 << 31 + MANTISSA, significand)) + more)
    exponent, one, half = -2, 1 << MANTISSA + _FRACTION, 1 << _FRACTION - 1
    # a little more than 2**-_POINT, so that a half is rounded away from zero whatever its sign
    store = Requant(0, (1 << 30) + 1, 1 - _POINT, zero_point, contract="single")
    centre = int(_wrap(-256 * align + (1 << 31)))
    steps = Steps(least, int(_wrap(align)), centre, (multiplier, exponent), 0, 0, store)

    amount, mantissa = steps.parts(x)
    # what a line gives is shifted by `amount`, and then at least q - 1/2 and less than q + 1/2, where q is not clamped
    q, within = np.abs(wanted.astype(np.int64) - zero_point), (amount >= 0) & (np.abs(x) < 256 * scale)
    bounded = within & (q > 0), within & (np.abs(wanted + 0.5) < 127)
    low, high = ((2 * q + off) << (_POINT - 1) << np.clip(amount, 0, 31) for off in (-1, 1))
    steep = (x.view(np.int32) & (1 << MANTISSA) - 1) < significand - (1 << MANTISSA)
    first = Fraction((256 - (1 << 31)) * multiplier, 1 << 31 - exponent)  # of step 5, where g is 0
    above = 2 * one - Fraction(2 * one << MANTISSA, significand) + half - 2 * first
    below = np.floor(np.minimum(np.abs(x.astype(np.float64)) / scale, 256)).astype(np.int64)
    constants = list[list[tuple[int, int]]]()  # (lowest, highest) of either line above even steps, and above odd ones
    for slope, ideal, line in (1, one + half - first, ~steep), (2, above, steep):
        ends = list[tuple[int, int]]()
        for parity in (0, 1):
            mine = line & (ties_away | (below % 2 == parity))
            lowest = (low - slope * mantissa)[mine & bounded[0]].max(initial=round(ideal) - one)
            highest = (high - slope * mantissa)[mine & bounded[1]].min(initial=round(ideal) + one) - 1
            ends.append((int(lowest), int(highest)))
        constants.append(ends)
    ranges = [(odd[0] - even[1], odd[1] - even[0]) for even, odd in constants]  # of what odd ones need more
    least, most = max(low for low, _ in ranges), min(high for _, high in ranges)
    more = 0 if ties_away else (least + most) // 2
    shallow, second = (
        int(np.clip(round(ideal), max(even[0], odd[0] - more), min(even[1], odd[1] - more)))
        for (even, odd), ideal in zip(constants, (one + half - first, above))
    )
    return replace(steps, corner=shallow - second, base=int(_wrap(second)), more=more)


def edges(scale: float) -> NDArray[np.float32]:
    """float32 values on both sides of every magnitude at which the result changes, or an exponent; and the ends.

    Exponents are those of the value and of the quotient.
    """
    wide = np.float32(scale)
    bits = int(wide.view(np.int32))
    halves = ((np.arange(256, dtype=np.float32) + np.float32(0.5)) * wide).view(np.int32)  # or a number beside it
    exponents = [start + (np.arange(-4, _MOST + 4) << MANTISSA) for start in (bits, bits >> MANTISSA << MANTISSA)]
    near = np.concatenate([halves, *exponents])[:, None] + np.arange(-3, 4)
    ends = [0, 1, 1 << MANTISSA, (255 << MANTISSA) - 1, 255 << MANTISSA]
    x = np.concatenate([near.reshape(-1), ends]).astype(np.int32).view(np.float32)
    return np.concatenate([x, -x])


_TILE = 96  # entries: enough to hide the latency of an instruction, and few, as nothing hides the first load
_SLOTS = 2  # tiles of values in the first bank, which also has a tile of amounts and one of lines
_STORED = 3  # tiles in the second bank: one is stored, slowly, as the ALU reads its bank, and the next prepared
_LEFT = 8  # accumulators of a bank for constants, and for the largest number


def quantise_image(k: Kernel, op: g.QuantizeImage) -> None:
    """A float32 image as it lies in memory, tile by tile: `Steps`, value by value.

    The bits come as accumulators. Values wait in one bank and are quantised in the other one, so that the ALU reads two
    operands in one cycle; constants lie in the bank opposite to what they are combined with. The values of a tile are
    loaded while the one before it is quantised: a load of accumulators is written while the ALU leaves its bank alone,
    so the steps that need one bank only stand behind it. The largest number after step 2 tells whether a value was NaN.
    """
    k.need("overwrite", "requant", "rescale", batch=1)
    x, out = k.plain(op.x), k.plain(op.output)
    steps = steps_of(op.output.scale, op.output.zero_point, op.ties_away)
    if steps is None:
        raise Unfit(f"scale {op.output.scale:g}: no integers are exact for it")
    size = min(_TILE, x.size, (k.bank - _LEFT) // (_SLOTS + 2))
    one = k.constant(Mem.INP, "one", np.eye(1, k.cfg.block_in, dtype=np.int8)[:, None])[0]
    minus_two = k.matrices("minus_two", np.full((1, k.cfg.block_out, k.cfg.block_in), -2))[0]
    store, reciprocal, no_number = k.tile(Mem.PAR, par=3).parts(1)
    k.load(store, k.requant(steps.store))
    k.load(reciprocal, k.requant(Requant(0, *steps.reciprocal, 0, contract="single")))
    k.load(no_number, k.requant(Requant(-NUMBERS, 1 << 30, 1, 0, 0, 127)))
    values, wholes = (k.slots(size, Mem.ACC, *where) for where in ((_SLOTS, 0, k.bank), (_STORED, k.bank)))
    tile, left = {"entry": size}, {"number": _LEFT}
    amounts, lines, near = k.tiles(Mem.ACC, tile, tile, left, high=k.bank)
    far = k.tile(Mem.ACC, low=k.bank, **left)
    for place, numbers in (near, (NUMBERS, steps.least, steps.base)), (far, (steps.align, steps.centre, steps.corner)):
        lanes = np.repeat(np.array(numbers, np.int32)[:, None], k.cfg.block_out, 1)
        k.load(place[:3], k.known("numbers", lanes, number=3))
    numbers, least, base, largest = (near[n] for n in range(4))
    align, centre, corner = far[0], far[1], far[2]

    largest[...] = 0
    largest.maximum(numbers)
    lines[...] = 0
    lines.maximum(corner)
    tiles = [(part, values.next(**part.shape), wholes.next(**part.shape)) for part in x.parts(size)]
    k.load(tiles[0][1], tiles[0][0])
    tiles[0][2][...] = one @ minus_two
    for n, target in enumerate(out.parts(size)):
        (_, value, whole), following = tiles[n], tiles[n + 1 : n + 2]
        amount, line = amounts[: value.size], lines[: value.size]
        amount[...] = 0
        whole *= value  # steps 1 to 4
        whole += numbers
        largest.maximum(whole)
        whole.maximum(least)
        amount += whole
        amount += align
        for part, ahead, _ in following:
            k.load(ahead, part)
        whole *= -256  # step 5
        whole += centre
        whole.rescale(reciprocal)
        for _, _, ahead in following:
            ahead[...] = one @ minus_two
        amount >>= EXPONENT_SHIFT  # steps 6 to 10
        line.minimum(corner)  # never less: now it is the corner
        line.maximum(whole)
        whole += line
        whole += base
        if steps.more:
            line[...] = 0
            line += whole
            line >>= amount
            line <<= 31 - _POINT
            line >>= 31
            line *= -steps.more
            whole += line
            line.minimum(corner)
            line.maximum(corner)
        whole >>= amount
        value.maximum(-1)
        value.minimum(1)
        whole *= value
        k.store(target, whole, store)
    flags = k.rec.buffer(f"{op.name}.flags", (1, k.cfg.block_out), kind="output")
    k.rec.flags[op.name] = flags
    k.store(k.array(flags), largest, no_number)


def recode_image(k: Kernel, op: g.RecodeImage) -> None:
    """An image of uint8 values as it lies in memory, tile by tile: read as int8, their sums with 128 wrap to 8 bits."""
    k.need("acc8", batch=1)
    x, out = k.plain(op.x), k.plain(op.output)
    size = min(TILE, k.bank, -(-x.size // 4))
    ys = k.banks(size)
    for part, target in zip(x.parts(size), out.parts(size)):
        y = ys.load(part)
        y += 128
        k.store(target, y)
