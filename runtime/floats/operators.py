"""float32 operators on numpy arrays. Arrays are positional arguments, attributes keyword arguments; images are NCHW."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..kernels.numbers import exponential
from ..operators import cut_image, pad_image, tap_sums, tap_views, windows, with_products
from . import functions


def float_function(x: np.ndarray, *, function: str, alpha: float = 0.0, beta: float = 0.0) -> np.ndarray:
    """A function of each value; `alpha` and `beta` are its parameters, of Clip the bounds."""
    return functions.unary(x, function, alpha, beta)


def float_binary(x: np.ndarray, y: np.ndarray, *, function: str) -> np.ndarray:
    """A function of two arrays that broadcast."""
    return functions.binary(x, y, function)


def float_reduce(x: np.ndarray, *, function: str, axes: Sequence[int], shape: Sequence[int]) -> np.ndarray:
    """A reduction over `axes`; the result has `shape`."""
    return functions.reduced(x, function, tuple(axes)).reshape(shape)


def float_softmax(x: np.ndarray, *, axis: int, logarithm: bool = False) -> np.ndarray:
    """`exp(x) / sum(exp(x))` along `axis`, or its logarithm; exponentials are added in order."""
    with np.errstate(all="ignore"):
        shifted = x - x.max(axis, keepdims=True)
        powers = exponential(shifted)
        total = np.take(np.cumsum(powers, axis, dtype=np.float32), [-1], axis)
        return shifted - np.log(total.astype(np.float64)).astype(np.float32) if logarithm else powers / total


def float_matmul(x: np.ndarray, y: np.ndarray, *, ordered: bool = False) -> np.ndarray:
    """Matrix products over the last two dimensions; those before them broadcast.

    Products are added in numpy's order, or `ordered`, one after the other.
    """
    with np.errstate(all="ignore"):
        if not ordered:
            return x @ y
        total = np.zeros(np.broadcast_shapes(x[..., :1].shape, y[..., :1, :].shape), np.float32)
        for k in range(x.shape[-1]):
            total += x[..., k : k + 1] * y[..., k : k + 1, :]
        return total


def float_lstm(
    x: np.ndarray, *, weight: np.ndarray, recurrence: np.ndarray, bias: np.ndarray, reverse: bool = False
) -> np.ndarray:
    """The hidden values (steps, n, hidden) of an LSTM on `x` (steps, n, features), from zeros on, or backwards.

    `weight` (4 * hidden, features), `recurrence` (4 * hidden, hidden) and `bias` hold input, output, forget and cell
    gates in this order.
    """
    count, hidden = len(x), recurrence.shape[1]
    found = np.zeros((*x.shape[:2], hidden), np.float32)
    with np.errstate(all="ignore"):
        gates = x @ weight.T + bias
        h = c = np.zeros(found.shape[1:], np.float32)
        for step in reversed(range(count)) if reverse else range(count):
            now = gates[step] + h @ recurrence.T
            i, o, f = (functions.unary(now[:, k * hidden : (k + 1) * hidden], "Sigmoid") for k in range(3))
            c = f * c + i * np.tanh(now[:, 3 * hidden :])
            found[step] = h = o * np.tanh(c)
    return found


def float_conv2d(
    x: np.ndarray,
    *,
    weight: np.ndarray,
    bias: np.ndarray,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    groups: int,
    ordered: bool = False,
) -> np.ndarray:
    """Convolution, weights (O, C / groups, KH, KW); `pads` is (top, left, bottom, right).

    Products are added by rows, columns and channels of the kernel, the channels in numpy's order, or `ordered`.
    """
    views = tap_views(pad_image(x, pads, 0.0), weight.shape[2:], strides, dilations)
    with np.errstate(all="ignore"):
        return tap_sums(views, weight, groups, ordered) + bias.reshape(-1, 1, 1)


def float_conv_transpose2d(
    x: np.ndarray,
    *,
    weight: np.ndarray,
    bias: np.ndarray,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    groups: int,
    ordered: bool = False,
) -> np.ndarray:
    """Transposed convolution, weights (C, O / groups, KH, KW); `pads` is cut off, or added where negative.

    Products are added by rows and columns of the image, then channels, whose order is numpy's, or `ordered`.
    """
    n, c, height, width = x.shape
    _, per_group, kh, kw = weight.shape
    reach = [(size - 1) * s + (k - 1) * d + 1 for size, s, k, d in zip((height, width), strides, (kh, kw), dilations)]
    canvas = np.zeros((n, groups, per_group, *reach), np.float32)
    taps = weight.reshape(groups, c // groups, per_group, kh, kw)
    grouped = x.reshape(n, groups, c // groups, height * width)
    with np.errstate(all="ignore"):
        for tap, place in reversed(tap_views(canvas, (kh, kw), strides, dilations)):  # the last is the first pixel's
            sums = place.reshape(n, groups, per_group, height * width)
            place[...] = with_products(sums, taps[(..., *tap)].transpose(0, 2, 1), grouped, ordered).reshape(
                place.shape
            )
        return cut_image(canvas.reshape(n, groups * per_group, *reach), pads) + bias.reshape(-1, 1, 1)


def float_max_pool(x: np.ndarray, *, kernel: Sequence[int], strides: Sequence[int], pads: Sequence[int]) -> np.ndarray:
    """The largest element of each window; padding never wins."""
    return windows(pad_image(x, pads, -np.inf), kernel, strides).max((4, 5))


def float_average_pool(
    x: np.ndarray, *, kernel: Sequence[int], strides: Sequence[int], pads: Sequence[int], padding_counts: bool = False
) -> np.ndarray:
    """Mean of each window, whose values are added in order; padding is 0 and counts, or does not."""
    with np.errstate(all="ignore"):
        seen = windows(pad_image(x, pads, 0.0), kernel, strides)
        total = np.zeros(seen.shape[:4], np.float32)
        for i, j in np.ndindex(*kernel):
            total += seen[..., i, j]
        ones = pad_image(np.ones_like(x[:1, :1]), pads, float(padding_counts))
        return total / windows(ones, kernel, strides).sum((4, 5), dtype=np.float32)
