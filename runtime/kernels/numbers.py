"""Plain arithmetic on float32, int32, int64 and bool arrays, beside the quantised operators of a network."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ...hw.errors import InputError
from ...hw.rounding import rescale

_F = np.float32
_COMPARED_SHIFT = 8  # bits by which int8 values are shifted left before they are compared
FULL, SMALL = _F(16.619047), _F(-9)  # where the logistic function is 1, and where it is the exponential


def _rounded(function: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    """A float32 function, its value in double precision rounded: C's libraries may differ in the last bit."""
    return lambda x: function(x.astype(np.float64)).astype(_F)


POWERS = np.exp2(np.arange(32) / 32)
# of the cubic polynomial of 2**(r / 32), the highest first
CUBIC = [float.fromhex(c) / 32**n for n, c in ((3, "0x1.c6af84b912394p-5"), (2, "0x1.ebfce50fac4f3p-3"))]
CUBIC += [float.fromhex("0x1.62e42ff0c52d6p-1") / 32, 1.0]
STEPS = 32 * float.fromhex("0x1.71547652b82fep+0")  # 32 / log(2)


def exponential(x: np.ndarray) -> np.ndarray:
    """float32 exp(x), the values of glibc's expf: 2**(k / 32) from a table, times a polynomial, in double precision."""
    steps = np.clip(x.astype(np.float64), -200, 200) * STEPS
    whole = np.rint(steps)
    r, k = steps - whole, np.nan_to_num(whole).astype(np.int64)
    polynomial = (CUBIC[0] * r + CUBIC[1]) * (r * r) + (CUBIC[2] * r + CUBIC[3])
    return (polynomial * np.ldexp(POWERS[k % 32], k // 32)).astype(_F)


def _elu(x: np.ndarray) -> np.ndarray:
    return np.where(x < 0, np.expm1(np.minimum(x, 0).astype(np.float64)).astype(_F), x)


def _gelu(x: np.ndarray) -> np.ndarray:
    erfc = np.array([math.erfc(-float(v) * math.sqrt(0.5)) for v in x.reshape(-1)], _F)
    return _F(0.5) * x * erfc.reshape(x.shape)


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    inner = _F(math.sqrt(2 / math.pi)) * (x + _F(0.044715) * x * x * x)
    return _F(0.5) * x * (_F(1) + np.tanh(inner.astype(np.float64)).astype(_F))


def _logistic(x: np.ndarray) -> np.ndarray:
    return np.where(x > FULL, _F(1), np.where(x < SMALL, exponential(x), _F(1) / (_F(1) + exponential(-x))))


# exact in IEEE arithmetic, or on integers, which wrap
UNARY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "abs": np.abs,
    "ceil": np.ceil,
    "cos": _rounded(np.cos),
    "elu": _elu,
    "exp": exponential,
    "floor": np.floor,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "hard_swish": lambda x: x * np.clip(x + _F(3), _F(0), _F(6)) / _F(6),
    "log": _rounded(np.log),
    "logistic": _logistic,
    "neg": np.negative,
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "relu_0_to_1": lambda x: np.clip(x, 0, 1),
    "relu_n1_to_1": lambda x: np.clip(x, -1, 1),
    "round": np.rint,
    "rsqrt": lambda x: _F(1) / np.sqrt(x),
    "sign": np.sign,
    "sin": _rounded(np.sin),
    "sqrt": np.sqrt,
    "square": np.square,
    "tanh": _rounded(np.tanh),
}


def _floor_divide(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.floor(x / y) if x.dtype.kind == "f" else x // y


def _power(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if x.dtype.kind == "f":
        return np.power(x.astype(np.float64), y.astype(np.float64)).astype(_F)
    return np.where(y < 0, 0, np.power(x, np.maximum(y, 0)))


def _finite(function: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """`function`, whose float32 results are clamped to finite ones, as an operator with a fused activation does."""
    largest = np.finfo(_F).max

    def compute(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        found = function(x, y)
        return np.clip(found, -largest, largest) if x.dtype.kind == "f" else found

    return compute


BINARY: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": _finite(np.add),
    "div": _finite(lambda x, y: x / y if x.dtype.kind == "f" else np.trunc(x / y)),
    "floor_div": _floor_divide,
    "floor_mod": lambda x, y: np.mod(x, y),
    "leaky_relu": lambda x, alpha: np.where(x > 0, x, x * alpha),
    "maximum": np.maximum,
    "minimum": np.minimum,
    "mul": _finite(np.multiply),
    "pow": _power,
    "prelu": lambda x, alpha: np.where(x >= 0, x, x * alpha),
    "squared_difference": lambda x, y: np.square(x - y),
    "sub": _finite(np.subtract),
}


def _sums(x: np.ndarray) -> np.ndarray:
    """Sums along the last axis, in its order."""
    return np.cumsum(x, -1, dtype=x.dtype)[..., -1]


def _means(x: np.ndarray) -> np.ndarray:
    return _sums(x) / x.dtype.type(x.shape[-1]) if x.dtype.kind == "f" else np.trunc(_sums(x) / x.shape[-1])


REDUCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "mean": _means,
    "reduce_all": lambda x: np.logical_and.reduce(x, -1),
    "reduce_any": lambda x: np.logical_or.reduce(x, -1),
    "reduce_max": lambda x: x.max(-1),
    "reduce_min": lambda x: x.min(-1),
    "reduce_prod": lambda x: np.cumprod(x, -1, dtype=x.dtype)[..., -1],
    "sum": _sums,
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


def number_reduce(x: np.ndarray, *, function: str, axes: Sequence[int], shape: Sequence[int]) -> np.ndarray:
    """A reduction over `axes`, in the type of `x` and in the order of its elements; the result has `shape`."""
    kept = [k for k in range(x.ndim) if k not in axes]
    rows = x.transpose(*kept, *sorted(axes)).reshape(*(x.shape[k] for k in kept), -1)
    with np.errstate(all="ignore"):
        return REDUCTIONS[function](rows).astype(x.dtype).reshape(shape)


def number_dense(x: np.ndarray, *, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """float32 `x @ weight.T + bias`, each sum in the order of the features."""
    total = np.zeros((*x.shape[:-1], len(weight)), _F)
    with np.errstate(all="ignore"):
        for k, column in enumerate(weight.T):
            total += x[..., k : k + 1] * column
        return total + bias


COMPARISONS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "equal": np.equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "not_equal": np.not_equal,
}


def compare(x: np.ndarray, y: np.ndarray, *, function: str) -> np.ndarray:
    """bool: whether each pair of two arrays of one type that broadcast compares so."""
    return COMPARISONS[function](x, y)


def compare_int8(
    x: np.ndarray,
    y: np.ndarray,
    *,
    function: str,
    zero_points: Sequence[int],
    multipliers: Sequence[int],
    exponents: Sequence[int],
) -> np.ndarray:
    """bool: whether each pair of int8 values that broadcast compares so, `R((x - z) << 8)` of each, contract double."""
    values = (
        rescale((v.astype(np.int64) - z) << _COMPARED_SHIFT, m, e)
        for v, z, m, e in zip((x, y), zero_points, multipliers, exponents)
    )
    return COMPARISONS[function](*values)


def select(condition: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The elements of `x` where `condition`, bool, holds, else those of `y`; all three broadcast."""
    return np.where(condition, x, y)


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
