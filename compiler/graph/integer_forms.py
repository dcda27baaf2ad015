"""Operators as the accelerator's integer operations, equal to their definition for every input.

A definition such as `operators.Add` fixes each rounding; a shorter chain of ALU operations saves cycles. int8 operands
have few values: a shorter chain is tried on all of them and used if no result differs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, singledispatch
from itertools import product
from typing import NamedTuple

import numpy as np

from ...hw import rounding
from ...hw.isa import AluOp
from ...hw.rounding import CONTRACTS, quantize_multiplier
from ...runtime.hostops.elementwise import add
from .elementwise import ADD_SHIFT, SQUARE_SHIFT, Add, Maximum, Minimum, Mul, Requantize, SquaredDifference
from .operators import Operator

_VALUES = np.arange(-128, 128)
_GRID = _VALUES[:, None], _VALUES[None, :]


@dataclass(frozen=True)
class Requant:
    """Parameters of a requantising store that are equal for all channels: the fields of a PAR entry."""

    bias: int
    multiplier: int
    exponent: int
    zero_point: int
    low: int = -128
    high: int = 127
    contract: str = "double"

    def apply(self, acc: np.ndarray) -> np.ndarray:
        """Requantise int32 accumulators to int8."""
        wrapped = ((acc + self.bias + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)
        args = self.multiplier, self.exponent, self.zero_point, self.low, self.high, self.contract
        return rounding.requantise(wrapped, *args)


UNCHANGED = Requant(0, 1 << 30, 1, 0)  # stores int8 values as they are


@dataclass(frozen=True)
class OperandForm:
    """Operations on an int8 operand in the accumulators: add `offset`, shift left by `shift`, RESCALE by `scale`.

    Zeros and None mean no operation. `scale` is (multiplier, exponent), contract double.
    """

    offset: int = 0
    shift: int = 0
    scale: tuple[int, int] | None = None

    @property
    def cost(self) -> int:
        """Estimated cycles per entry; RESCALE takes several."""
        return (self.offset != 0) + (self.shift != 0) + 2 * (self.scale is not None)

    def apply(self, x: np.ndarray) -> np.ndarray:
        """int64 values after the operations."""
        x = (x.astype(np.int64) + self.offset) << self.shift
        return x if self.scale is None else rounding.rescale(x, *self.scale)


@dataclass(frozen=True)
class Pair:
    """`store(x(a) OP y(b))`, or with `square` of its square; if `negated`, y is negated after its operations."""

    x: OperandForm
    y: OperandForm
    op: AluOp
    store: Requant
    negated: bool = False
    square: bool = False


class _Facts(NamedTuple):
    """Integers that determine the results of a sum or difference."""

    zero_points: tuple[int, ...]
    multipliers: tuple[tuple[int, int], ...]
    sign: int
    low: int
    high: int

    @classmethod
    def of(cls, op: Add) -> _Facts:
        """The integers of `op`."""
        return cls(tuple(t.zero_point for t in op.tensors), op.multipliers, op.sign, op.low, op.high)

    def results(self) -> np.ndarray:
        """int8 (256, 256): the results of all pairs of operands."""
        multipliers, exponents = zip(*self.multipliers)
        scales = {"zero_points": self.zero_points, "multipliers": multipliers, "exponents": exponents}
        x, y = (operand.astype(np.int8) for operand in _GRID)
        return add(x, y, **scales, sign=self.sign, shift=ADD_SHIFT, low=self.low, high=self.high)


@lru_cache(maxsize=256)
def _sum(facts: _Facts) -> Pair:
    zero_points, multipliers, sign, low, high = facts
    wanted = facts.results()
    sides = [list(_operands(zero_points[k], *multipliers[k])) for k in (0, 1)]
    pairs = sorted(product(*sides), key=lambda pair: pair[0][0].cost + pair[1][0].cost)
    forms = (
        Pair(x, y, AluOp.ADD, Requant(bias_x + sign * bias_y, *multipliers[2], zero_points[2], low, high), sign < 0)
        for (x, bias_x), (y, bias_y) in pairs
    )

    def exact(form: Pair) -> bool:
        return np.array_equal(form.store.apply(form.x.apply(_GRID[0]) + sign * form.y.apply(_GRID[1])), wanted)

    return next(form for form in forms if exact(form))  # the definition's own chain is the last


def _operands(zero_point: int, multiplier: int, exponent: int) -> Iterator[tuple[OperandForm, int]]:
    """(operations, their contribution to the bias of the sum) for `R((x - zero_point) << ADD_SHIFT)`, R <= 1/2."""
    if multiplier == 1 << 30 and -ADD_SHIFT < exponent <= 0:
        shift = ADD_SHIFT - 1 + exponent
        yield OperandForm(0, shift), -zero_point << shift
    if exponent >= -ADD_SHIFT:
        scale = multiplier, ADD_SHIFT + exponent
        yield OperandForm(scale=scale), int(rounding.rescale(-zero_point, *scale))
        yield OperandForm(-zero_point, scale=scale), 0
    yield OperandForm(-zero_point, ADD_SHIFT, (multiplier, exponent)), 0


@singledispatch
def pair_form(op: Operator) -> Pair:
    """The operations of an operator on two tensors, element by element."""
    raise TypeError(f"{type(op).__name__} has no form")


@pair_form.register
def sum_form(op: Add) -> Pair:
    """The cheapest chain found for a sum or difference that is exact for all 65,536 pairs of int8 operands."""
    return _sum(_Facts.of(op))


@pair_form.register
def _(op: Mul) -> Pair:
    x, y = (OperandForm(-t.zero_point) for t in op.inputs)
    store = Requant(0, *op.multipliers, op.output.zero_point, op.low, op.high, op.contract)
    return Pair(x, y, AluOp.MUL, store)


@pair_form.register
def _(op: SquaredDifference) -> Pair:
    first, second, (multiplier, exponent) = op.multipliers
    x, y = (_square_operand(t.zero_point, *scale) for t, scale in zip(op.inputs, (first, second)))
    store = Requant(0, multiplier, exponent, op.output.zero_point)
    return Pair(x, y, AluOp.ADD, store, negated=True, square=True)


@pair_form.register
def _(op: Maximum) -> Pair:
    return Pair(OperandForm(), OperandForm(), AluOp.MAX, UNCHANGED)


@pair_form.register
def _(op: Minimum) -> Pair:
    return Pair(OperandForm(), OperandForm(), AluOp.MIN, UNCHANGED)


def _square_operand(zero_point: int, multiplier: int, exponent: int) -> OperandForm:
    """`R((x - zero_point) << SQUARE_SHIFT)`, R <= 1/2: without rounding where R is a power of two."""
    if multiplier == 1 << 30 and -SQUARE_SHIFT < exponent <= 0:
        return OperandForm(-zero_point, SQUARE_SHIFT - 1 + exponent)
    return OperandForm(-zero_point, SQUARE_SHIFT, (multiplier, exponent))


@dataclass(frozen=True)
class WeightedSum:
    """`store(x * a + y * b)` for weights a and b given as digits to base 256, most significant first, in int8.

    So a multiplier array computes it: products with the first digits, a shift left by 8, products with the next.
    """

    x: tuple[int, ...]
    y: tuple[int, ...]
    store: Requant


_DIGITS = 3  # most digits for which a sum of two int8 operands is within int32
_MOST = {1: 127, 2: 127 * 257, 3: 127 * 65793}  # by digits, the largest weight
_FRACTION_DIGITS, _LARGEST = 2, _MOST[2]  # digits of the terms of a fraction, and the largest term


@lru_cache(maxsize=256)
def _weighted(facts: _Facts, scales: tuple[float, float, float]) -> WeightedSum | None:
    zero_points, clamp, wanted = facts.zero_points, (facts.low, facts.high), facts.results()
    for a, b, digits in _weights(scales):
        unit = max(scales[:2]) / max(a, b)  # real value of one step of a weight
        b *= facts.sign
        for contract in ("single", "double"):
            bias = -(a * zero_points[0] + b * zero_points[1])
            store = Requant(bias, *quantize_multiplier(unit / scales[2]), zero_points[2], *clamp, contract)
            sample = (slice(None, None, 9), slice(None, None, 7))  # enough pairs to refuse most weights
            total = a * _GRID[0] + b * _GRID[1]
            if not np.array_equal(store.apply(total[sample]), wanted[sample]):
                continue
            if np.array_equal(store.apply(total), wanted):
                return WeightedSum(_digits(a, digits), _digits(b, digits), store)
    return None


def _weights(scales: tuple[float, float, float]) -> Iterator[tuple[int, int, int]]:
    """(weight of x, weight of y, digits) that may be exact, in the order of the number of products.

    One weight, if possible of the larger scale, has a single digit that is not 0; the best fraction of two digits is an
    exception.
    """
    larger, smaller = max(scales[:2]), min(scales[:2])
    for digits in range(1, _DIGITS + 1):
        low = 8 * (digits - 1)
        if digits == _DIGITS:
            ratio = Fraction(smaller / larger).limit_denominator(_LARGEST)
            first, second = ratio.denominator, ratio.numerator
            a, b = (first, second) if scales[0] == larger else (second, first)
            yield a, b, _FRACTION_DIGITS
        units = [larger / (first << low) for first in range(64, 128)]
        if 1 < digits < _DIGITS:
            units += [smaller / (first << low) for first in range(127, 0, -1)]
        for unit in units:
            a, b = (round(scale / unit) for scale in scales[:2])
            if max(a, b) <= _MOST[digits] and _may_be_exact(scales, unit, digits):
                yield a, b, digits


def _may_be_exact(scales: tuple[float, float, float], unit: float, digits: int) -> bool:
    """True if rounded weights can be exact: the error of any sum is below 2**-14 output steps."""
    error = sum(abs(s / unit - round(s / unit)) for s in scales[:2])
    return error * 256 * unit / scales[2] < 2.0**-14 or digits == _DIGITS


def _digits(value: int, count: int) -> tuple[int, ...]:
    found = list[int]()
    for _ in range(count):
        digit = (value + 128 & 255) - 128
        found.append(digit)
        value = value - digit >> 8
    return tuple(reversed(found))


def weighted_form(op: Add) -> WeightedSum | None:
    """Weights of int8 digits that are exact for a sum or difference of all 65,536 pairs of operands.

    None if none are found.
    """
    return _weighted(_Facts.of(op), op.scales)


def rescaling_store(op: Requantize) -> Requant | None:
    """The store that rescales all 256 values as the operator does; None where none does, as with ties to even."""
    facts = -op.x.zero_point, *op.multipliers, op.output.zero_point, op.low, op.high
    stores = (Requant(*facts, contract) for contract in CONTRACTS)
    return next((store for store in stores if np.array_equal(store.apply(_VALUES), op.table)), None)


def mean_store(count: int, low: int = -128, high: int = 127, ties_up: bool = False) -> Requant:
    """The store that divides a sum of `count` int8 values, at most 2**16, by it, ties away from zero, and clamps.

    With `ties_up` the values are made positive first, so that ties away from zero go up.

    A multiplier a little above `2**k / count`, rounded once: the excess is too small to change a quotient
    that is not a tie, but rounds ties away from zero.
    """
    bits = (count - 1).bit_length()  # shift that brings the multiplier into [2**30, 2**31)
    above = 128 if ties_up else 0
    return Requant(above * count, (1 << 30 + bits) // count + 1, 1 - bits, -above, low, high, "single")
