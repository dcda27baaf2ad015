"""Operators of transformers on numpy arrays, in integers.

Arrays are positional arguments, attributes keyword arguments; `R` is the rounding of hw/rounding.py, contract double.
Positions are int32 (1,): the place of a token in its text, from 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...hw.errors import InputError
from ...hw.rounding import requantise

ROTATION_BITS = 14  # fraction of the cosines and sines of `rotate`
MEAN_BITS = 24  # fraction of the mean in `weighted_mean`: with that of int8 values, all of int32
UNIT_BITS = 15  # fraction of the elements of a row of length 1 in `rms_norm`
_ROOT_BITS = 8  # fraction of the square root in `rms_norm`


def batch_matmul(
    x: np.ndarray,
    y: np.ndarray,
    *,
    zero_points: Sequence[int],
    multiplier: int,
    exponent: int,
    transposed: bool = False,
    images: bool = False,
) -> np.ndarray:
    """int8 `clamp(zo + R(sum((x - zx) * (y - zy))))`: rows of `x` by columns of `y`, or with `transposed` by its rows.

    The dimensions before the last two broadcast. `zero_points` are those of x, y and the output. With `images` matrices
    are images of one row, (N, columns, 1, rows).
    """
    if images:
        x, y = (t[:, :, 0].swapaxes(1, 2) for t in (x, y))
    a, b = (t.astype(np.float64) - zero_points[k] for k, t in enumerate((x, y)))  # sums are exact below 2**53
    products = (a @ (b.swapaxes(-1, -2) if transposed else b)).astype(np.int64)
    result = requantise(products, multiplier, exponent, zero_points[2])
    return np.ascontiguousarray(result.swapaxes(1, 2)[:, :, None]) if images else result


def rms_norm(x: np.ndarray, *, gain: np.ndarray, multiplier: int, exponent: int) -> np.ndarray:
    """int8 `clamp(R(u * gain))`, u the last axis of `x` divided by its length as a vector, in Q0.15.

    `gain` is int16, one per element of the axis. A row of zeros stays one.
    """
    x = x.astype(np.int64)
    squares = (x * x).sum(-1, keepdims=True)
    root = np.maximum(_square_root(squares << 2 * _ROOT_BITS), 1)
    inverse = (np.int64(1) << 2 * UNIT_BITS + _ROOT_BITS) // root
    unit = (x * inverse + (1 << UNIT_BITS - 1)) >> UNIT_BITS
    return requantise(unit * gain, multiplier, exponent, 0)


def _square_root(x: np.ndarray) -> np.ndarray:
    """The largest integers whose squares are at most `x`, below 2**52."""
    found = np.sqrt(x.astype(np.float64)).astype(np.int64)
    found -= found * found > x
    return found + ((found + 1) * (found + 1) <= x)


def rotate(x: np.ndarray, position: np.ndarray, *, cosine: np.ndarray, sine: np.ndarray) -> np.ndarray:
    """int8 of `x` (..., D) with its pairs of neighbours turned by the angles of the position.

    `cosine` and `sine` are int16 (positions, D / 2) in Q1.14; the sum of two products is rounded once, ties up.
    """
    place = _place(position, 1, len(cosine), "the tables of angles")
    c, s = cosine[place].astype(np.int64), sine[place].astype(np.int64)
    even, odd = x[..., 0::2].astype(np.int64), x[..., 1::2].astype(np.int64)
    turned = np.stack([even * c - odd * s, even * s + odd * c], -1).reshape(x.shape)
    return np.clip((turned + (1 << ROTATION_BITS - 1)) >> ROTATION_BITS, -128, 127).astype(np.int8)


def write_rows(cache: np.ndarray, rows: np.ndarray, position: np.ndarray) -> np.ndarray:
    """`cache` (G, N, D) with `rows` (G, T, D) in the places of the position and those behind it."""
    place, result = _place(position, rows.shape[1], cache.shape[1], "the cache"), cache.copy()
    result[:, place : place + rows.shape[1]] = rows
    return result


def exponentials(x: np.ndarray, position: np.ndarray, *, table: np.ndarray) -> np.ndarray:
    """int8 `table[m - x]` of the last axis up to the position, m its maximum there; 0 behind the position.

    `table` is int8 (256,).
    """
    count = _place(position, 1, x.shape[-1], "the scores") + 1
    seen, result = x[..., :count].astype(np.int64), np.zeros(x.shape, np.int8)
    result[..., :count] = table[seen.max(-1, keepdims=True) - seen]
    return result


def weighted_mean(weights: np.ndarray, values: np.ndarray, *, multiplier: int, exponent: int) -> np.ndarray:
    """int8 (G, R, D) `clamp(R(m))` of weights >= 0 (G, R, N) and values (G, N, D), m their mean in Q7.24.

    m is `sum(w * v) / sum(w)`, rounded down; a row without weights gives 0.
    """
    sums = weights.astype(np.int64) @ values.astype(np.int64)
    total = np.maximum(weights.sum(-1, keepdims=True, dtype=np.int64), 1)
    return requantise((sums << MEAN_BITS) // total, multiplier, exponent, 0)


def _place(position: np.ndarray, count: int, size: int, what: str) -> int:
    place = int(position[0])
    if not 0 <= place <= size - count:
        raise InputError(f"position {place} is not in {what}, which end at {size - count}; reset the state")
    return place
