"""Softmax in the fixed-point arithmetic of TensorFlow Lite's int8 kernel.

Numbers are int64 arrays of int32 values; Qa.b has b fractional bits. Every rounding is one of hw/rounding.py.
"""

from __future__ import annotations

import numpy as np

from ..hw.rounding import divide_by_power, doubling_high_multiply

ONE = (1 << 31) - 1  # the largest number of Q0.31 stands for 1
_EXP_MINUS_EIGHTH, _THIRD = 1895147668, 715827883  # exp(-1/8) and 1/3 in Q0.31
# exp(-2**k) in Q0.31 for k = -2 .. 4
_POWERS = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
# 48/17 and -32/17 in Q2.29: the first guess of Newton's method for 1 / d, d in [1/2, 1)
_GUESS, _SLOPE = 1515870810, -1010580540
_ACCUMULATION_BITS = 12  # integer bits of the sum of exponentials


def _scale(x: np.ndarray, exponent: int) -> np.ndarray:
    """`x * 2**exponent`: saturates to the left, rounds to the right."""
    if exponent < 0:
        return divide_by_power(x, -exponent)
    return np.clip(np.asarray(x, np.int64) << exponent, -(1 << 31), ONE)


def exp(a: np.ndarray) -> np.ndarray:
    """exp(a) in Q0.31 of a <= 0 in Q5.26: a Taylor series within a quarter, times table entries."""
    quarter = 1 << 24
    rest = (a & (quarter - 1)) - quarter  # in [-1/4, 0)
    x = _scale(rest, 5) + (1 << 28)  # moved to [-1/8, 1/8), in Q0.31
    x2 = doubling_high_multiply(x, x)
    x3, x4 = doubling_high_multiply(x2, x), doubling_high_multiply(x2, x2)
    tail = _scale(doubling_high_multiply(_scale(x4, -2) + x3, _THIRD) + x2, -1)
    result = _EXP_MINUS_EIGHTH + doubling_high_multiply(_EXP_MINUS_EIGHTH, x + tail)
    for bit, factor in enumerate(_POWERS, 24):
        result = np.where((rest - a) & (1 << bit), doubling_high_multiply(result, factor), result)
    return np.where(a == 0, ONE, result)


def reciprocal(x: np.ndarray) -> np.ndarray:
    """1 / (1 + x) in Q0.31 of x >= 0 in Q0.31, by three steps of Newton's method."""
    half = (x + (1 << 31)) >> 1
    y = _GUESS + doubling_high_multiply(half, _SLOPE)
    for _ in range(3):
        y = y + _scale(doubling_high_multiply(y, (1 << 29) - doubling_high_multiply(half, y)), 2)
    return _scale(y, 1)


def softmax(x: np.ndarray, *, axis: int, multiplier: int, exponent: int) -> np.ndarray:
    """int8 softmax of int8 `x` along `axis`, with scale 1/256 and zero point -128.

    `multiplier` and `exponent` scale a difference of two values to Q5.26. Differences whose exponential is below the
    last bit count as minus infinity.
    """
    rows = np.moveaxis(x, axis, -1).astype(np.int64)
    difference = rows - rows.max(-1, keepdims=True)
    counts = difference >= -((31 << 26) >> exponent)
    e = exp(doubling_high_multiply(np.where(counts, difference, 0) << exponent, multiplier))
    total = np.where(counts, divide_by_power(e, _ACCUMULATION_BITS), 0).sum(-1, keepdims=True)
    headroom = 32 - np.frexp(total.astype(np.float64))[1].astype(np.int64)
    inverse = reciprocal((total << headroom) - (1 << 31))
    # the sum has _ACCUMULATION_BITS integer bits, the result eight bits after the point
    q = divide_by_power(doubling_high_multiply(inverse, e), _ACCUMULATION_BITS + 31 - 8 - headroom)
    result = np.where(counts, np.clip(q - 128, -128, 127), -128).astype(np.int8)
    return np.ascontiguousarray(np.moveaxis(result, -1, axis))
