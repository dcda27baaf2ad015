"""TensorFlow Lite's reciprocal of a sum (runtime/softmax.py) on the accelerator, bit by bit.

Every lane has a sum of its own. A product of two computed values is a RESCALE whose multipliers are one of them
(scales.py). It rounds as `high_product` does, so that each step of Newton's method is the kernel's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ...hw.config import Config
from ...runtime import softmax as kernel
from ..graph.integer_forms import Requant
from . import scales
from .language import Extents, Kernel, Tile

LEAST_BITS, MOST_BITS = 20, 29  # of a sum: the largest value adds 2**19, and with the exponent's limit
LARGEST = 1 << MOST_BITS  # sums are below
STEPS = 3  # of Newton's method
_ARRAYS = 5  # of accumulators: half the sum, its shift, the reciprocal and two copies
_GUESS, _ONE, _TWO = kernel.GUESS, 1 << 29, 1 << 30  # 48/17, 1 and 2 with two integer bits
_NUMBERS = np.array([_GUESS, _ONE, _TWO, _TWO - 1])
NUMBERS = len(_NUMBERS)


@dataclass(frozen=True)
class Constants:
    """The number of the table of numbers of bits, parameters of the first guess, `NUMBERS`, what makes parameters."""

    bits: int
    slope: Tile
    numbers: Tile
    bytes: scales.Bytes


def accumulators(count: int, cfg: Config) -> Extents:
    """Accumulators for the reciprocals of `count` groups of sums."""
    return [{"array": _ARRAYS, "group": count}, *scales.accumulators(count, cfg)]


def load_constants(k: Kernel, made: scales.Bytes, slope: Tile, numbers: Tile) -> Constants:
    """Load what reciprocals need: one entry of parameters, `NUMBERS` accumulators and a table.

    `made` makes the parameters of stores to zero point -128.
    """
    k.load(slope, k.requant(Requant(0, -kernel.SLOPE, 0, 0), "slope"))
    values = np.broadcast_to(_NUMBERS[:, None, None], (NUMBERS, k.cfg.batch, k.cfg.block_out)).astype(np.int32)
    k.load(numbers, k.known("numbers", values))
    bits = k.table("bits", np.array([n.bit_length() for n in range(256)]))
    return Constants(bits, slope, numbers, made)


def inverse(k: Kernel, found: Constants, at: scales.Places, sums: Tile, arrays: Tile) -> Iterator[None]:
    """Make the parameters that divide exponentials by `sums` (group): of STORE, to int8 with 8 more bits.

    `arrays` are the first tile of `accumulators`. Yields where it waits for DRAM.
    """
    half, shift, y, copy, other = (arrays[n] for n in range(_ARRAYS))
    guess, one = found.numbers[0], found.numbers[1]
    # the sum has 20 + min(sum >> 20, 1) + bits(sum >> 21) bits; shifted left, it has 31
    arrays[...] = 0
    arrays[:3] += sums
    shift >>= LEAST_BITS
    y >>= LEAST_BITS + 1
    shift.minimum(1)
    y += -128
    y.lookup(found.bits)
    shift += LEAST_BITS - kernel.BITS
    shift += y
    half >>= shift
    y[...] = 0
    y += half
    y *= -1
    y.rescale(found.slope)
    y += guess
    for _ in range(STEPS):
        at.planes[: scales.WORD] = 0
        scales.set_planes(at, y)
        copy[...] = 0
        copy += half
        yield from scales.make_parameters(k, at, found.bytes, scales.WORD)
        scales.rescale(at, copy)
        copy *= -1
        copy += one
        scales.rescale(at, copy)
        copy <<= 2
        y += copy
    arrays[3:] = 0
    at.planes[...] = 0
    _double(y, copy, found.numbers)
    _exponent(at.planes[scales.WORD], shift, y, other)
    scales.set_planes(at, y)
    yield from scales.make_parameters(k, at, found.bytes, scales.PLANES)


def _double(y: Tile, copy: Tile, numbers: Tile) -> None:
    """Double the reciprocals, saturating at 2**31 - 1; `copy` are zeros."""
    y.minimum(numbers[2])
    copy += y
    copy.minimum(numbers[3])
    y += copy


def _exponent(plane: Tile, shift: Tile, y: Tile, zeros: Tile) -> None:
    """The exponent of `shift`, which is that of the sum less 31: its lowest bit in the sign of `y`, the rest a plane.

    The product has 12 integer bits of the sum and 31 - 8 more to lose: the exponent is -34 - shift.
    """
    plane += shift
    zeros += shift
    zeros <<= 31
    y += zeros
    plane *= -1
    plane += -34
    plane >>= 1
    plane += 32  # six bits in two's complement, of which five are here
