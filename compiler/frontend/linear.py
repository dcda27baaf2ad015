"""Arithmetic of convolutions and dense layers in every format: weights without zero points, units of biases, windows
and the padding around images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_SAME_UNIT = 1e-5  # relative, of scales: they are rounded to float32


def narrowed(weight: np.ndarray) -> np.ndarray:
    """`weight`, its zero point already subtracted, as int8 if all values fit, else as int16."""
    fits = weight.size == 0 or (weight.min() >= -128 and weight.max() <= 127)
    return np.ascontiguousarray(weight, np.int8 if fits else np.int16)


def per_channel(scale: np.ndarray, channels: int) -> np.ndarray:
    """float32: one scale per output channel."""
    return np.ascontiguousarray(np.broadcast_to(scale.reshape(-1), (channels,)), np.float32)


def is_unit(scale: np.ndarray, units: np.ndarray) -> bool:
    """Whether biases of `scale` are in `units`, the accumulators' scales."""
    return np.allclose(scale, units, rtol=_SAME_UNIT, atol=0)


def reach(kernel: Sequence[int], dilations: Sequence[int]) -> tuple[int, ...]:
    """Elements from the first to the last one that a dilated kernel reads."""
    return tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations))


def same(
    size: Sequence[int], out: Sequence[int], window: Sequence[int], strides: Sequence[int], odd_last: bool = True
) -> list[int]:
    """Padding at the start of each dimension, then at the end, so that `out` windows fit `size`.

    Of an odd number of elements the end gets one more, or the start without `odd_last`.
    """
    total = [max(0, (o - 1) * s + w - n) for n, o, w, s in zip(size, out, window, strides)]
    less, more = [t // 2 for t in total], [t - t // 2 for t in total]
    return less + more if odd_last else more + less
