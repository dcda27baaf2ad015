"""What the host computes between launches: operators on numpy arrays, found by name.

A host step of an executable names one of `HOST_OPS`; it is called with the step's input arrays and its attributes
(JSON values and constant arrays), and gives the step's outputs. The functions behind it are plain ones: arrays are
positional arguments, attributes keyword arguments. Activations are NCHW or (N, features).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from ..hw import rounding
from ..hw.errors import InputError
from . import layout


def quantize(x: np.ndarray, *, scale: float, zero_point: int) -> np.ndarray:
    """int8 `clamp(round_half_even(x / scale) + zero_point, -128, 127)`, divided in float32 as ONNX defines it.

    Raises `InputError` for values that are not numbers.
    """
    if np.isnan(x).any():
        raise InputError("the input holds NaN, which has no int8 value")
    q = np.rint(np.asarray(x, np.float32) / np.float32(scale)) + zero_point
    return np.clip(q, -128, 127).astype(np.int8)


def dequantize(q: np.ndarray, *, scale: float, zero_point: int) -> np.ndarray:
    """float32 `(q - zero_point) * scale`."""
    return (q.astype(np.int32) - zero_point).astype(np.float32) * np.float32(scale)


def pad(x: np.ndarray, *, pads: Sequence[int], value: int) -> np.ndarray:
    """NCHW `x` with `value` around it; `pads` is (top, left, bottom, right)."""
    top, left, bottom, right = pads
    return np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=value)


def reshape(x: np.ndarray, *, shape: Sequence[int]) -> np.ndarray:
    """The same elements in another shape."""
    return x.reshape(shape)


def pack(x: np.ndarray, *, batch: int, block: int) -> np.ndarray:
    """Activations, 4 or 2 dimensions, in the accelerator's layout; see runtime/layout.py."""
    return layout.pack_blocks(x, batch, block)


def accumulators(*planes: np.ndarray, n: int, c: int) -> np.ndarray:
    """int32 activations (n, c, ...) from the four packed byte planes, lowest first, that a program stored."""
    return layout.unpack_blocks(layout.planes_to_int32(planes), c, n)


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


def _windows(x: np.ndarray, kernel: Sequence[int], strides: Sequence[int]) -> np.ndarray:
    view = np.lib.stride_tricks.sliding_window_view(x, tuple(kernel), (2, 3))
    return view[:, :, :: strides[0], :: strides[1]]


def max_pool(x: np.ndarray, *, kernel: Sequence[int], strides: Sequence[int], pads: Sequence[int]) -> np.ndarray:
    """The largest element of each window of NCHW `x`, int8."""
    return _windows(pad(x, pads=pads, value=-128) if any(pads) else x, kernel, strides).max((4, 5))


def average_pool(
    x: np.ndarray,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    x_zero_point: int,
    zero_point: int,
    multiplier: int,
    exponent: int,
    contract: str = "double",
) -> np.ndarray:
    """int8 `clamp(zero_point + R(sum(x - x_zero_point)))` over each window of NCHW `x`."""
    acc = _windows(x, kernel, strides).sum((4, 5), dtype=np.int64) - kernel[0] * kernel[1] * x_zero_point
    return rounding.requantise(acc, multiplier, exponent, zero_point, contract=contract)


def _call(function: Callable[..., np.ndarray], arrays: list[np.ndarray], attrs: dict) -> list[np.ndarray]:
    return [function(*arrays, **attrs)]


HOST_OPS: dict[str, Callable[[list[np.ndarray], dict], list[np.ndarray]]] = {
    f.__name__: partial(_call, f)
    for f in (quantize, dequantize, pad, reshape, pack, accumulators, requantise, max_pool, average_pool)
}
