"""int8 requantisation, declared once: the two rounding contracts and their parameters.

`acc * scale` is computed as an integer multiplication by `multiplier`, a 31-bit unsigned number, and a
power of two `exponent`, -32..31: scale = multiplier * 2 ** (exponent - 31). Contract `double` rounds twice (TensorFlow
Lite Micro, gemmlowp), contract `single` once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Ints = NDArray[np.int64]
CONTRACTS = ("double", "single")


def quantize_multiplier(scale: float) -> tuple[int, int]:
    """(multiplier, exponent) of a scale >= 0: the multiplier is 0 or in [2**30, 2**31).

    Scales below 2**-32 become 0; the largest is (2**31 - 1) * 2**-1.
    """
    if scale == 0:
        return 0, 0
    mantissa, exponent = np.frexp(np.float64(scale))
    multiplier, exponent = int(np.floor(mantissa * 2.0**31 + 0.5)), int(exponent)
    if multiplier == 1 << 31:
        multiplier, exponent = multiplier // 2, exponent + 1
    if exponent < -31:
        return 0, 0
    return (multiplier, exponent) if exponent <= 30 else ((1 << 31) - 1, 30)


def exact_multiplier(scale: float) -> tuple[int, int]:
    """(multiplier, exponent) of a scale below 2**30 that is a multiple of 2**-31, with an exponent of at least 0.

    Nothing is then shifted right after the multiplication, so that both contracts round once, and alike. Raises
    `ValueError` for other scales.
    """
    exponent = max(0, int(np.frexp(np.float64(scale))[1]))
    multiplier = float(np.ldexp(np.float64(scale), 31 - exponent))
    if not (0 <= scale < 2.0**30 and multiplier.is_integer()):
        raise ValueError(f"scale {scale!r}: must be a multiple of 2**-31 from 0 on and below 2**30")
    return int(multiplier), exponent


def doubling_high_multiply(a: ArrayLike, b: ArrayLike) -> Ints:
    """int64 `a * b / 2**31` of int32 values, to the nearest integer, ties up; saturates for a == b == -2**31."""
    product: Ints = np.asarray(a, np.int64) * np.asarray(b, np.int64)
    return np.minimum((product + (1 << 30)) >> 31, (1 << 31) - 1)


def divide_by_power(x: ArrayLike, exponent: ArrayLike) -> Ints:
    """int64 `x / 2**exponent`, exponent >= 0, to the nearest integer, ties away from zero."""
    values, shift = np.asarray(x, np.int64), np.asarray(exponent, np.int64)
    mask: Ints = np.left_shift(np.int64(1), shift) - 1
    return (values >> shift) + ((values & mask) > ((mask >> 1) + (values < 0)))


def _double(acc: Ints, multiplier: Ints, exponent: Ints) -> Ints:
    shifted = ((acc << np.maximum(exponent, 0)) + (1 << 31) & 0xFFFFFFFF) - (1 << 31)  # wraps at 32 bits
    high = doubling_high_multiply(shifted, multiplier)
    return divide_by_power(high, np.maximum(-exponent, 0))


def _single(acc: Ints, multiplier: Ints, exponent: Ints) -> Ints:
    right = 31 - exponent
    half: Ints = np.left_shift(np.int64(1), np.maximum(right - 1, 0)) * (right > 0)
    return (acc * multiplier + half) >> right


_FUNCTIONS = {"double": _double, "single": _single}


def rescale(
    acc: ArrayLike, multiplier: ArrayLike, exponent: ArrayLike, contract: str | NDArray[np.integer] = "double"
) -> Ints:
    """R(acc): `acc` (int32 values, any shape) times the scale, int64, in the named contract.

    `multiplier` and `exponent` broadcast against `acc`, and so does `contract` where it is an array of positions in
    `CONTRACTS`. Raises ValueError for an unknown contract.
    """
    args = [np.asarray(v, np.int64) for v in (acc, multiplier, exponent)]
    if isinstance(contract, str):
        if contract not in CONTRACTS:
            raise ValueError(f"contract {contract!r}: must be one of {', '.join(CONTRACTS)}")
        return _FUNCTIONS[contract](*args)
    used = np.unique(contract).tolist()
    if len(used) == 1:
        return _FUNCTIONS[CONTRACTS[used[0]]](*args)
    return np.choose(np.asarray(contract, np.intp), [_FUNCTIONS[name](*args) for name in CONTRACTS])


def requantise(
    acc: ArrayLike,
    multiplier: ArrayLike,
    exponent: ArrayLike,
    zero_point: ArrayLike,
    low: ArrayLike = -128,
    high: ArrayLike = 127,
    contract: str | NDArray[np.integer] = "double",
) -> NDArray[np.int8]:
    """int8 values `min(max(zero_point + R(acc), low), high)`; every parameter broadcasts against `acc`."""
    scaled = rescale(acc, multiplier, exponent, contract) + np.asarray(zero_point, np.int64)
    clipped: Ints = np.minimum(np.maximum(scaled, low), high)
    return clipped.astype(np.int8)
