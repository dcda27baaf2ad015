"""Operators that the host computes between launches, on numpy arrays, by name.

A host step of an executable names one of `HOST_OPS`; it is called with the step's input arrays and its attributes
(JSON values and constant arrays), and returns the step's outputs. Each is an ordinary function: arrays are
positional arguments, attributes keyword arguments. Activations are NCHW or (N, features). The arithmetic is that of
runtime/operators.py and runtime/softmax.py, which the compiler's reference interpreter calls through the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from ..hw.errors import InputError
from . import layout, operators
from .softmax import softmax


def quantize(x: np.ndarray, *, scale: float, zero_point: int, ties_away: bool = False) -> np.ndarray:
    """int8 `clamp(round(x / scale) + zero_point, -128, 127)`, divided in float32.

    Ties go to the even value, as in ONNX, or away from zero. Raises `InputError` for values that are not numbers.
    """
    if np.isnan(x).any():
        raise InputError("the input holds NaN, which has no int8 value")
    q = np.asarray(x, np.float32) / np.float32(scale)
    q = np.trunc(q + np.copysign(np.float32(0.5), q)) if ties_away else np.rint(q)
    return np.clip(q + zero_point, -128, 127).astype(np.int8)


def dequantize(q: np.ndarray, *, scale: float, zero_point: int) -> np.ndarray:
    """float32 `(q - zero_point) * scale`."""
    return (q.astype(np.int32) - zero_point).astype(np.float32) * np.float32(scale)


def recode(x: np.ndarray) -> np.ndarray:
    """uint8 `x` as int8, 128 subtracted; int8 `x` as uint8, 128 added."""
    return (x.view(np.uint8) ^ np.uint8(128)).view(np.int8 if x.dtype == np.uint8 else np.uint8)


def pad(x: np.ndarray, *, pads: Sequence[Sequence[int]], value: int) -> np.ndarray:
    """`x` with `value` around it; `pads` holds (before, after) per dimension."""
    return np.pad(x, [tuple(pair) for pair in pads], constant_values=value)


def reshape(x: np.ndarray, *, shape: Sequence[int]) -> np.ndarray:
    """The same elements in another shape."""
    return x.reshape(shape)


def transpose(x: np.ndarray, *, axes: Sequence[int]) -> np.ndarray:
    """Dimension k of the result is dimension `axes[k]` of `x`."""
    return np.ascontiguousarray(x.transpose(axes))


def concatenate(*arrays: np.ndarray, axis: int) -> np.ndarray:
    """The arrays, joined along `axis`."""
    return np.concatenate(arrays, axis)


def strided_slice(x: np.ndarray, *, begin: Sequence[int], strides: Sequence[int], shape: Sequence[int]) -> np.ndarray:
    """`result[i] = x[begin + i * stride]` in every dimension; strides may be negative."""
    indices = [first + step * np.arange(n) for first, step, n in zip(begin, strides, shape)]
    return x[np.ix_(*indices)]


def pack(x: np.ndarray, *, batch: int, block: int) -> np.ndarray:
    """Activations, 4 or 2 dimensions, in the accelerator's layout; see runtime/layout.py."""
    return layout.pack_blocks(x, batch, block)


def unpack(packed: np.ndarray, *, n: int, c: int, shape: Sequence[int]) -> np.ndarray:
    """Activations of `shape` from `packed`: `n` images of `c` channels in the accelerator's layout."""
    return layout.unpack_blocks(packed, c, n).reshape(shape)


def accumulators(*planes: np.ndarray, n: int, c: int) -> np.ndarray:
    """int32 activations (n, c, ...) from the four packed byte planes, lowest first, that a program stored."""
    return layout.unpack_blocks(layout.planes_to_int32(planes), c, n)


def _call(function: Callable[..., np.ndarray], arrays: list[np.ndarray], attrs: dict) -> list[np.ndarray]:
    return [function(*arrays, **attrs)]


HOST_OPS: dict[str, Callable[[list[np.ndarray], dict], list[np.ndarray]]] = {
    f.__name__: partial(_call, f)
    for f in (
        quantize,
        dequantize,
        recode,
        pad,
        reshape,
        transpose,
        concatenate,
        strided_slice,
        pack,
        layout.fold_windows,
        unpack,
        accumulators,
        softmax,
        operators.conv2d_accumulators,
        operators.conv_transpose2d_accumulators,
        operators.dense_accumulators,
        operators.requantise,
        operators.rescale,
        operators.add,
        operators.multiply,
        operators.lookup,
        operators.max_pool,
        operators.average_pool,
        operators.exact_average_pool,
        operators.mean,
    )
}
