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
    views = tap_views(pad_image(x.astype(np.float64) - x_zero_point, pads, 0.0), weight.shape[2:], strides, dilations)
    return _with_bias(tap_sums(views, weight.astype(np.float64), groups), bias)


def tap_views(
    x: np.ndarray, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int] = (1, 1)
) -> list[tuple[tuple[int, int], np.ndarray]]:
    """(row and column of a tap, the elements (..., H, W) that it meets) of a kernel that moves over `x`, row by row.

    These are views of `x`.
    """
    spans = [(n - (k - 1) * d - 1) // s * s + 1 for n, k, s, d in zip(x.shape[-2:], kernel, strides, dilations)]
    found = []
    for i, j in np.ndindex(*kernel):
        rows, columns = (slice(tap * d, tap * d + n, s) for tap, d, n, s in zip((i, j), dilations, spans, strides))
        found.append(((i, j), x[..., rows, columns]))
    return found


def tap_sums(
    views: list[tuple[tuple[int, int], np.ndarray]], weight: np.ndarray, groups: int, ordered: bool = False
) -> np.ndarray:
    """Sums (N, O, H, W) of weights (O, C / groups, KH, KW) times the views of `tap_views`, of the weights' dtype."""
    (n, _, oh, ow), (o, per_group, kh, kw) = views[0][1].shape, weight.shape
    taps = weight.reshape(groups, o // groups, per_group, kh, kw)
    sums = np.zeros((n, groups, o // groups, oh * ow), weight.dtype)
    for tap, view in views:
        sums = with_products(sums, taps[(..., *tap)], view.reshape(n, groups, per_group, oh * ow), ordered)
    return sums.reshape(n, o, oh, ow)


def with_products(sums: np.ndarray, taps: np.ndarray, seen: np.ndarray, ordered: bool) -> np.ndarray:
    """`sums + taps @ seen`, the products added one after the other if `ordered`."""
    if not ordered and taps.shape[-1] > 1:
        return sums + taps @ seen
    for k in range(taps.shape[-1]):
        sums = sums + taps[..., k, None] * seen[..., k, None, :]
    return sums


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
    for tap, place in tap_views(canvas, (kh, kw), strides):
        product = weight[(..., *tap)].astype(np.float64) @ centred.reshape(n, c, -1)
        place += product.reshape(place.shape)
    return _with_bias(cut_image(canvas, pads), bias)


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


def cut_image(x: np.ndarray, pads: Sequence[int]) -> np.ndarray:
    """NCHW `x` without `pads`, (top, left, bottom, right); zeros are added at the bottom or right where < 0."""
    top, left, bottom, right = pads
    x = pad_image(x, (0, 0, max(0, -bottom), max(0, -right)), 0.0)
    return x[:, :, top : x.shape[2] - max(0, bottom), left : x.shape[3] - max(0, right)]


def windows(x: np.ndarray, kernel: Sequence[int], strides: Sequence[int]) -> np.ndarray:
    """The windows (N, C, H, W, *kernel) of NCHW `x`: a view."""
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
    largest = windows(pad_image(x, pads, -128), kernel, strides).max((4, 5))
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
    acc = windows(x, kernel, strides).sum((4, 5), dtype=np.int64) - kernel[0] * kernel[1] * x_zero_point
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
        windows(pad_image(t, pads, 0), kernel, strides).sum((4, 5), dtype=np.int64)
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
