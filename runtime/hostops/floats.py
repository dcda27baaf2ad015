"""float32 operators, as ONNX defines them, for the parts of a network that are not quantised.

Images are NCHW. Infinities and NaN follow IEEE 754, without warnings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ...hw.errors import UnsupportedError
from ..schema import MOST, Array, Int, Kind, ListOf
from .arrays import AnyArray, Attrs, Float32, Ints
from .c_calls import C, Translation, Value, Writer, known_function
from .layers import (
    CONVOLUTION,
    conv_transposed,
    convolved,
    cut_image,
    pad_image,
    tap_sums,
    tap_views,
    windows,
    with_products,
)
from .numbers import Function, Pair, exponential, exponential_table, one_of, plain, unary_in_c
from .pooling import POOL, averaged, pooled
from .row import FINITE, HostOp, Operand, Operands, along_axis, giving, multiplied, need, one_type, same
from .row import reduced as reduced_shape

_F = np.float32
_ONE, _HALF = _F(1), _F(0.5)
_SELU_ALPHA, _SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875  # defaults of ONNX
_erf = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x: AnyArray) -> AnyArray:
    return _ONE / (_ONE + np.exp(-x))


def _softplus(x: AnyArray) -> AnyArray:
    return np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0)


def _hard_sigmoid(x: AnyArray, alpha: np.float32, beta: np.float32) -> AnyArray:
    return np.clip(alpha * x + beta, 0, 1)


def _error_function(x: AnyArray) -> AnyArray:
    return _erf(x.astype(np.float64)).astype(np.float32)


def _gelu(x: AnyArray) -> AnyArray:
    return _HALF * x * (_ONE + _error_function(x / _F(math.sqrt(2))))


def _gelu_tanh(x: AnyArray) -> AnyArray:
    return _HALF * x * (_ONE + np.tanh(_F(math.sqrt(2 / math.pi)) * (x + _F(0.044715) * x * x * x)))


UNARY: dict[str, Function] = {
    "Abs": plain(np.abs, "TW_ABS"),
    "Ceil": plain(np.ceil, "TW_CEIL"),
    "Clip": Function(lambda x, alpha, beta: np.minimum(np.maximum(x, alpha), beta), "TW_CLIP", None, None),
    "Cos": plain(np.cos),
    "Elu": Function(lambda x, alpha, beta: np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x)),
    "Erf": plain(_error_function),
    "Exp": plain(np.exp),
    "Floor": plain(np.floor, "TW_FLOOR"),
    "Gelu": plain(_gelu),
    "GeluTanh": plain(_gelu_tanh),
    "HardSigmoid": Function(_hard_sigmoid, "TW_HARD_SIGMOID", None, None),
    "HardSwish": plain(lambda x: x * _hard_sigmoid(x, _F(1 / 6), _HALF), "TW_HARD_SWISH", 1 / 6, 0.5),
    "LeakyRelu": Function(lambda x, alpha, beta: np.where(x < 0, alpha * x, x), "TW_LEAKY_RELU", None),
    "Log": plain(np.log),
    "Mish": plain(lambda x: x * np.tanh(_softplus(x))),
    "Neg": plain(np.negative, "TW_NEG"),
    "Reciprocal": plain(lambda x: _ONE / x, "TW_RECIPROCAL"),
    "Relu": plain(lambda x: np.maximum(x, 0), "TW_CLIP", 0.0, math.inf),
    "Round": plain(np.rint, "TW_ROUND"),
    "Selu": Function(lambda x, alpha, beta: beta * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))),
    "Sigmoid": plain(_sigmoid),
    "Sign": plain(np.sign, "TW_SIGN"),
    "Sin": plain(np.sin),
    "Softplus": plain(_softplus),
    "Softsign": plain(lambda x: x / (_ONE + np.abs(x)), "TW_SOFTSIGN"),
    "Sqrt": plain(np.sqrt, "TW_ROOT"),
    "Tanh": plain(np.tanh),
    "ThresholdedRelu": Function(lambda x, alpha, beta: np.where(x > alpha, x, 0), "TW_THRESHOLDED_RELU", None),
}
# (alpha, beta) of ONNX where a node leaves them out
DEFAULTS: dict[str, tuple[float, float]] = {
    "Elu": (1.0, 0.0),
    "HardSigmoid": (0.2, 0.5),
    "LeakyRelu": (0.01, 0.0),
    "Selu": (_SELU_ALPHA, _SELU_GAMMA),
    "ThresholdedRelu": (1.0, 0.0),
}


BINARY: dict[str, Pair] = {
    "Add": np.add,
    "Div": np.divide,
    "Max": np.maximum,
    "Min": np.minimum,
    "Mul": np.multiply,
    "PRelu": lambda x, slope: np.where(x < 0, slope * x, x),
    "Pow": np.power,
    "Sub": np.subtract,
}


REDUCTIONS: dict[str, Callable[[AnyArray, tuple[int, ...]], AnyArray]] = {
    "ReduceL1": lambda x, axes: np.abs(x).sum(axes),
    "ReduceL2": lambda x, axes: np.sqrt(np.square(x).sum(axes)),
    "ReduceMax": lambda x, axes: x.max(axes),
    "ReduceMean": lambda x, axes: x.mean(axes),
    "ReduceMin": lambda x, axes: x.min(axes),
    "ReduceProd": lambda x, axes: x.prod(axes),
    "ReduceSum": lambda x, axes: x.sum(axes),
    "ReduceSumSquare": lambda x, axes: np.square(x).sum(axes),
}


def unary(x: Float32, function: str, alpha: float = 0.0, beta: float = 0.0) -> Float32:
    """float32 `function(x)` of float32 `x`; infinities and NaN follow IEEE 754, without warnings."""
    with np.errstate(all="ignore"):
        return np.asarray(UNARY[function].numpy(x, _F(alpha), _F(beta)), np.float32)


def binary(x: Float32, y: Float32, function: str) -> Float32:
    """float32 `function(x, y)` of arrays that broadcast; no warnings about results that are not finite."""
    with np.errstate(all="ignore"):
        return np.asarray(BINARY[function](x, y), np.float32)


def reduced(x: Float32, function: str, axes: tuple[int, ...]) -> Float32:
    """float32 `function` over `axes`, which are dropped."""
    with np.errstate(all="ignore"):
        return np.asarray(REDUCTIONS[function](x, axes), np.float32)


def float_function(x: Float32, *, function: str, alpha: float = 0.0, beta: float = 0.0) -> Float32:
    """`function`, by ONNX's name, of each value with parameters `alpha` and `beta`, which are the bounds of Clip."""
    return unary(x, function, alpha, beta)


def float_binary(x: Float32, y: Float32, *, function: str) -> Float32:
    """`function`, by ONNX's name, of two arrays that broadcast."""
    return binary(x, y, function)


def float_reduce(x: Float32, *, function: str, axes: Ints, shape: Ints) -> Float32:
    """`function`, by ONNX's name, over `axes`; the result has `shape`."""
    return reduced(x, function, tuple(axes)).reshape(shape)


def float_softmax(x: Float32, *, axis: int, logarithm: bool = False) -> Float32:
    """`exp(x) / sum(exp(x))` along `axis`, or its logarithm; exponentials are added in order."""
    with np.errstate(all="ignore"):
        shifted: Float32 = x - x.max(axis, keepdims=True)
        powers: Float32 = exponential(shifted)
        total: AnyArray = np.take(np.cumsum(powers, axis, dtype=np.float32), [-1], axis)
        return shifted - np.log(total.astype(np.float64)).astype(np.float32) if logarithm else np.divide(powers, total)


def float_matmul(x: Float32, y: Float32, *, ordered: bool = False) -> Float32:
    """Matrix products over the last two dimensions; those before them broadcast.

    Products are added in numpy's order, or `ordered`, one after the other.
    """
    with np.errstate(all="ignore"):
        if not ordered:
            return x @ y
        total = np.zeros(np.broadcast_shapes(x[..., :1].shape, y[..., :1, :].shape), np.float32)
        for k in range(x.shape[-1]):
            total += x[..., k : k + 1] * y[..., k : k + 1, :]
        return total


def float_lstm(x: Float32, *, weight: Float32, recurrence: Float32, bias: Float32, reverse: bool = False) -> Float32:
    """The hidden values (steps, n, hidden) of an LSTM on `x` (steps, n, features), from zeros on, or backwards.

    `weight` (4 * hidden, features), `recurrence` (4 * hidden, hidden) and `bias` hold input, output, forget and cell
    gates in this order.
    """
    count, hidden = len(x), recurrence.shape[1]
    found = np.zeros((*x.shape[:2], hidden), np.float32)
    with np.errstate(all="ignore"):
        gates = x @ weight.T + bias
        h = c = np.zeros(found.shape[1:], np.float32)
        for step in reversed(range(count)) if reverse else range(count):
            sums = gates[step] + h @ recurrence.T
            i, o, f = (unary(sums[:, k * hidden : (k + 1) * hidden], "Sigmoid") for k in range(3))
            c = f * c + i * np.tanh(sums[:, 3 * hidden :])
            found[step] = h = o * np.tanh(c)
    return found


def float_conv2d(
    x: Float32,
    *,
    weight: Float32,
    bias: Float32,
    strides: Ints,
    pads: Ints,
    dilations: Ints,
    groups: int,
    ordered: bool = False,
) -> Float32:
    """Convolution, weights (O, C / groups, KH, KW); `pads` is (top, left, bottom, right).

    Products are added by rows, columns and channels of the kernel, the channels in numpy's order, or `ordered`.
    """
    views = tap_views(pad_image(x, pads, 0.0), weight.shape[2:], strides, dilations)
    with np.errstate(all="ignore"):
        return tap_sums(views, weight, groups, ordered) + bias.reshape(-1, 1, 1)


def float_conv_transpose2d(
    x: Float32,
    *,
    weight: Float32,
    bias: Float32,
    strides: Ints,
    pads: Ints,
    dilations: Ints,
    groups: int,
    ordered: bool = False,
) -> Float32:
    """Transposed convolution, weights (C, O / groups, KH, KW); `pads` is cut off, or added where negative.

    Products are added by rows and columns of the image, then channels, whose order is numpy's, or `ordered`.
    """
    n, c, height, width = x.shape
    _, per_group, kh, kw = weight.shape
    reach = [(size - 1) * s + (k - 1) * d + 1 for size, s, k, d in zip((height, width), strides, (kh, kw), dilations)]
    canvas = np.zeros((n, groups, per_group, *reach), np.float32)
    taps = weight.reshape(groups, c // groups, per_group, kh, kw)
    grouped = x.reshape(n, groups, c // groups, height * width)
    with np.errstate(all="ignore"):
        for tap, place in reversed(tap_views(canvas, (kh, kw), strides, dilations)):  # the last is the first pixel's
            sums = place.reshape(n, groups, per_group, height * width)
            place[...] = with_products(sums, taps[(..., *tap)].transpose(0, 2, 1), grouped, ordered).reshape(
                place.shape
            )
        return cut_image(canvas.reshape(n, groups * per_group, *reach), pads) + bias.reshape(-1, 1, 1)


def float_max_pool(x: Float32, *, kernel: Ints, strides: Ints, pads: Ints) -> Float32:
    """The largest element of each window; padding never wins."""
    return windows(pad_image(x, pads, -np.inf), kernel, strides).max((4, 5))


def float_average_pool(
    x: Float32, *, kernel: Ints, strides: Ints, pads: Ints, padding_counts: bool = False, by_columns: bool = False
) -> Float32:
    """Mean of each window; padding is 0 and counts, or does not.

    Values are added in order, or with `by_columns` those of each column first, as onnxruntime does before opset 19.
    """
    with np.errstate(all="ignore"):
        seen = windows(pad_image(x, pads, 0.0), kernel, strides)
        if by_columns:
            seen = np.add.accumulate(seen, 4)[:, :, :, :, -1:]
        total = np.zeros(seen.shape[:4], np.float32)
        for i, j in np.ndindex(*seen.shape[4:]):
            total += seen[..., i, j]
        ones = pad_image(np.ones_like(x[:1, :1]), pads, float(padding_counts))
        return total / windows(ones, kernel, strides).sum((4, 5), dtype=np.float32)


def _lstm_steps(inputs: Operands, a: Attrs) -> Operand:
    (count, n, features), weight, recurrence = inputs[0].shape, a["weight"].shape, a["recurrence"].shape
    hidden = recurrence[1]
    fits = (weight, recurrence, a["bias"].shape) == ((4 * hidden, features), (4 * hidden, hidden), (4 * hidden,))
    need(fits, f"weight {weight}, recurrence {recurrence} and bias {a['bias'].shape} do not fit {features}")
    return Operand((count, n, hidden), "float32", count * n * 4 * hidden)


def _conv_transposed(inputs: Operands, a: Attrs) -> Operand:
    (_, c, *_), (into, per_group, *kernel), groups = inputs[0].shape, a["weight"].shape, a["groups"]
    need(c == into and into % groups == 0, f"weight {a['weight'].shape} in {groups} groups does not fit {c} channels")
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, a["dilations"])]
    grown = a | {"weight": np.broadcast_to(np.float32(0), (per_group * groups, c, *reach))}
    return conv_transposed(inputs, grown)._replace(dtype="float32")


def _mean_of_windows(inputs: Operands, a: Attrs) -> Operand:
    found = pooled(inputs, a) if a["padding_counts"] else averaged(inputs, a)
    return Operand(found.shape, "float32", found.scratch + math.prod(inputs[0].shape[2:]))


def _function_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> None:
    known = {name: f for name, f in UNARY.items() if f.c}
    unary_in_c(w, inputs[0], output, known_function("float_function", a["function"], known, "float32"), a)


_BINARY_IN_C = {
    "Add": "TW_ADD",
    "Div": "TW_DIV",
    "Max": "TW_MAXIMUM",
    "Min": "TW_MINIMUM",
    "Mul": "TW_MUL",
    "PRelu": "TW_PRELU",
    "Sub": "TW_SUB",
}


def _binary_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> None:
    function = known_function("float_binary", a["function"], _BINARY_IN_C, "float32")
    C("tw_binary", f"inputs out x_type walk {function} 0")(w, inputs, output, a)


def _reduce_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> None:
    """Extremes only, because the order of NumPy's sums is not specified."""
    extremes = {"ReduceMax": "TW_REDUCE_MAX", "ReduceMin": "TW_REDUCE_MIN"}
    function = known_function("float_reduce", a["function"], extremes, "float32")
    C("tw_reduce", f"x out x_type kept gone gone_count {function}")(w, inputs, output, a)


def _softmax_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> None:
    if a["logarithm"]:
        raise UnsupportedError("host operator 'float_softmax' has no C kernel for logarithms; run it with Python")
    C("tw_float_softmax", f"x out along {exponential_table(w)}")(w, inputs, output, a)


def _ordered(op: str, write: C) -> Translation:
    """`write` for sums in order. Raises `UnsupportedError` for others."""

    def checked(w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> None:
        if not a["ordered"]:
            known = "adds products in the order of a library"
            raise UnsupportedError(f"host operator {op!r} {known}, for which there is no C kernel; run it with Python")
        write(w, inputs, output, a)

    return checked


def _convolution_in_c(op: str) -> Translation:
    return _ordered(op, C(f"tw_{op}", "x out weight bias numbers", CONVOLUTION))


def _pool_in_c(kind: str) -> C:
    return C("tw_float_pool", f"x out {kind} numbers", f"{POOL} pads.:2")


_FLOAT = ("float32",)
_LSTM = {"weight": Array(2, _FLOAT), "recurrence": Array(2, _FLOAT), "bias": Array(1, _FLOAT)}
_CONV = {"weight": Array(4, _FLOAT), "bias": Array(1, _FLOAT)}
_BACK: dict[str, Kind] = {**_CONV, "pads": ListOf(Int(-MOST), 4)}

ROWS = (
    HostOp(float_function, same, {**one_of(UNARY), "alpha": FINITE, "beta": FINITE}, _FLOAT, c=_function_in_c),
    HostOp(float_binary, one_type, one_of(BINARY), _FLOAT, count=2, c=_binary_in_c),
    HostOp(float_reduce, reduced_shape, one_of(REDUCTIONS), _FLOAT, c=_reduce_in_c),
    HostOp(float_softmax, along_axis, {}, _FLOAT, c=_softmax_in_c),
    HostOp(
        float_matmul,
        multiplied,
        {},
        _FLOAT,
        count=2,
        c=_ordered("float_matmul", C("tw_float_matmul", "inputs out out.shape.-2: x.shape.-1 matrices")),
    ),
    HostOp(float_lstm, _lstm_steps, _LSTM, _FLOAT, (3,)),
    HostOp(float_conv2d, giving("float32", convolved), _CONV, _FLOAT, (4,), c=_convolution_in_c("float_conv2d")),
    HostOp(
        float_conv_transpose2d, _conv_transposed, _BACK, _FLOAT, (4,), c=_convolution_in_c("float_conv_transpose2d")
    ),
    HostOp(float_max_pool, giving("float32", pooled), {}, _FLOAT, (4,), c=_pool_in_c("1 0 0")),
    HostOp(float_average_pool, _mean_of_windows, {}, _FLOAT, (4,), c=_pool_in_c("0 padding_counts by_columns")),
)
