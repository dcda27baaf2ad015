"""Operators along whole axes, beside the mean of runtime/operators.py and softmax."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_F = np.float32


def reduce_max(x: np.ndarray, *, axes: Sequence[int], shape: Sequence[int]) -> np.ndarray:
    """The largest value over `axes`; the result has `shape`."""
    return x.max(tuple(axes)).reshape(shape)


def reduce_min(x: np.ndarray, *, axes: Sequence[int], shape: Sequence[int]) -> np.ndarray:
    """The smallest value over `axes`; the result has `shape`."""
    return x.min(tuple(axes)).reshape(shape)


def arg_max(x: np.ndarray, *, axis: int, shape: Sequence[int], dtype: str, smallest: bool = False) -> np.ndarray:
    """The position along `axis` of the largest (smallest) value, of several the first, as `dtype`, in `shape`."""
    found = x.argmin(axis) if smallest else x.argmax(axis)
    return found.astype(dtype).reshape(shape)


def top_k(x: np.ndarray, *, count: int, positions: bool) -> np.ndarray:
    """The `count` largest values of each row, the largest first, of equal ones the first; or their int32 positions."""
    # equal values stay in order only where the smallest come first, so that rows are sorted from behind
    backwards = np.argsort(x[..., ::-1], -1, kind="stable")[..., ::-1][..., :count]
    found = x.shape[-1] - 1 - backwards
    return found.astype(np.int32) if positions else np.take_along_axis(x, found, -1)


def log_softmax(x: np.ndarray, *, axis: int, scale: float, output_scale: float, zero_point: int) -> np.ndarray:
    """int8 `log(exp(x) / sum(exp(x)))` along `axis` in float32, by a table of exponentials and a sum in order.

    `scale` is that of `x`, `output_scale` and `zero_point` are those of the result.
    """
    rows, step, unit = np.moveaxis(x, axis, -1).astype(np.int64), _F(scale), _F(output_scale)
    largest = rows.max(-1, keepdims=True)
    with np.errstate(all="ignore"):
        table = np.exp((-step * np.arange(256, dtype=_F)).astype(np.float64)).astype(_F)
        total = np.cumsum(table[largest - rows], axis=-1, dtype=_F)[..., -1:]
        first = (step * largest.astype(_F) + np.log(total.astype(np.float64)).astype(_F)) / unit
        steps = np.nan_to_num(np.rint(step / unit * rows.astype(_F) - first)) + _F(zero_point)
    return np.ascontiguousarray(np.moveaxis(np.clip(steps, -128, 127).astype(np.int8), -1, axis))
