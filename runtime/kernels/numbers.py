"""Plain arithmetic on float32, int32 and int64 arrays, beside the quantised operators of a network."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...hw.errors import InputError

# exact in IEEE arithmetic, or on integers, which wrap
UNARY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "abs": np.abs,
    "floor": np.floor,
    "neg": np.negative,
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "relu_n1_to_1": lambda x: np.clip(x, -1, 1),
    "sqrt": np.sqrt,
    "square": np.square,
}


def _floor_divide(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.floor(x / y) if x.dtype.kind == "f" else x // y


BINARY: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": np.add,
    "div": lambda x, y: x / y if x.dtype.kind == "f" else np.trunc(x / y),
    "floor_div": _floor_divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "mul": np.multiply,
    "squared_difference": lambda x, y: np.square(x - y),
    "sub": np.subtract,
}


def number_function(x: np.ndarray, *, function: str) -> np.ndarray:
    """A function of each value, in the type of `x`."""
    with np.errstate(all="ignore"):
        return UNARY[function](x).astype(x.dtype)


def number_binary(x: np.ndarray, y: np.ndarray, *, function: str) -> np.ndarray:
    """A function of two arrays of one type that broadcast, in that type; an integer by 0 is 0."""
    with np.errstate(all="ignore"):
        result = BINARY[function](x, y)
    return result if x.dtype.kind == "f" else np.nan_to_num(result, posinf=0, neginf=0).astype(x.dtype)


def cast(x: np.ndarray, *, dtype: str) -> np.ndarray:
    """The values in another type: fractions are cut off, integers wrap."""
    with np.errstate(all="ignore"):
        return x.astype(np.int64).astype(dtype) if x.dtype.kind == "f" and dtype != "float32" else x.astype(dtype)


def _inside(index: np.ndarray, size: int) -> np.ndarray:
    if index.size and (index.min() < 0 or index.max() >= size):
        raise InputError(f"index {int(index.min())}..{int(index.max())} is outside a dimension of {size}")
    return index


def gather(x: np.ndarray, indices: np.ndarray, *, axis: int) -> np.ndarray:
    """The elements at `indices` along `axis`. Raises `InputError` for one that is not in the dimension."""
    return np.take(x, _inside(indices, x.shape[axis]), axis)


def gather_nd(x: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """The parts of `x` at the positions that are the last dimension of `indices`, which has at most x's rank.

    Raises `InputError` for a position that is not in `x`.
    """
    return x[tuple(_inside(indices[..., k], x.shape[k]) for k in range(indices.shape[-1]))]
