"""Operators of Deeploy's dialect of ONNX on numpy arrays: integers alone, no scales.

Arrays are positional arguments, attributes keyword arguments. Sums and products beyond int8 are int32 and wrap; what
happens inside an operator is exact. Divisions of integers round down where nothing else is said.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...hw.rounding import requantise

MOST_SHIFT = 31  # of an exponential in `integer_softmax`


def lanes(x: np.ndarray, *, block: int, shape: Sequence[int]) -> np.ndarray:
    """The image (1, C, H, W) of rows (H, C * W), or these of it: of each `block` channels column by column.

    In rows C is the next multiple of `block`; the elements of channels that the image does not have are 0.
    """
    if len(shape) == 2:
        _, channels, height, columns = x.shape
        whole = np.pad(x[0], ((0, -channels % block), (0, 0), (0, 0)))
        return whole.reshape(-1, block, height, columns).transpose(2, 0, 3, 1).reshape(shape)
    _, channels, height, columns = shape
    image = x.reshape(height, -1, columns, block).transpose(1, 3, 0, 2).reshape(1, -1, height, columns)
    return image[:, :channels]


def integer_matmul(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """int32 sums of products: rows of `x` by columns of `y`; dimensions before the last two broadcast."""
    if x.dtype == y.dtype == np.int8:  # whose sums float64 has exactly, and faster
        return (x.astype(np.float64) @ y.astype(np.float64)).astype(np.int64).astype(np.int32)
    return (x.astype(np.int64) @ y.astype(np.int64)).astype(np.int32)


def requant_shift(
    x: np.ndarray,
    factor: np.ndarray,
    offset: np.ndarray,
    *,
    shift: int,
    low: int,
    high: int,
    zero_point: int = 0,
    dtype: str = "int8",
) -> np.ndarray:
    """`clamp((x * factor + offset + half) >> shift, low, high) + zero_point`, half of `1 << shift`."""
    half = (1 << shift) >> 1
    values = (x.astype(np.int64) * factor + offset + half) >> shift
    return (np.clip(values, low, high) + zero_point).astype(dtype)


def integer_softmax(
    x: np.ndarray,
    *,
    quadratic: int,
    linear: int,
    constant: int,
    period: int,
    levels: int,
    multiplier: int,
    exponent: int,
    zero_point: int = 0,
    low: int = -128,
    high: int = 127,
) -> np.ndarray:
    """int8 `clamp(zero_point + R(e * (levels - 1) // sum(e)), low, high)` along the last axis.

    e are the `exponentials` of x less the largest x. An axis whose exponentials are all 0 gives 0.
    """
    values = x.astype(np.int64)
    found = exponentials(values - values.max(-1, keepdims=True), quadratic, linear, constant, period)
    total = found.sum(-1, keepdims=True)
    shares = np.where(total == 0, 0, found * (levels - 1) // np.where(total == 0, 1, total))
    return requantise(shares, multiplier, exponent, zero_point, low, high)


def exponentials(below: np.ndarray, quadratic: int, linear: int, constant: int, period: int) -> np.ndarray:
    """int64 exponentials of `below`, 0 or less: a parabola, halved for every period.

    With z = -below // period, at most 31, they are
    `(quadratic * (below + z * period + linear) ** 2 + constant) >> z`.
    """
    halvings = np.clip(-below // period, 0, MOST_SHIFT)
    return (quadratic * (below + halvings * period + linear) ** 2 + constant) >> halvings


def integer_norm(
    x: np.ndarray,
    weight: np.ndarray,
    *biases: np.ndarray,
    shift: int,
    low: int = -128,
    high: int = 127,
    x_zero_point: int = 0,
) -> np.ndarray:
    """int8 `clamp((c * weight / root + bias) >> shift, low, high)` along the last axis of n elements.

    root is the integer square root of `sum(c * c) // n + 1`. Without a bias c is `x - x_zero_point`; with one its mean
    is subtracted, and the mean and the quotient are truncated toward zero.
    """
    centred = x.astype(np.int64) - x_zero_point
    count = x.shape[-1]
    if biases:
        centred = centred - _truncated(centred.sum(-1, keepdims=True), np.int64(count))
    root = _root((centred * centred).sum(-1, keepdims=True) // count + 1)
    quotient = _truncated(centred * weight.astype(np.int64), root)
    for bias in biases:
        quotient = quotient + bias
    return np.clip(quotient >> shift, low, high).astype(np.int8)


def _truncated(x: np.ndarray, divisor: np.ndarray | np.int64) -> np.ndarray:
    """`x / divisor` for a divisor above 0, truncated toward zero."""
    return np.sign(x) * (np.abs(x) // divisor)


def _root(x: np.ndarray) -> np.ndarray:
    """The largest integers whose squares are at most `x`, below 2**52."""
    found = np.sqrt(x.astype(np.float64)).astype(np.int64)
    found -= found * found > x
    return found + ((found + 1) * (found + 1) <= x)
