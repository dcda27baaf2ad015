"""Element-wise operators on two int8 operands that broadcast, beside those of runtime/operators.py."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...hw import rounding


def maximum(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The larger value of each pair."""
    return np.maximum(x, y)


def minimum(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The smaller value of each pair."""
    return np.minimum(x, y)


def lookup_pair(x: np.ndarray, y: np.ndarray, *, table: np.ndarray) -> np.ndarray:
    """int8 `table[i, j]`, where `i` and `j` count from the smallest value of the type of `x` and of `y`; 256 * 256."""
    i, j = (v.astype(np.int64) + (128 if v.dtype == np.int8 else 0) for v in (x, y))
    return table[i, j]


def prelu(
    x: np.ndarray,
    alpha: np.ndarray,
    *,
    zero_points: Sequence[int],
    multipliers: Sequence[int],
    exponents: Sequence[int],
) -> np.ndarray:
    """int8 `clamp(z + R0(x - zx))` where x >= zx, else `clamp(z + R1((x - zx) * (alpha - za)))`, contract double.

    `zero_points` are those of x, alpha and the output.
    """
    d = x.astype(np.int64) - zero_points[0]
    product = d * (alpha.astype(np.int64) - zero_points[1])
    above, below = (rounding.rescale(v, multipliers[k], exponents[k]) for k, v in enumerate((d + 0 * product, product)))
    return np.clip(np.where(d >= 0, above, below) + zero_points[2], -128, 127).astype(np.int8)


def squared_difference(
    x: np.ndarray,
    y: np.ndarray,
    *,
    zero_points: Sequence[int],
    multipliers: Sequence[int],
    exponents: Sequence[int],
    shift: int,
) -> np.ndarray:
    """int8 `clamp(z + R2((R0((x - zx) << shift) - R1((y - zy) << shift)) ** 2))`, contract double."""
    first, second = (
        rounding.rescale((t.astype(np.int64) - zero_points[k]) << shift, multipliers[k], exponents[k])
        for k, t in enumerate((x, y))
    )
    return rounding.requantise((first - second) ** 2, multipliers[2], exponents[2], zero_points[2])
