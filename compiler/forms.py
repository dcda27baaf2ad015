"""Operators as the accelerator's integer operations, equal to their definition for every input.

A definition such as `operators.Add` fixes each rounding; ALU operations cost time, so a shorter chain is worth having.
int8 operands have few values: a shorter chain is tried on all of them and taken where no result differs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np

from ..hw import rounding
from ..runtime import kernels
from .operators import ADD_SHIFT, Add

_VALUES = np.arange(-128, 128)


@dataclass(frozen=True)
class Requant:
    """What a requantising store does to accumulators, for all channels alike: the fields of a PAR entry."""

    bias: int
    multiplier: int
    exponent: int
    zero_point: int
    low: int = -128
    high: int = 127
    contract: str = "double"

    def apply(self, acc: np.ndarray) -> np.ndarray:
        """int8 values of int32 accumulators."""
        wrapped = ((acc + self.bias + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)
        args = self.multiplier, self.exponent, self.zero_point, self.low, self.high, self.contract
        return rounding.requantise(wrapped, *args)


@dataclass(frozen=True)
class Operand:
    """Operations on an int8 operand in the accumulators: add `offset`, shift left by `shift`, RESCALE by `scale`.

    Zeros and None are left out. `scale` is (multiplier, exponent), contract double.
    """

    offset: int = 0
    shift: int = 0
    scale: tuple[int, int] | None = None

    @property
    def cost(self) -> int:
        """Cycles per entry, of which RESCALE needs several."""
        return (self.offset != 0) + (self.shift != 0) + 2 * (self.scale is not None)

    def apply(self, x: np.ndarray) -> np.ndarray:
        """int64 values after the operations."""
        x = (x.astype(np.int64) + self.offset) << self.shift
        return x if self.scale is None else rounding.rescale(x, *self.scale)


@dataclass(frozen=True)
class Sum:
    """`store(x(a) + sign * y(b))`: the operations on each operand, and what the store does to their sum."""

    x: Operand
    y: Operand
    sign: int
    store: Requant


@lru_cache(maxsize=256)
def _sum(
    zero_points: tuple[int, int, int],
    multipliers: tuple[tuple[int, int], tuple[int, int], tuple[int, int]],
    sign: int,
    low: int,
    high: int,
) -> Sum:
    grid = _VALUES[:, None], _VALUES[None, :]
    m, e = zip(*multipliers)
    facts = {"zero_points": zero_points, "multipliers": m, "exponents": e, "sign": sign, "shift": ADD_SHIFT}
    wanted = kernels.add(*grid, **facts, low=low, high=high)
    sides = [list(_operands(zero_points[k], *multipliers[k])) for k in (0, 1)]
    for (x, bias_x), (y, bias_y) in sorted(product(*sides), key=lambda pair: pair[0][0].cost + pair[1][0].cost):
        store = Requant(bias_x + sign * bias_y, *multipliers[2], zero_points[2], low, high)
        if np.array_equal(store.apply(x.apply(grid[0]) + sign * y.apply(grid[1])), wanted):
            return Sum(x, y, sign, store)
    raise AssertionError("the chain of the definition itself is among those tried")


def _operands(zero_point: int, multiplier: int, exponent: int) -> Iterator[tuple[Operand, int]]:
    """(operations, what they leave for the bias of the sum) for `R((x - zero_point) << ADD_SHIFT)`, R <= 1/2."""
    if multiplier == 1 << 30 and -ADD_SHIFT < exponent <= 0:
        shift = ADD_SHIFT - 1 + exponent
        yield Operand(0, shift), -zero_point << shift
    if exponent >= -ADD_SHIFT:
        scale = multiplier, ADD_SHIFT + exponent
        yield Operand(scale=scale), int(rounding.rescale(-zero_point, *scale))
        yield Operand(-zero_point, scale=scale), 0
    yield Operand(-zero_point, ADD_SHIFT, (multiplier, exponent)), 0


def sum_form(op: Add) -> Sum:
    """The cheapest chain found for a sum or difference that gives its result for all 65,536 pairs of int8 operands."""
    x, y = op.inputs
    return _sum((x.zero_point, y.zero_point, op.output.zero_point), op.multipliers, op.sign, op.low, op.high)


def mean_store(count: int, low: int = -128, high: int = 127) -> Requant:
    """The store that divides a sum of `count` int8 values, at most 2**16, by it, ties away from zero, and clamps.

    A multiplier a little above `2**k / count`, rounded once: too small an excess to change a quotient that is no
    tie, but it takes ties to the side away from zero.
    """
    bits = (count - 1).bit_length()  # of what brings the multiplier into [2**30, 2**31)
    return Requant(0, (1 << 30 + bits) // count + 1, 1 - bits, 0, low, high, "single")
