"""TensorFlow Lite's reciprocal of a sum (runtime/softmax.py) on the accelerator, bit by bit.

Every lane has a sum of its own. A product of two computed values is a RESCALE whose multipliers are one of them
(scales.py). It rounds as `high_product` does, so that each step of Newton's method is the kernel's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

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
_NUMBERS = np.array([kernel.GUESS, 1 << 29, 1 << 30, (1 << 30) - 1])  # 48/17, 1, 2 and what is below it: Q2.29
NUMBERS = len(_NUMBERS)


class Constants(NamedTuple):
    """The number of the table of numbers of bits, parameters of the first guess, and accumulators with `_NUMBERS`."""

    bits: int
    slope: Tile
    numbers: Tile


def accumulators(count: int, cfg: Config) -> Extents:
    """Accumulators for the reciprocals of `count` groups of sums: their own, then those of `scales.Parameters`."""
    return [{"array": _ARRAYS, "group": count}, *scales.accumulators(count, cfg)]


def load_constants(k: Kernel, slope: Tile, numbers: Tile) -> Constants:
    """Load what reciprocals need: one entry of parameters, `NUMBERS` accumulators and a table."""
    k.load(slope, k.requant(Requant(0, -kernel.SLOPE, 0, 0), "slope"))
    values = np.broadcast_to(_NUMBERS[:, None, None], (NUMBERS, k.cfg.batch, k.cfg.block_out)).astype(np.int32)
    k.load(numbers, k.known("numbers", values))
    return Constants(k.table("bits", np.array([n.bit_length() for n in range(256)])), slope, numbers)


def inverse(found: Constants, at: scales.Parameters, sums: Tile, arrays: Tile) -> Iterator[None]:
    """Make the parameters that divide exponentials by `sums` (group): of STORE, to int8 with 8 more bits.

    `arrays` are the first tile of `accumulators`. Yields where it waits for DRAM.
    """
    half, shift, y, copy, other = (arrays[n] for n in range(_ARRAYS))
    guess, one, two, below_two = (found.numbers[n] for n in range(NUMBERS))
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
        at.set_planes(y)
        copy[...] = 0
        copy += half
        yield from at.make(scales.WORD)
        at.rescale(copy)
        copy *= -1
        copy += one
        at.rescale(copy)
        copy <<= 2
        y += copy
    arrays[3:] = 0
    at.planes[...] = 0
    # twice the reciprocal, at most 2**31 - 1
    y.minimum(two)
    copy += y
    copy.minimum(below_two)
    y += copy
    # The product has 12 integer bits of the sum and 31 - 8 more to lose: its exponent is -34 - shift, of six bits in
    # two's complement. The lowest one is the sign of the multiplier, and five are a plane.
    other += shift
    other <<= 31
    y += other
    exponent = at.planes[scales.WORD]
    exponent += shift
    exponent *= -1
    exponent += -34
    exponent >>= 1
    exponent += 32
    at.set_planes(y)
    yield from at.make(scales.PLANES)
