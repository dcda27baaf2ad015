"""Plain arithmetic on numbers: functions that IEEE's four operations give exactly, and integers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ....hw.errors import UnsupportedError
from ..statements import Value, Writer, real, strides, type_of
from .exponential import EXPONENTIALS
from .pairs import pair_walk

_ALIKE = ("add", "sub", "mul", "div", "floor_div", "floor_mod", "pow", "maximum", "minimum", "squared_difference")
_NUMBERS = {name: f"TW_{name.upper()}" for name in (*_ALIKE, "prelu")} | {"leaky_relu": "TW_LEAKY"}
_FLOATS = {"Add": "TW_ADD", "Div": "TW_DIV", "Max": "TW_MAXIMUM", "Min": "TW_MINIMUM", "Mul": "TW_MUL"}
_FLOATS |= {"PRelu": "TW_PRELU", "Sub": "TW_SUB"}
_NOT_FLOATS = ("floor_mod", "pow")
_FINITE = ("add", "sub", "mul", "div")  # clamped to finite numbers
_REDUCTIONS = {"sum": "TW_SUM", "mean": "TW_MEAN", "reduce_prod": "TW_PROD", "reduce_max": "TW_REDUCE_MAX"}
_REDUCTIONS |= {"reduce_min": "TW_REDUCE_MIN", "reduce_all": "TW_ALL", "reduce_any": "TW_ANY"}
_OF_TRUTHS = ("reduce_all", "reduce_any", "reduce_max", "reduce_min")
_EXTREMES = {"ReduceMax": "TW_REDUCE_MAX", "ReduceMin": "TW_REDUCE_MIN"}
_NONE, _ALL = (0.0, 0.0), math.inf
# name -> (function, alpha, beta)
_UNARY = {"abs": ("TW_ABS", *_NONE), "neg": ("TW_NEG", *_NONE), "sign": ("TW_SIGN", *_NONE)}
_UNARY |= {"square": ("TW_SQUARE", *_NONE), "relu": ("TW_CLIP", 0.0, _ALL), "relu6": ("TW_CLIP", 0.0, 6.0)}
_UNARY |= {"relu_0_to_1": ("TW_CLIP", 0.0, 1.0), "relu_n1_to_1": ("TW_CLIP", -1.0, 1.0)}
_UNARY_FLOAT = {"ceil": ("TW_CEIL", *_NONE), "floor": ("TW_FLOOR", *_NONE), "round": ("TW_ROUND", *_NONE)}
_UNARY_FLOAT |= {"hard_swish": ("TW_HARD_SWISH6", *_NONE)}
_UNARY_FLOAT |= {"sqrt": ("TW_ROOT", *_NONE), "rsqrt": ("TW_INVERSE_ROOT", *_NONE)}
# of ONNX; None stands for the parameter of the step
_FUNCTIONS = {"Abs": ("TW_ABS", *_NONE), "Neg": ("TW_NEG", *_NONE), "Sign": ("TW_SIGN", *_NONE)}
_FUNCTIONS |= {"Ceil": ("TW_CEIL", *_NONE), "Floor": ("TW_FLOOR", *_NONE), "Round": ("TW_ROUND", *_NONE)}
_FUNCTIONS |= {"Reciprocal": ("TW_RECIPROCAL", *_NONE), "Softsign": ("TW_SOFTSIGN", *_NONE)}
_FUNCTIONS |= {"Sqrt": ("TW_ROOT", *_NONE)}
_FUNCTIONS |= {"Relu": ("TW_CLIP", 0.0, _ALL), "Clip": ("TW_CLIP", None, None)}
_FUNCTIONS |= {"LeakyRelu": ("TW_LEAKY_RELU", None, 0.0), "ThresholdedRelu": ("TW_THRESHOLDED_RELU", None, 0.0)}
_FUNCTIONS |= {"HardSigmoid": ("TW_HARD_SIGMOID", None, None), "HardSwish": ("TW_HARD_SWISH", 1 / 6, 0.5)}


def _known(op: str, name: str, functions: Mapping, dtype: str):
    """What stands for the function. Raises `UnsupportedError` for one that is not among them."""
    if name not in functions:
        raise UnsupportedError(
            f"function {name!r} of {dtype} in host operator {op!r} has no C kernel; run the program with Python"
        )
    return functions[name]


def number_binary(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """Integers wrap; float32 results of operations with an activation are finite."""
    x, y = inputs
    real_numbers, name = x.dtype == "float32", a["function"]
    known = {k: v for k, v in _NUMBERS.items() if not (real_numbers and k in _NOT_FLOATS)}
    function = _known("number_binary", name, known, x.dtype)
    _binary(w, inputs, output, function, int(real_numbers and name in _FINITE))


def float_binary(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """As `number_binary`, without the clamp."""
    _binary(w, inputs, output, _known("float_binary", a["function"], _FLOATS, "float32"), 0)


def _binary(w: Writer, inputs: Sequence[Value], output: Value, function: str, finite: int) -> None:
    x, y = (v.pointer for v in inputs)
    w.call("tw_binary", x, y, output.pointer, type_of(inputs[0]), pair_walk(w, inputs, output), function, finite)


def number_function(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """One by one."""
    dtype = inputs[0].dtype
    if dtype == "float32" and a["function"] in EXPONENTIALS:
        EXPONENTIALS[a["function"]](w, inputs[0], output)
        return
    known = _UNARY | _UNARY_FLOAT if dtype == "float32" else _UNARY
    _unary(w, inputs[0], output, _known("number_function", a["function"], known, dtype), a)


def float_function(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """One by one."""
    _unary(w, inputs[0], output, _known("float_function", a["function"], _FUNCTIONS, "float32"), a)


def _unary(w: Writer, x: Value, y: Value, function: tuple, a: dict) -> None:
    name, *given = function
    parameters = (a.get(key, 0.0) if value is None else value for key, value in zip(("alpha", "beta"), given))
    w.call("tw_unary", x.pointer, y.pointer, type_of(x), x.size, name, *map(real, parameters))


def walks(w: Writer, x: Value, axes: Sequence[int]) -> tuple[str, str, int]:
    """(the walk of what stays, that of `axes`, elements in it)."""
    steps = strides(x.shape)
    kept, reduced = ([k for k in range(len(x.shape)) if (k in axes) == inside] for inside in (False, True))
    plans = (w.walk([x.shape[k] for k in some], [steps[k] for k in some]) for some in (kept, reduced))
    first, second = plans
    return first, second, math.prod(x.shape[k] for k in reduced)


def _reduce(w: Writer, x: Value, y: Value, axes: Sequence[int], function: str) -> None:
    w.call("tw_reduce", x.pointer, y.pointer, type_of(x), *walks(w, x, axes), function)


def number_reduce(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """In the order of the elements."""
    (x,), truths = inputs, inputs[0].dtype == "bool"
    known = {k: v for k, v in _REDUCTIONS.items() if (k in _OF_TRUTHS if truths else k not in _OF_TRUTHS[:2])}
    _reduce(w, x, output, a["axes"], _known("number_reduce", a["function"], known, x.dtype))


def float_reduce(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """Extremes alone: the order in which numpy adds is not declared."""
    _reduce(w, inputs[0], output, a["axes"], _known("float_reduce", a["function"], _EXTREMES, "float32"))


def reduce_max(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """As of numbers."""
    _reduce(w, inputs[0], output, a["axes"], "TW_REDUCE_MAX")


def reduce_min(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """As of numbers."""
    _reduce(w, inputs[0], output, a["axes"], "TW_REDUCE_MIN")


def number_dense(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """Weights are data."""
    (x,), (units, features) = inputs, a["weight"].shape
    arrays = w.array("weights", a["weight"], "float32"), w.array("biases", np.asarray(a["bias"]), "float32")
    w.call("tw_number_dense", x.pointer, output.pointer, x.size // features, features, units, *arrays)
