"""Plain arithmetic on float32, int32, int64 and bool arrays, for the parts of a network that are not quantised."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ..schema import SIZE, Array, Kind, ListOf, OneOf
from .arrays import AnyArray, Attrs, Bool, Float32, Int8, Ints
from .c_calls import C, Value, Writer, known_function, real, spread
from .elementwise import aligned
from .row import (
    ANY,
    INT8,
    NUMBERS,
    TWO_SCALES,
    HostOp,
    Operand,
    Operands,
    cast_to,
    giving,
    need,
    one_type,
    reduced,
    same,
    together,
)

Pair = Callable[[AnyArray, AnyArray], AnyArray]
_F = np.float32
_COMPARED_SHIFT = 8  # bits by which int8 values are shifted left before their comparison
FULL, SMALL = _F(16.619047), _F(-9)  # above FULL the logistic function is 1, below SMALL the exponential


def _rounded(function: Callable[[AnyArray], AnyArray]) -> Callable[[AnyArray], AnyArray]:
    """A float32 function, its value in double precision rounded: C's libraries may differ in the last bit."""
    return lambda x: function(x.astype(np.float64)).astype(_F)


POWERS = np.exp2(np.arange(32) / 32)
_COEFFICIENTS = "0x1.c6af84b912394p-5", "0x1.ebfce50fac4f3p-3", "0x1.62e42ff0c52d6p-1", "0x1p0"
CUBIC = [float.fromhex(c) / 32**n for c, n in zip(_COEFFICIENTS, (3, 2, 1, 0))]  # polynomial of 2**(r / 32)
STEPS = 32 * float.fromhex("0x1.71547652b82fep+0")  # 32 / log(2)


def exponential(x: AnyArray) -> AnyArray:
    """float32 exp(x), the values of glibc's expf: 2**(k / 32) from a table, times a polynomial, in double precision."""
    steps = np.clip(x.astype(np.float64), -200, 200) * STEPS
    whole = np.rint(steps)
    r, k = steps - whole, np.nan_to_num(whole).astype(np.int64)
    polynomial = (CUBIC[0] * r + CUBIC[1]) * (r * r) + (CUBIC[2] * r + CUBIC[3])
    return (polynomial * np.ldexp(POWERS[k % 32], k // 32)).astype(_F)


def _elu(x: AnyArray) -> AnyArray:
    return np.where(x < 0, np.expm1(np.minimum(x, 0).astype(np.float64)).astype(_F), x)


def _gelu(x: AnyArray) -> AnyArray:
    erfc = np.array([math.erfc(-float(v) * math.sqrt(0.5)) for v in x.reshape(-1)], _F)
    return _F(0.5) * x * erfc.reshape(x.shape)


def _gelu_tanh(x: AnyArray) -> AnyArray:
    inner = _F(math.sqrt(2 / math.pi)) * (x + _F(0.044715) * x * x * x)
    return _F(0.5) * x * (_F(1) + np.tanh(inner.astype(np.float64)).astype(_F))


def _logistic(x: AnyArray) -> AnyArray:
    return np.where(x > FULL, _F(1), np.where(x < SMALL, exponential(x), _F(1) / (_F(1) + exponential(-x))))


@dataclass(frozen=True)
class Function:
    """A function of values in NumPy, and its C function or constant, if any, with two parameters.

    A parameter that is None is the attribute of the step. The C function takes float32, and `integers` if so marked.
    """

    numpy: Callable[[AnyArray, np.float32, np.float32], AnyArray]
    c: str = ""
    alpha: float | None = 0.0
    beta: float | None = 0.0
    integers: bool = False


def plain(
    function: Callable[[AnyArray], AnyArray],
    c: str = "",
    alpha: float = 0.0,
    beta: float = 0.0,
    *,
    integers: bool = False,
) -> Function:
    """A function without parameters of the step; the C function gets `alpha` and `beta`."""

    def numpy(x: AnyArray, first: np.float32, second: np.float32) -> AnyArray:
        return function(x)

    return Function(numpy, c, alpha, beta, integers)


# functions with a C name are exact in IEEE arithmetic, or on integers, which wrap
UNARY: dict[str, Function] = {
    "abs": plain(np.abs, "TW_ABS", integers=True),
    "ceil": plain(np.ceil, "TW_CEIL"),
    "cos": plain(_rounded(np.cos)),
    "elu": plain(_elu),
    "exp": plain(exponential, "tw_exp"),
    "floor": plain(np.floor, "TW_FLOOR"),
    "gelu": plain(_gelu),
    "gelu_tanh": plain(_gelu_tanh),
    "hard_swish": plain(lambda x: x * np.clip(x + _F(3), _F(0), _F(6)) / _F(6), "TW_HARD_SWISH6"),
    "log": plain(_rounded(np.log)),
    "logistic": plain(_logistic, "tw_logistic", float(FULL), float(SMALL)),
    "neg": plain(np.negative, "TW_NEG", integers=True),
    "relu": plain(lambda x: np.maximum(x, 0), "TW_CLIP", 0.0, math.inf, integers=True),
    "relu6": plain(lambda x: np.clip(x, 0, 6), "TW_CLIP", 0.0, 6.0, integers=True),
    "relu_0_to_1": plain(lambda x: np.clip(x, 0, 1), "TW_CLIP", 0.0, 1.0, integers=True),
    "relu_n1_to_1": plain(lambda x: np.clip(x, -1, 1), "TW_CLIP", -1.0, 1.0, integers=True),
    "round": plain(np.rint, "TW_ROUND"),
    "rsqrt": plain(lambda x: _F(1) / np.sqrt(x), "TW_INVERSE_ROOT"),
    "sign": plain(np.sign, "TW_SIGN", integers=True),
    "sin": plain(_rounded(np.sin)),
    "sqrt": plain(np.sqrt, "TW_ROOT"),
    "square": plain(np.square, "TW_SQUARE", integers=True),
    "tanh": plain(_rounded(np.tanh)),
}


def _floor_divide(x: AnyArray, y: AnyArray) -> AnyArray:
    return np.floor(x / y) if x.dtype.kind == "f" else x // y


def _power(x: AnyArray, y: AnyArray) -> AnyArray:
    if x.dtype.kind == "f":
        return np.power(x.astype(np.float64), y.astype(np.float64)).astype(_F)
    return np.where(y < 0, 0, np.power(x, np.maximum(y, 0)))


def _finite(function: Pair) -> Pair:
    """`function`, whose float32 results are clamped to finite ones, as an operator with a fused activation does."""
    largest = np.finfo(_F).max

    def compute(x: AnyArray, y: AnyArray) -> AnyArray:
        found = function(x, y)
        return np.clip(found, -largest, largest) if x.dtype.kind == "f" else found

    return compute


BINARY: dict[str, Pair] = {
    "add": _finite(np.add),
    "div": _finite(lambda x, y: x / y if x.dtype.kind == "f" else np.trunc(x / y)),
    "floor_div": _floor_divide,
    "floor_mod": lambda x, y: np.mod(x, y),
    "hypot": lambda x, y: np.hypot(x.astype(np.float64), y.astype(np.float64)).astype(x.dtype),
    "leaky_relu": lambda x, alpha: np.where(x > 0, x, x * alpha),
    "maximum": np.maximum,
    "minimum": np.minimum,
    "mul": _finite(np.multiply),
    "pow": _power,
    "prelu": lambda x, alpha: np.where(x >= 0, x, x * alpha),
    "squared_difference": lambda x, y: np.square(x - y),
    "sub": _finite(np.subtract),
}


def rfft(x: Float32, *, length: int) -> Float32:
    """float32 (..., length // 2 + 1, 2): real and imaginary parts of the discrete Fourier transforms of `x`'s rows.

    Rows are cut, or filled with zeros, to `length`. The arithmetic is in double precision.
    """
    spectrum = np.fft.rfft(x.astype(np.float64), length)
    return np.stack([spectrum.real, spectrum.imag], -1).astype(_F)


def _transformed(inputs: Operands, a: Attrs) -> Operand:
    shape, bins = inputs[0].shape, a["length"] // 2 + 1
    need(len(shape) > 0, "a number has no Fourier transform")
    return Operand((*shape[:-1], bins, 2), "float32", 4 * math.prod(shape[:-1]) * bins)


def _sums(x: AnyArray) -> AnyArray:
    """Sums along the last axis, in its order."""
    return np.cumsum(x, -1, dtype=x.dtype)[..., -1]


def _means(x: AnyArray) -> AnyArray:
    return _sums(x) / x.dtype.type(x.shape[-1]) if x.dtype.kind == "f" else np.trunc(_sums(x) / x.shape[-1])


REDUCTIONS: dict[str, Callable[[AnyArray], AnyArray]] = {
    "mean": _means,
    "reduce_all": lambda x: np.logical_and.reduce(x, -1),
    "reduce_any": lambda x: np.logical_or.reduce(x, -1),
    "reduce_max": lambda x: x.max(-1),
    "reduce_min": lambda x: x.min(-1),
    "reduce_prod": lambda x: np.cumprod(x, -1, dtype=x.dtype)[..., -1],
    "sum": _sums,
}
# (function in NumPy, sum of the orders for which it holds in C: 1 less, 2 equal, 4 greater, 8 unordered)
COMPARISONS: dict[str, tuple[Pair, int]] = {
    "equal": (np.equal, 2),
    "greater": (np.greater, 4),
    "greater_equal": (np.greater_equal, 6),
    "less": (np.less, 1),
    "less_equal": (np.less_equal, 3),
    "not_equal": (np.not_equal, 13),
}


def number_function(x: AnyArray, *, function: str) -> AnyArray:
    """A function of each value, in the type of `x`."""
    with np.errstate(all="ignore"):
        return UNARY[function].numpy(x, _F(0), _F(0)).astype(x.dtype)


def number_binary(x: AnyArray, y: AnyArray, *, function: str) -> AnyArray:
    """A function of two arrays of one type that broadcast, in that type; an integer by 0 is 0."""
    with np.errstate(all="ignore"):
        result = BINARY[function](x, y)
    return result if x.dtype.kind == "f" else np.nan_to_num(result, posinf=0, neginf=0).astype(x.dtype)


def number_reduce(x: AnyArray, *, function: str, axes: Ints, shape: Ints) -> AnyArray:
    """A reduction over `axes`, in the type of `x` and in the order of its elements; the result has `shape`."""
    kept = [k for k in range(x.ndim) if k not in axes]
    rows = x.transpose(*kept, *sorted(axes)).reshape(*(x.shape[k] for k in kept), -1)
    with np.errstate(all="ignore"):
        return REDUCTIONS[function](rows).astype(x.dtype).reshape(shape)


def number_dense(x: Float32, *, weight: Float32, bias: Float32) -> Float32:
    """float32 `x @ weight.T + bias`, each sum in the order of the features."""
    total = np.zeros((*x.shape[:-1], len(weight)), _F)
    with np.errstate(all="ignore"):
        for k, column in enumerate(weight.T):
            total += x[..., k : k + 1] * column
        return total + bias


def compare(x: AnyArray, y: AnyArray, *, function: str) -> Bool:
    """bool: comparison `function` of each pair of values of two arrays of one dtype that broadcast."""
    return COMPARISONS[function][0](x, y)


def compare_int8(x: Int8, y: Int8, *, function: str, zero_points: Ints, multipliers: Ints, exponents: Ints) -> Bool:
    """bool: comparison `function` of `R((x - z) << 8)` of each pair of int8 values that broadcast, contract double."""
    return COMPARISONS[function][0](*aligned(x, y, zero_points, multipliers, exponents, _COMPARED_SHIFT))


def select(condition: Bool, x: AnyArray, y: AnyArray) -> AnyArray:
    """The elements of `x` where `condition`, bool, holds, else of `y`; all three broadcast."""
    return np.where(condition, x, y)


def cast(x: AnyArray, *, dtype: str) -> AnyArray:
    """The values in another type: fractions are cut off, integers wrap."""
    with np.errstate(all="ignore"):
        return x.astype(np.int64).astype(dtype) if x.dtype.kind == "f" and dtype != "float32" else x.astype(dtype)


def _selected(inputs: Operands, a: Attrs) -> Operand:
    need(inputs[0].dtype == "bool", f"the condition is {inputs[0].dtype}: must be bool")
    need(inputs[1].dtype == inputs[2].dtype, f"inputs differ in dtype: {inputs[1].dtype} and {inputs[2].dtype}")
    return together(inputs, a)._replace(dtype=inputs[1].dtype)


def _dense_rows(inputs: Operands, a: Attrs) -> Operand:
    (shape, dtype, _), (units, features) = inputs[0], a["weight"].shape
    need(shape[-1:] == (features,), f"weight {a['weight'].shape} does not fit an input of {shape}")
    need(a["bias"].shape == (units,), f"bias {a['bias'].shape}: must be {(units,)}")
    return Operand((*shape[:-1], units), dtype)


def exponential_table(w: Writer) -> str:
    """The constants of `exponential` as bits of numbers in double precision."""
    return w.array("exponential", np.array([*POWERS, *CUBIC, STEPS]).view(np.int64), "int64")


def unary_in_c(w: Writer, x: Value, y: Value, found: Function, a: Attrs) -> None:
    """Write a function of each value of `x`."""
    pairs = zip(("alpha", "beta"), (found.alpha, found.beta))
    parameters = " ".join(real(a[key] if value is None else value) for key, value in pairs)
    if found.c.startswith("TW_"):
        C("tw_unary", f"x out x_type size {found.c} {parameters}")(w, [x], y, a)
    else:
        own = parameters if any((found.alpha, found.beta)) else ""
        C(found.c, f"x out size {own} {exponential_table(w)}")(w, [x], y, a)


def _number_function_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> None:
    (x,) = inputs
    known = {name: f for name, f in UNARY.items() if f.c and (f.integers or x.dtype == "float32")}
    unary_in_c(w, x, output, known_function("number_function", a["function"], known, x.dtype), a)


_IN_C = {name: f"TW_{name.upper()}" for name in BINARY if name != "hypot"} | {"leaky_relu": "TW_LEAKY"}


def _number_binary_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> None:
    """Integers wrap; float32 results of operators that may have a fused activation are clamped to finite ones."""
    real_numbers = inputs[0].dtype == "float32"
    known = {k: v for k, v in _IN_C.items() if not (real_numbers and k in ("floor_mod", "pow"))}
    function = known_function("number_binary", a["function"], known, inputs[0].dtype)
    finite = int(real_numbers and a["function"] in ("add", "sub", "mul", "div"))
    C("tw_binary", f"inputs out x_type walk {function} {finite}")(w, inputs, output, a)


_REDUCED_IN_C = {"sum": "TW_SUM", "mean": "TW_MEAN", "reduce_prod": "TW_PROD"}
_TRUTHS_IN_C = {"reduce_all": "TW_ALL", "reduce_any": "TW_ANY"}
_EXTREMES_IN_C = {"reduce_max": "TW_REDUCE_MAX", "reduce_min": "TW_REDUCE_MIN"}


def _number_reduce_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> None:
    dtype = inputs[0].dtype
    known = _EXTREMES_IN_C | (_TRUTHS_IN_C if dtype == "bool" else _REDUCED_IN_C)
    function = known_function("number_reduce", a["function"], known, dtype)
    C("tw_reduce", f"x out x_type kept gone gone_count {function}")(w, inputs, output, a)


def _compare_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> None:
    accepted = COMPARISONS[a["function"]][1]
    if inputs[0].dtype == "int8":
        call = C("tw_compare_int8", f"inputs out walk numbers {accepted & 7}", "zero_points multipliers exponents")
    else:
        call = C("tw_compare", f"inputs x_type out walk {accepted}")
    call(w, inputs, output, a)


def _select_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> None:
    """A walk whose steps are bytes."""
    steps = [spread(v.shape, output.shape, v.width) for v in inputs]
    pointers = [v.pointer for v in (*inputs, output)]
    w.call("tw_select", *pointers, output.width, w.walk(output.shape, *steps))


def one_of(functions: Iterable[str]) -> dict[str, Kind]:
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
    HostOp(
        number_dense,
        _dense_rows,
        _FLOATS,
        ("float32",),
        c=C("tw_number_dense", "x out rows weight.shape.0 weight bias"),
    ),
    HostOp(compare, giving("bool", one_type), one_of(COMPARISONS), _PLAIN, count=2, c=_compare_in_c),
    HostOp(compare_int8, giving("bool", one_type), _COMPARED, count=2, c=_compare_in_c),
    HostOp(select, _selected, {}, ANY, count=3, c=_select_in_c),
    HostOp(rfft, _transformed, {"length": SIZE}, ("float32",)),
    HostOp(cast, cast_to, _DTYPE, ANY, c=C("tw_cast", "x x_type out out_type size")),
)
