"""Operators along whole axes, beside the mean of runtime/operators.py and softmax."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


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
