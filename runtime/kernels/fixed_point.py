"""Division, inverse roots and logarithms in the fixed-point arithmetic of TensorFlow Lite's integer kernels.

Numbers are int64 arrays of int32 values; Qa.b has b fractional bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...hw import rounding
from ...hw.rounding import divide_by_power, doubling_high_multiply
from ..softmax import reciprocal

_ONE, _LARGEST = 1 << 28, (1 << 31) - 1  # 1 in Q3.28
_HALF_THREE, _HALF_SQRT_2 = _ONE + _ONE // 2, 1518500250  # 3/2 in Q3.28, sqrt(2) / 2 in Q0.31


def _bits(x: np.ndarray) -> np.ndarray:
    """The number of bits of integers >= 0."""
    return np.frexp(x.astype(np.float64))[1].astype(np.int64)


def divide(
    x: np.ndarray,
    y: np.ndarray,
    *,
    zero_points: Sequence[int],
    multiplier: int,
    exponent: int,
    low: int = -128,
    high: int = 127,
) -> np.ndarray:
    """int8 `clamp(z + R((x - zx) / (y - zy)), low, high)`: a reciprocal in Q0.31, the quotient to 31 bits, then R.

    A quotient by 0 is the largest number of its sign.
    """
    a, b = np.broadcast_arrays(*(t.astype(np.int64) - zero_points[k] for k, t in enumerate((x, y))))
    a, b = np.where(b < 0, -a, a), np.abs(b)
    divisor = np.maximum(b, 1)
    headroom = 32 - _bits(divisor)
    inverse = reciprocal((divisor << headroom) - (1 << 31))
    spare = np.where(a >= 0, 31 - _bits(np.maximum(a, 0)), 31 - _bits(2 * np.maximum(-a, 1) - 1 >> 1))
    quotient = doubling_high_multiply(a << spare, inverse)
    shift = (31 - headroom) + spare - exponent
    scaled = divide_by_power(doubling_high_multiply(quotient, multiplier), np.clip(shift, 0, 62))
    scaled = np.where(b == 0, np.sign(a) << 16, scaled)
    return np.clip(scaled + zero_points[2], low, high).astype(np.int8)


def _power(x: np.ndarray, shift: int) -> np.ndarray:
    return np.clip(x << shift, -_LARGEST - 1, _LARGEST)


def inverse_root(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(multiplier, exponent) of 1 / sqrt(x) for integers x >= 0, by five steps of Newton's method; 1 stands for 0."""
    value, shift = np.maximum(x, 2), np.full(x.shape, 11, np.int64)
    while (large := value >= 1 << 29).any():
        value, shift = np.where(large, value // 4, value), shift + large
    pairs = (31 - _bits(value)) // 2 - 1
    value, shift = value << 2 * pairs, shift - pairs
    half = divide_by_power(value >> 1, 1)
    root = np.full(x.shape, _ONE, np.int64)
    for _ in range(5):
        cube = _power(doubling_high_multiply(doubling_high_multiply(root, root), root), 6)
        root = _power(doubling_high_multiply(_HALF_THREE, root) - doubling_high_multiply(half, cube), 3)
    root = doubling_high_multiply(root, _HALF_SQRT_2) << np.maximum(-shift, 0)
    trivial = x <= 1
    return np.where(trivial, _LARGEST, root), np.where(trivial, 0, -np.maximum(shift, 0))


def l2_normalize(x: np.ndarray, *, axis: int, x_zero_point: int, scaled_first: bool = False) -> np.ndarray:
    """int8 `(x - z) / sqrt(sum((x - z) ** 2))` along `axis`, with scale 1/128 and zero point 0.

    The quotient is rescaled with the 7 bits of the output's scale in the exponent; `scaled_first`, as in uint8 files,
    they multiply the difference.
    """
    d = x.astype(np.int64) - x_zero_point
    multiplier, exponent = inverse_root((d * d).sum(axis, keepdims=True))
    if scaled_first:
        quotient = divide_by_power(doubling_high_multiply(d << 7, multiplier), -exponent)
    else:
        quotient = rounding.rescale(d, multiplier, exponent + 7)
    return np.clip(quotient, -128, 127).astype(np.int8)
