"""Quantised operators on numpy arrays: the arithmetic of host steps and of the reference interpreter.

Arrays are positional arguments, attributes keyword arguments. Activations are int8, NCHW or (N, features); `R` is the
rounding of hw/rounding.py with (multiplier, exponent). Element-wise operators take any shape.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..hw import rounding


def requantise(
    acc: np.ndarray,
    *,
    multiplier: np.ndarray,
    exponent: np.ndarray,
    zero_point: int,
    low: int = -128,
    high: int = 127,
    contract: str = "double",
) -> np.ndarray:
    """int8 `clamp(zero_point + R(acc), low, high)`; multiplier and exponent per channel (dimension 1)."""
    channels = (-1,) + (1,) * (acc.ndim - 2)
    m, e = multiplier.reshape(channels), exponent.reshape(channels)
    return rounding.requantise(acc, m, e, zero_point, low, high, contract)


def conv2d_accumulators(
    x: np.ndarray,
    *,
    weight: np.ndarray,
    bias: np.ndarray,
    x_zero_point: int,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    groups: int,
) -> np.ndarray:
    """int32 `bias + sum((x - x_zero_point) * weight)` of a convolution, weights (O, C / groups, KH, KW), wrapping."""
    # sums of int8 products stay below 2**53, so float64 products are exact
    padded = pad_image(x.astype(np.float64) - x_zero_point, pads, 0.0)
    n, c, height, width = padded.shape
    o, per_group, kh, kw = weight.shape
    reach = [(k - 1) * d + 1 for k, d in zip((kh, kw), dilations)]
    oh, ow = ((size - r) // s + 1 for size, r, s in zip((height, width), reach, strides))
    taps = weight.reshape(groups, o // groups, per_group, kh, kw).astype(np.float64)
    sums = np.zeros((n, groups, o // groups, oh * ow))
    for i, j in np.ndindex(kh, kw):
        top, left = i * dilations[0], j * dilations[1]
        seen = padded[:, :, top : top + (oh - 1) * strides[0] + 1 : strides[0]]
        seen = seen[..., left : left + (ow - 1) * strides[1] + 1 : strides[1]].reshape(n, groups, per_group, oh * ow)
        sums += taps[..., i, j] * seen if per_group == 1 else taps[..., i, j] @ seen
    return _with_bias(sums.reshape(n, o, oh, ow), bias)


def _with_bias(sums: np.ndarray, bias: np.ndarray) -> np.ndarray:
    channels = bias.reshape((-1,) + (1,) * (sums.ndim - 2))
    return (sums.astype(np.int64) + channels).astype(np.int32)


def conv_transpose2d_accumulators(
    x: np.ndarray,
    *,
    weight: np.ndarray,
    bias: np.ndarray,
    x_zero_point: int,
    strides: Sequence[int],
    pads: Sequence[int],
) -> np.ndarray:
    """int32 accumulators of a transposed convolution, weights (O, C, KH, KW); `pads` is cut off, or added if < 0."""
    centred = x.astype(np.float64) - x_zero_point
    n, c, height, width = x.shape
    o, _, kh, kw = weight.shape
    canvas = np.zeros((n, o, (height - 1) * strides[0] + kh, (width - 1) * strides[1] + kw))
    for i, j in np.ndindex(kh, kw):
        product = weight[:, :, i, j].astype(np.float64) @ centred.reshape(n, c, -1)
        rows = slice(i, i + (height - 1) * strides[0] + 1, strides[0])
        columns = slice(j, j + (width - 1) * strides[1] + 1, strides[1])
        canvas[:, :, rows, columns] += product.reshape(n, o, height, width)
    top, left, bottom, right = pads
    canvas = pad_image(canvas, (0, 0, max(0, -bottom), max(0, -right)), 0.0)
    canvas = canvas[:, :, top : canvas.shape[2] - max(0, bottom), left : canvas.shape[3] - max(0, right)]
    return _with_bias(canvas, bias)


def dense_accumulators(x: np.ndarray, *, weight: np.ndarray, bias: np.ndarray, x_zero_point: int) -> np.ndarray:
    """int32 `bias + (x - x_zero_point) @ weight.T`, wrapping."""
    return _with_bias((x.astype(np.float64) - x_zero_point) @ weight.T.astype(np.float64), bias)


def rescale(
    x: np.ndarray,
    *,
    x_zero_point: int,
    zero_point: int,
    multiplier: int,
    exponent: int,
    low: int = -128,
    high: int = 127,
) -> np.ndarray:
    """int8 `clamp(zero_point + R(x - x_zero_point), low, high)` of int8 `x`, contract double."""
    return rounding.requantise(x.astype(np.int64) - x_zero_point, multiplier, exponent, zero_point, low, high)


def add(
    x: np.ndarray,
    y: np.ndarray,
    *,
    zero_points: Sequence[int],
    multipliers: Sequence[int],
    exponents: Sequence[int],
    sign: int,
    shift: int,
    low: int = -128,
    high: int = 127,
) -> np.ndarray:
    """int8 `clamp(z + R2(R0((x - zx) << shift) + sign * R1((y - zy) << shift)), low, high)`, contract double.

    `zero_points`, `multipliers` and `exponents` are those of x, y and the output.
    """
    first, second = (
        rounding.rescale((t.astype(np.int64) - zero_points[k]) << shift, multipliers[k], exponents[k])
        for k, t in enumerate((x, y))
    )
    return rounding.requantise(first + sign * second, multipliers[2], exponents[2], zero_points[2], low, high)


def multiply(
    x: np.ndarray,
    y: np.ndarray,
    *,
    zero_points: Sequence[int],
    multiplier: int,
    exponent: int,
    low: int = -128,
    high: int = 127,
) -> np.ndarray:
    """int8 `clamp(z + R((x - zx) * (y - zy)), low, high)`, contract double; zero points of x, y and the output."""
    product = (x.astype(np.int64) - zero_points[0]) * (y.astype(np.int64) - zero_points[1])
    return rounding.requantise(product, multiplier, exponent, zero_points[2], low, high)


def lookup(x: np.ndarray, *, table: np.ndarray) -> np.ndarray:
    """int8 `table[x + 128]`; the table has 256 entries."""
    return table[x.astype(np.int64) + 128]


def pad_image(x: np.ndarray, pads: Sequence[int], value: float) -> np.ndarray:
    """NCHW `x` with `value` around it; `pads` is (top, left, bottom, right)."""
    top, left, bottom, right = pads
    return np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=value) if any(pads) else x


def _windows(x: np.ndarray, kernel: Sequence[int], strides: Sequence[int]) -> np.ndarray:
    view = np.lib.stride_tricks.sliding_window_view(x, tuple(kernel), (2, 3))
    return view[:, :, :: strides[0], :: strides[1]]


def max_pool(
    x: np.ndarray,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    low: int = -128,
    high: int = 127,
) -> np.ndarray:
    """The largest element of each window of NCHW `x`, clamped to `low`..`high`, int8."""
    largest = _windows(pad_image(x, pads, -128), kernel, strides).max((4, 5))
    return np.clip(largest, low, high).astype(np.int8)


def average_pool(
    x: np.ndarray,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    x_zero_point: int,
    zero_point: int,
    multiplier: int,
    exponent: int,
    low: int = -128,
    high: int = 127,
    contract: str = "double",
) -> np.ndarray:
    """int8 `clamp(zero_point + R(sum(x - x_zero_point)), low, high)` over each window of NCHW `x`."""
    acc = _windows(x, kernel, strides).sum((4, 5), dtype=np.int64) - kernel[0] * kernel[1] * x_zero_point
    return rounding.requantise(acc, multiplier, exponent, zero_point, low, high, contract)


def exact_average_pool(
    x: np.ndarray,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    low: int = -128,
    high: int = 127,
    ties_up: bool = False,
) -> np.ndarray:
    """int8 `sum(x) / n` over each window of NCHW `x`, ties away from zero or up; padding does not count."""
    total, count = (
        _windows(pad_image(t, pads, 0), kernel, strides).sum((4, 5), dtype=np.int64)
        for t in (x, np.ones_like(x[:1, :1]))
    )
    rounded = np.where((total > 0) | ties_up, (total + count // 2) // count, -((count // 2 - total) // count))
    return np.clip(rounded, low, high).astype(np.int8)


def mean(
    x: np.ndarray,
    *,
    axes: Sequence[int],
    shape: Sequence[int],
    x_zero_point: int,
    zero_point: int,
    multiplier: int,
    exponent: int,
) -> np.ndarray:
    """int8 `clamp(zero_point + R(sum(x - x_zero_point)))` over `axes`, contract double; the result has `shape`."""
    total = (x.astype(np.int64) - x_zero_point).sum(tuple(axes))
    return rounding.requantise(total, multiplier, exponent, zero_point).reshape(shape)
