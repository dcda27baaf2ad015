"""Exponentials, quotients and roots in the fixed-point arithmetic of TensorFlow Lite's integer kernels.

Numbers are int64 arrays of int32 values, or with `bits` = 15 of int16 values; Qa.b has b fractional bits. Every
rounding is one of hw/rounding.py.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ...hw.rounding import divide_by_power, doubling_high_multiply
from .arrays import Int64

BITS = 31  # bits of an int32 value, besides the sign
_EXP_MINUS_EIGHTH, _THIRD = 1895147668, 715827883  # exp(-1/8) and 1/3 in Q0.31
# exp(-2**k) in Q0.31 for k = -2 .. 4
_POWERS = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
_QUARTER = -2  # first k of _POWERS
_LARGEST = 5  # integer bits of inputs that _POWERS cover completely
# 48/17 and -32/17 in Q2.29: the first guess of Newton's method for 1 / d, d in [1/2, 1)
GUESS, SLOPE = 1515870810, -1010580540
ACCUMULATION_BITS = 12  # integer bits of the sum of exponentials
_ONE = 1 << 28  # 1 in Q3.28
_HALF_THREE, _HALF_SQRT_2 = _ONE + _ONE // 2, 1518500250  # 3/2 in Q3.28, sqrt(2) / 2 in Q0.31


def high_product(a: Int64 | int, b: Int64 | int, bits: int = BITS) -> Int64:
    """`a * b / 2**bits` of values of `bits` besides the sign: to the nearest, ties up, below 2**bits."""
    return np.minimum((np.asarray(a, np.int64) * b + (1 << bits - 1)) >> bits, (1 << bits) - 1)


def shifted(x: Int64, exponent: int, bits: int = BITS) -> Int64:
    """`x * 2**exponent`: saturates to the left, rounds to the right."""
    if exponent < 0:
        return divide_by_power(x, -exponent)
    return np.clip(np.asarray(x, np.int64) << exponent, -(1 << bits), (1 << bits) - 1)


def _constant(value: int, bits: int) -> int:
    return int(divide_by_power(value, BITS - bits))


def exp(a: Int64, integer_bits: int = 5, bits: int = BITS) -> Int64:
    """exp(a) in Q0.`bits` of a <= 0 with `integer_bits`: a Taylor series within a quarter, times table entries."""
    fraction = bits - integer_bits
    quarter = 1 << fraction + _QUARTER
    rest = (a & (quarter - 1)) - quarter  # in [-1/4, 0)
    x = shifted(rest, integer_bits, bits) + (1 << bits - 3)  # moved to [-1/8, 1/8), in Q0
    x2 = high_product(x, x, bits)
    x3, x4 = high_product(x2, x, bits), high_product(x2, x2, bits)
    third, eighth = _constant(_THIRD, bits), _constant(_EXP_MINUS_EIGHTH, bits)
    tail = shifted(high_product(shifted(x4, -2) + x3, third, bits) + x2, -1)
    result = np.minimum(eighth + high_product(eighth, x + tail, bits), (1 << bits) - 1)
    for k, factor in zip(range(_QUARTER, integer_bits), _POWERS):
        smaller = high_product(result, _constant(factor, bits), bits)
        result = np.where((rest - a) & (1 << fraction + k), smaller, result)
    if integer_bits > _LARGEST:
        result = np.where(a < -(1 << fraction + _LARGEST), 0, result)
    return np.where(a == 0, (1 << bits) - 1, result)


def half_reciprocal(x: Int64, bits: int = BITS) -> Int64:
    """2 / (1 + x) with two integer bits, of x >= 0 in Q0.`bits`, by three steps of Newton's method."""
    half = (x + (1 << bits)) >> 1
    y = _constant(GUESS, bits) + high_product(half, _constant(SLOPE, bits), bits)
    for _ in range(3):
        error = (1 << bits - 2) - high_product(half, y, bits)
        y = y + shifted(high_product(y, error, bits), 2, bits)
    return y


def reciprocal(x: Int64, bits: int = BITS) -> Int64:
    """1 / (1 + x) in Q0.`bits` of x >= 0 in Q0.`bits`."""
    return shifted(half_reciprocal(x, bits), 1, bits)


@lru_cache(maxsize=64)
def exponentials(multiplier: int, exponent: int) -> tuple[Int64, Int64]:
    """(exp(-d) in Q0.31, the same in Q12.19) of the 256 differences d of two int8 values, int64, read-only.

    `multiplier` and `exponent` scale a difference to Q5.26. For an exponential below the last bit the second is 0 and
    the first -1, which no exponential is.
    """
    difference = -np.arange(256)
    counts = difference >= -((31 << 26) >> exponent)
    e = exp(high_product(np.where(counts, difference, 0) << exponent, multiplier))
    tables = np.where(counts, e, -1), np.where(counts, divide_by_power(e, ACCUMULATION_BITS), 0)
    for table in tables:
        table.flags.writeable = False
    return tables


@lru_cache(maxsize=64)
def numerators(multiplier: int, exponent: int, steps: float) -> tuple[Int64, int]:
    """(exponentials, read-only, bits): times a sum's reciprocal and 2**bits these are shares in `steps` steps.

    They are those of `exponentials` times `steps` / 2**bits, more than 1/2 and at most 1.
    """
    fraction, bits = np.frexp(steps)
    fraction, bits = (1.0, int(bits) - 1) if fraction == 0.5 else (float(fraction), int(bits))
    known, _ = exponentials(multiplier, exponent)
    table: Int64 = np.where(known >= 0, (known * round(fraction * (1 << BITS)) + (1 << BITS - 1)) >> BITS, -1)
    table.flags.writeable = False
    return table, bits


def bit_count(x: Int64) -> Int64:
    """The number of bits of integers >= 0."""
    return np.frexp(x.astype(np.float64))[1].astype(np.int64)


def inverse_root(x: Int64) -> tuple[Int64, Int64]:
    """(multiplier, exponent) of 1 / sqrt(x) for integers x >= 0, by five steps of Newton's method; 0 counts as 1."""
    value, shift = np.maximum(x, 2), np.full(x.shape, 11, np.int64)
    while (large := value >= 1 << 29).any():
        value, shift = np.where(large, value // 4, value), shift + large
    pairs = (31 - bit_count(value)) // 2 - 1
    value, shift = value << 2 * pairs, shift - pairs
    half = divide_by_power(value >> 1, 1)
    root = np.full(x.shape, _ONE, np.int64)
    for _ in range(5):
        cube = shifted(doubling_high_multiply(doubling_high_multiply(root, root), root), 6)
        root = shifted(doubling_high_multiply(_HALF_THREE, root) - doubling_high_multiply(half, cube), 3)
    root = doubling_high_multiply(root, _HALF_SQRT_2) << np.maximum(-shift, 0)
    trivial = x <= 1
    return np.where(trivial, (1 << BITS) - 1, root), np.where(trivial, 0, -np.maximum(shift, 0))
