"""Plain arithmetic on float32, int32, int64 and bool arrays, beside the quantised operators of a network."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..schema import Array, Kind, ListOf, OneOf
from .c_calls import C, Value, Writer, known_function, real, spread, type_of
from .elementwise import aligned
from .row import (
    ANY,
    INT8,
    NUMBERS,
    TWO_SCALES,
    HostOp,
    Operand,
    cast_to,
    giving,
    need,
    one_type,
    reduced,
    same,
    together,
)

Pair = Callable[[np.ndarray, np.ndarray], np.ndarray]
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


class Function(NamedTuple):
    """A function of values in NumPy, and its name in C, empty where it has none, with two parameters.

    A parameter that is None is that of the step. The function in C is of `integers`, too, or of float32 alone.
    """

    numpy: Callable[..., np.ndarray]
    c: str = ""
    alpha: float | None = 0.0
    beta: float | None = 0.0
    integers: bool = False


# exact in IEEE arithmetic, or on integers, which wrap
UNARY: dict[str, Function] = {
    "abs": Function(np.abs, "TW_ABS", integers=True),
    "ceil": Function(np.ceil, "TW_CEIL"),
    "cos": Function(_rounded(np.cos)),
    "elu": Function(_elu),
    "exp": Function(exponential, "tw_exp"),
    "floor": Function(np.floor, "TW_FLOOR"),
    "gelu": Function(_gelu),
    "gelu_tanh": Function(_gelu_tanh),
    "hard_swish": Function(lambda x: x * np.clip(x + _F(3), _F(0), _F(6)) / _F(6), "TW_HARD_SWISH6"),
    "log": Function(_rounded(np.log)),
    "logistic": Function(_logistic, "tw_logistic", float(FULL), float(SMALL)),
    "neg": Function(np.negative, "TW_NEG", integers=True),
    "relu": Function(lambda x: np.maximum(x, 0), "TW_CLIP", 0.0, math.inf, integers=True),
    "relu6": Function(lambda x: np.clip(x, 0, 6), "TW_CLIP", 0.0, 6.0, integers=True),
    "relu_0_to_1": Function(lambda x: np.clip(x, 0, 1), "TW_CLIP", 0.0, 1.0, integers=True),
    "relu_n1_to_1": Function(lambda x: np.clip(x, -1, 1), "TW_CLIP", -1.0, 1.0, integers=True),
    "round": Function(np.rint, "TW_ROUND"),
    "rsqrt": Function(lambda x: _F(1) / np.sqrt(x), "TW_INVERSE_ROOT"),
    "sign": Function(np.sign, "TW_SIGN", integers=True),
    "sin": Function(_rounded(np.sin)),
    "sqrt": Function(np.sqrt, "TW_ROOT"),
    "square": Function(np.square, "TW_SQUARE", integers=True),
    "tanh": Function(_rounded(np.tanh)),
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
# the function in NumPy; and in C the orders that hold: 1 for less, 2 for equal, 4 for greater, 8 for NaN, added up
COMPARISONS: dict[str, tuple[Pair, int]] = {
    "equal": (np.equal, 2),
    "greater": (np.greater, 4),
    "greater_equal": (np.greater_equal, 6),
    "less": (np.less, 1),
    "less_equal": (np.less_equal, 3),
    "not_equal": (np.not_equal, 13),
}


def number_function(x: np.ndarray, *, function: str) -> np.ndarray:
    """A function of each value, in the type of `x`."""
    with np.errstate(all="ignore"):
        return UNARY[function].numpy(x).astype(x.dtype)


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


def compare(x: np.ndarray, y: np.ndarray, *, function: str) -> np.ndarray:
    """bool: whether each pair of two arrays of one type that broadcast compares so."""
    return COMPARISONS[function][0](x, y)


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
    return COMPARISONS[function][0](*aligned(x, y, zero_points, multipliers, exponents, _COMPARED_SHIFT))


def select(condition: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The elements of `x` where `condition`, bool, holds, else those of `y`; all three broadcast."""
    return np.where(condition, x, y)


def cast(x: np.ndarray, *, dtype: str) -> np.ndarray:
    """The values in another type: fractions are cut off, integers wrap."""
    with np.errstate(all="ignore"):
        return x.astype(np.int64).astype(dtype) if x.dtype.kind == "f" and dtype != "float32" else x.astype(dtype)


def selected(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """The shape to which all three broadcast, in the type of the last two."""
    need(inputs[0].dtype == "bool", f"the condition is {inputs[0].dtype}: must be bool")
    need(inputs[1].dtype == inputs[2].dtype, f"inputs differ in dtype: {inputs[1].dtype} and {inputs[2].dtype}")
    return together(inputs, a)._replace(dtype=inputs[1].dtype)


def dense_rows(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """A row of as many elements as the weights have rows for each of the input's."""
    (shape, dtype, _), (units, features) = inputs[0], a["weight"].shape
    need(shape[-1:] == (features,), f"weight {a['weight'].shape} does not fit an input of {shape}")
    need(a["bias"].shape == (units,), f"bias {a['bias'].shape}: must be {(units,)}")
    return Operand((*shape[:-1], units), dtype)


def exponential_table(w: Writer) -> str:
    """The constants of `exponential` as bits of numbers in double precision."""
    return w.array("exponential", np.array([*POWERS, *CUBIC, STEPS]).view(np.int64), "int64")


def unary_in_c(w: Writer, x: Value, y: Value, found: Function, a: dict) -> None:
    """Write a function of each value."""
    given = zip(("alpha", "beta"), (found.alpha, found.beta))
    parameters = [real(a[key] if value is None else value) for key, value in given]
    if found.c.startswith("TW_"):
        w.call("tw_unary", x.pointer, y.pointer, type_of(x), x.size, found.c, *parameters)
    else:
        own = parameters if any((found.alpha, found.beta)) else ()
        w.call(found.c, x.pointer, y.pointer, x.size, *own, exponential_table(w))


def _number_function_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    (x,) = inputs
    known = {name: f for name, f in UNARY.items() if f.c and (f.integers or x.dtype == "float32")}
    unary_in_c(w, x, output, known_function("number_function", a["function"], known, x.dtype), a)


_IN_C = {name: f"TW_{name.upper()}" for name in BINARY} | {"leaky_relu": "TW_LEAKY"}


def _number_binary_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """Integers wrap; float32 results of operations with an activation are finite."""
    real_numbers = inputs[0].dtype == "float32"
    known = {k: v for k, v in _IN_C.items() if not (real_numbers and k in ("floor_mod", "pow"))}
    function = known_function("number_binary", a["function"], known, inputs[0].dtype)
    finite = int(real_numbers and a["function"] in ("add", "sub", "mul", "div"))
    C("tw_binary", f"inputs out x_type walk {function} {finite}")(w, inputs, output, a)


_REDUCED_IN_C = {"sum": "TW_SUM", "mean": "TW_MEAN", "reduce_prod": "TW_PROD"}
_TRUTHS_IN_C = {"reduce_all": "TW_ALL", "reduce_any": "TW_ANY"}
_EXTREMES_IN_C = {"reduce_max": "TW_REDUCE_MAX", "reduce_min": "TW_REDUCE_MIN"}


def _number_reduce_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """In the order of the elements."""
    dtype = inputs[0].dtype
    known = _EXTREMES_IN_C | (_TRUTHS_IN_C if dtype == "bool" else _REDUCED_IN_C)
    function = known_function("number_reduce", a["function"], known, dtype)
    C("tw_reduce", f"x out x_type kept gone gone_count {function}")(w, inputs, output, a)


def _number_dense_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    (x,), (units, features) = inputs, a["weight"].shape
    C("tw_number_dense", f"x out {x.size // features} {features} {units} weight bias")(w, inputs, output, a)


def _compare_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    accepted = COMPARISONS[a["function"]][1]
    if inputs[0].dtype == "int8":
        call = C("tw_compare_int8", f"inputs out walk numbers {accepted & 7}", "zero_points multipliers exponents")
    else:
        call = C("tw_compare", f"inputs x_type out walk {accepted}")
    call(w, inputs, output, a)


def _select_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """Pieces of one element."""
    steps = [spread(v.shape, output.shape, v.width) for v in inputs]
    pointers = [v.pointer for v in (*inputs, output)]
    w.call("tw_select", *pointers, output.width, w.walk(output.shape, *steps))


def one_of(functions: dict[str, Any]) -> dict[str, Kind]:
    """The kind of the attribute `function`."""
    return {"function": OneOf(tuple(functions))}


_PLAIN = (*NUMBERS, "bool")
_FLOATS: dict[str, Kind] = {"weight": Array(2, ("float32",)), "bias": Array(1, ("float32",))}
_COMPARED: dict[str, Kind] = {"zero_points": ListOf(INT8, 2), **TWO_SCALES, **one_of(COMPARISONS)}
_DTYPE: dict[str, Kind] = {"dtype": OneOf(("int8", "uint8", "int16", *NUMBERS))}

ROWS = (
    HostOp(number_function, same, one_of(UNARY), NUMBERS, c=_number_function_in_c),
    HostOp(number_binary, one_type, one_of(BINARY), NUMBERS, count=2, c=_number_binary_in_c),
    HostOp(number_reduce, reduced, one_of(REDUCTIONS), _PLAIN, c=_number_reduce_in_c),
    HostOp(number_dense, dense_rows, _FLOATS, ("float32",), c=_number_dense_in_c),
    HostOp(compare, giving("bool", one_type), one_of(COMPARISONS), _PLAIN, count=2, c=_compare_in_c),
    HostOp(compare_int8, giving("bool", one_type), _COMPARED, count=2, c=_compare_in_c),
    HostOp(select, selected, {}, ANY, count=3, c=_select_in_c),
    HostOp(cast, cast_to, _DTYPE, ANY, c=C("tw_cast", "x x_type out out_type size")),
)
