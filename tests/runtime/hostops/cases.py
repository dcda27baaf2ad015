"""A step of every host operator, and what each operator means, computed in another way than runtime/hostops does.

steps.py has further steps at the operators' edges. test_table.py checks attributes, declared results and meanings,
tests/runtime/c/test_hostcalls.py runs all of them in C.
"""

import math
import operator
import re
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from tests.runtime.hostops import token_cases
from tilewright.runtime.hostops import CHECKS, HOST_OPS, Operand
from tilewright.runtime.hostops.attention import reciprocal_shifts
from tilewright.runtime.hostops.roots import inverse_root

IMAGE = (2, 6, 7, 9)
R = {"multiplier": 1 << 30, "exponent": -3}
POINTS = {"x_zero_point": 3, "zero_point": -4}
POOL = {"kernel": [3, 2], "strides": [2, 1]}
FOLD = {"rows": 2, "dilation": 1, "step": 1, "strips": 3, "group": 12, "offsets": [0, 5], "entries": 5}
FOLD |= {"top": 1, "left": 1, "value": 0, "block": 8}
CONV = {"weight": np.ones((4, 3, 3, 2), np.int8), "bias": np.zeros(4, np.int32), "x_zero_point": 1}
CONV |= {"strides": [2, 1], "pads": [1, 0, 2, 1], "dilations": [2, 1], "groups": 2}
BACK = {"weight": np.ones((5, 6, 3, 2), np.int8), "bias": np.zeros(5, np.int32), "x_zero_point": 1}
BACK |= {"strides": [2, 3], "pads": [1, 0, -2, 1]}
DENSE = {"weight": np.ones((5, 6), np.int8), "bias": np.zeros(5, np.int32), "x_zero_point": 1}
PER_CHANNEL = {"multiplier": np.full(6, 1 << 30), "exponent": np.zeros(6, np.int64), "zero_point": 0}
ADD = {"zero_points": [1, 2, 3], "multipliers": [1 << 30] * 3, "exponents": [0, 1, -20], "sign": -1, "shift": 20}
FIVE = np.full(5, 7, np.int32)
LIMITS_16, FULL_16, HALVES = {"low": -9999, "high": 32767}, np.full(6, 1 << 30), np.full(6, 0.5, np.float32)
FILTER = {"weight": np.ones((4, 3), np.int16), "bias": FIVE[:2], "zero_point": 5}
LSTM = {"weight": np.ones((12, 3), np.int8), "zero_point": 5, "cell_bits": 4, "clip": 9}
LSTM |= dict.fromkeys(("bias", "gate_multiplier", "gate_exponent"), np.full(12, 7, np.int32))
FOUND = {"anchors": np.ones((9, 4), np.float32), "scales": [10.0, 10.0, 5.0, 5.0], "each_class": False}
FOUND |= {"most": 5, "classes": 3, "classes_per_box": 2, "per_class": 4, "score": 0.3, "overlap": 0.5}
ATTENTION = {"key_groups": [0, 0, 3, -1], "value_groups": [3, 0, -1, 0, 3], "seen": 100}
ATTENTION |= {"multipliers": [1 << 30] * 2, "exponents": [-3, -20]}
FLOAT_CONV = CONV | {"weight": np.ones((4, 3, 3, 2), np.float32), "bias": np.zeros(4, np.float32)}
FLOAT_BACK = BACK | {"weight": np.ones((6, 2, 3, 2), np.float32), "bias": np.zeros(4, np.float32)}
FLOAT_BACK |= {"dilations": [1, 2], "groups": 2}
for attrs in (FLOAT_CONV, FLOAT_BACK):
    attrs["ordered"] = bool(attrs.pop("x_zero_point"))
HYBRID_DENSE = {"weight": np.ones((5, 6), np.int8), "weight_scale": np.full(5, 0.5, np.float32)}
HYBRID_DENSE |= {"bias": np.zeros(5, np.float32), "asymmetric": True}
HYBRID_CONV = {key: value for key, value in CONV.items() if key != "x_zero_point"} | {"bias": np.zeros(4, np.float32)}
HYBRID_CONV |= {"weight_scale": np.full(4, 0.5, np.float32)}
FLOAT_LSTM = {"weight": np.ones((20, 4), np.float32), "recurrence": np.ones((20, 5), np.float32)}
FLOAT_LSTM |= {"bias": np.ones(20, np.float32), "reverse": True}
TAPS = {"row_neighbours": np.array([[0, 1], [6, 6], [3, 5]], np.int32), "column_neighbours": np.array([[8, 0]], "i4")}
TAPS |= {"row_weights": np.array([[0.3, 0.7], [0.5, 0.5], [1, 0]], np.float32), "column_weights": np.ones((1, 2), "f4")}
SHIFTED = {"zero_point": -128, "dtype": "int8"}
PARABOLA = {"quadratic": 1, "linear": 2, "constant": 3, "period": 4, "levels": 256}
JOINED = {"scale": 0.5, "weight_scale": np.ones(6, np.float32), "bias": np.ones(6, np.float32)}
JOINED |= {"sums": np.arange(6, dtype=np.int32), "zero_point": -300}
SUMS = {"sums": np.arange(6, dtype=np.int32), "axis": 1}
# a step of each operator: (shapes of the inputs, their dtype, or one for each), attributes; .tw files hold the names
EXAMPLES = {
    "quantize": ([IMAGE], "float32", {"scale": 0.5, "zero_point": 3, "ties_away": True}),
    "expect_numbers": ([(1, 16)], "int8", {}),
    "dequantize": ([IMAGE], "int8", {"scale": 0.5, "zero_point": 3}),
    "recode": ([IMAGE], "uint8", {}),
    "chain": ([IMAGE], "uint8", {"stages": [["recode", {}], ["reshape", {"shape": [12, 63]}]]}),
    "pad": ([(2, 3)], "int8", {"pads": [[1, 0], [2, 3]], "value": -5}),
    "pad_by": ([(2, 3), (1,)], "int8 uint8", {"pads": [[1, 0], [2, 3]]}),
    "value_range": ([IMAGE], "float32", {}),
    "range_scale": ([(2,)], "float32", {}),
    "range_zero_point": ([(2,), (1,)], "float32", {}),
    "quantize_by": ([IMAGE, (1,), (1,)], "float32 float32 uint8", {}),
    "split_bytes": ([IMAGE], "int16", {}),
    "scale_bytes": ([IMAGE], "int32", JOINED),
    "subtract_zero_point": ([IMAGE, (1,)], "int32 uint8", SUMS),
    "scale_sums": ([IMAGE, (1,), (1, 6, 1, 1), (1,)], "int32 uint8 float32 float32", SUMS | {"relu": True}),
    "reshape": ([IMAGE], "float32", {"shape": [12, 63]}),
    "transpose": ([IMAGE], "int8", {"axes": [0, 2, 3, 1]}),
    "concatenate": ([(2, 3), (2, 5), (2, 1)], "int8", {"axis": 1}),
    "strided_slice": ([(4, 9)], "int8", {"begin": [3, 1], "strides": [-1, 4], "shape": [4, 2]}),
    "pack": ([IMAGE], "int8", {"batch": 4, "block": 4, "layout": "NHWC"}),
    "fold_windows": ([IMAGE], "int8", FOLD | {"layout": "NHWC"}),
    "unpack": ([(1, 2, 7, 9, 4, 4)], "int8", {"n": 2, "c": 6, "shape": [2, 6, 63]}),
    "lanes": ([(1, 16, 4, 2)], "int8", {"block": 16, "shape": [4, 32]}),
    "unpack_planes": ([(2, 1, 2, 4, 4)], "int8", {"n": 2, "c": 6, "shape": [6, 2]}),
    "unpack_softmax": (
        [(1, 2, 4, 4)],
        "int8",
        {"n": 2, "c": 6, "shape": [2, 6], "axis": 1, "multiplier": 1 << 30, "exponent": 20},
    ),
    "accumulators": ([(1, 2, 4, 4)] * 4, "int8", {"n": 2, "c": 6}),
    "softmax": ([(2, 9)], "int8", {"axis": 1, "multiplier": 1 << 30, "exponent": 20}),
    "conv2d_accumulators": ([IMAGE], "int8", CONV),
    "conv_transpose2d_accumulators": ([IMAGE], "int8", BACK),
    "dense_accumulators": ([(2, 6)], "int8", DENSE),
    "requantise": ([IMAGE], "int32", PER_CHANNEL | {"low": -5, "contract": "single"}),
    "rescale": ([IMAGE], "int8", POINTS | R),
    "add": ([IMAGE, (6, 1, 1)], "int8", ADD),
    "multiply": ([(6, 1), (1, 4)], "int8", {"zero_points": [1, 2, 3]} | R),
    "lookup": ([IMAGE], "int8", {"table": np.arange(256).astype(np.int8)}),
    "lookup_channels": ([IMAGE], "int8", {"table": np.arange(6 * 256).astype(np.int8).reshape(6, 256)}),
    "max_pool": ([IMAGE], "int8", POOL | {"pads": [1, 0, 1, 1]}),
    "average_pool": ([IMAGE], "int8", POOL | POINTS | R),
    "exact_average_pool": ([IMAGE], "int8", POOL | {"pads": [1, 0, 1, 1]}),
    "mean": ([IMAGE], "int8", {"axes": [2, 3], "shape": [2, 6]} | POINTS | R),
    "dense_int16": ([(2, 6)], "int8", DENSE | {"multiplier": FIVE, "exponent": FIVE}),
    "filter_int16": ([(2, 4, 3)], "int16", FILTER | R),
    "narrow": ([IMAGE], "int16", {}),
    "rescale_integers": ([IMAGE], "int16", {"dtype": "int32", "x_zero_point": 300, "zero_point": -9} | R),
    "lstm_step": (
        [(2, 1, 12), (2, 12), (2, 3)],
        "int16",
        {"zero_point": 5, "cell_bits": 4, "clip": 9} | R,
    ),
    "lstm": ([(2, 4, 12), (2, 3), (2, 3)], "int16 int8 int16", LSTM | R),
    "take": ([IMAGE], "float32", {"indices": [[1], [], [6, 0, 0], [8, 8]]}),
    "resize_bilinear": ([IMAGE], "int8", {"size": [4, 18], "align_corners": False, "half_pixel_centers": True}),
    "requantise_int16": ([IMAGE], "int64", LIMITS_16 | {"multiplier": FULL_16, "exponent": np.full(6, -9)}),
    "requantise_real": ([IMAGE], "int64", LIMITS_16 | {"weight_scale": HALVES, "x_scale": 0.5, "output_scale": 4.0}),
    "softmax_int16": ([(2, 9)], "int16", {"axis": 1, "multiplier": 1 << 30, "exponent": 1}),
    "maximum": ([IMAGE, (6, 1, 1)], "int8", {}),
    "minimum": ([(6, 1), (1, 4)], "int8", {}),
    "lookup_pair": ([IMAGE, (6, 1, 1)], "uint8 int8", {"table": np.zeros((256, 256), np.int8)}),
    "prelu": (
        [IMAGE, (6, 1, 1)],
        "int8",
        {"zero_points": [1, 2, 3], "multipliers": [1 << 30] * 2, "exponents": [0, -9]},
    ),
    "squared_difference": (
        [IMAGE, (6, 1, 1)],
        "int8",
        {"zero_points": [1, 2, 3], "multipliers": [1 << 30] * 3, "exponents": [0, 0, -9], "shift": 7},
    ),
    "divide": ([IMAGE, (6, 1, 1)], "int8", {"zero_points": [1, 2, 3], "low": -5} | R),
    "l2_normalize": ([IMAGE], "int8", {"axis": 1, "x_zero_point": 3, "scaled_first": True}),
    "log_softmax": ([IMAGE], "int8", {"axis": 1, "scale": 0.5, "output_scale": 0.0625, "zero_point": 127}),
    "number_function": ([IMAGE], "float32", {"function": "sqrt"}),
    "number_binary": ([IMAGE, (6, 1, 1)], "int32", {"function": "floor_div"}),
    "number_reduce": ([IMAGE], "int64", {"function": "reduce_max", "axes": [2, 3], "shape": [2, 6]}),
    "number_dense": ([(2, 7, 6)], "float32", {"weight": np.ones((5, 6), "f4"), "bias": np.zeros(5, "f4")}),
    "compare": ([IMAGE, (6, 1, 1)], "int32", {"function": "less"}),
    "compare_int8": (
        [IMAGE, (6, 1, 1)],
        "int8",
        {"function": "equal", "zero_points": [1, 2], "multipliers": [1 << 30] * 2, "exponents": [0, -9]},
    ),
    "select": ([(6, 1, 1), IMAGE, (6, 1, 1)], "bool int32 int32", {}),
    "hybrid_dense": ([(2, 6)], "float32", HYBRID_DENSE),
    "hybrid_conv2d": ([IMAGE], "float32", HYBRID_CONV),
    "rfft": ([(3, 9)], "float32", {"length": 12}),
    "cast": ([IMAGE], "uint8", {"dtype": "float32"}),
    "gather": ([(200, 3), (2, 4)], "int32", {"axis": 0}),
    "gather_nd": ([(200, 150, 3), (4, 2)], "int64", {}),
    "detections": ([(1, 9, 4), (1, 9, 4)], "float32", FOUND),
    "batch_matmul": ([(2, 1, 4, 3), (5, 6, 3)], "int8", {"zero_points": [1, 2, 3], "transposed": True} | R),
    "integer_matmul": ([(2, 1, 4, 3), (5, 3, 6)], "int8 int32", {}),
    "requant_shift": ([IMAGE, (6, 1, 1), (1,)], "int32", {"shift": 3, "low": 0, "high": 255} | SHIFTED),
    "integer_softmax": ([(2, 4)], "int8", {"zero_point": -3, "low": -9, "high": 9} | PARABOLA | R),
    "integer_norm": ([(2, 4), (4,), (4,)], "int8 int32 int32", {"shift": 7, "low": -9, "high": 9, "x_zero_point": 4}),
    "rms_norm": ([(2, 4)], "int8", {"multiplier": np.full(4, 9), "exponent": np.zeros(4, "i8")}),
    "rotate": ([(1, 24), (1,)], "int8 int32", {"cosine": np.ones((100, 4), "i2"), "sine": np.ones((100, 4), "i2")}),
    "write_rows": ([(1, 3, 5, 1), (1, 3), (1,)], "int8 int8 int32", {}),
    "write_columns": ([(1, 100, 3, 1), (1, 3, 4, 1), (1,)], "int8 int8 int32", {}),
    "attention": ([(1, 24), (1, 8, 112, 1), (1, 112, 5, 1), (1,)], "int8 int8 int8 int32", ATTENTION),
    "reduce_max": ([IMAGE], "int8", {"axes": [2, 3], "shape": [2, 6]}),
    "reduce_min": ([IMAGE], "int8", {"axes": [0], "shape": [1, 6, 7, 9]}),
    "top_k": ([IMAGE], "float32", {"count": 4, "positions": False}),
    "arg_max": ([IMAGE], "int8", {"axis": 1, "shape": [2, 7, 9], "dtype": "int64", "smallest": True}),
    "float_function": ([IMAGE], "float32", {"function": "Clip", "alpha": 0.0, "beta": 6.0}),
    "float_binary": ([IMAGE, (6, 1, 1)], "float32", {"function": "Mul"}),
    "float_reduce": ([IMAGE], "float32", {"function": "ReduceMax", "axes": [2, 3], "shape": [2, 6]}),
    "float_softmax": ([IMAGE], "float32", {"axis": 1, "logarithm": False}),
    "float_matmul": ([IMAGE, (9, 4)], "float32", {"ordered": True}),
    "float_lstm": ([(3, 2, 4)], "float32", FLOAT_LSTM),
    "float_conv2d": ([IMAGE], "float32", FLOAT_CONV),
    "float_conv_transpose2d": ([IMAGE], "float32", FLOAT_BACK),
    "float_max_pool": ([IMAGE], "float32", POOL | {"pads": [1, 0, 1, 1]}),
    "float_resize": ([IMAGE], "float32", TAPS),
    "float_average_pool": ([IMAGE], "float32", POOL | {"pads": [1, 0, 1, 1], "padding_counts": True}),
} | token_cases.EXAMPLES


def operands(name):
    """The shape and dtype of each input of the example of an operator."""
    shapes, dtype, _ = EXAMPLES[name]
    return [Operand(*each) for each in zip(shapes, dtype.split() * len(shapes))]


def example(name):
    """Inputs of the example that the operator accepts."""
    rng, most = np.random.default_rng(7), 1 if name in CHECKS else 100
    return [rng.integers(0, 2 if x.dtype == "bool" else most, x.shape).astype(x.dtype) for x in operands(name)]


class Near:
    """Real numbers `values`, from which results may differ by `error` once they are clamped to the result's type."""

    def __init__(self, values, error):
        self.values, self.error = np.asarray(values), error


def rounded(acc, multiplier, exponent, contract="double"):
    """R of hw/rounding.py written out: the scaled accumulator wraps to int32 before it is multiplied."""
    if contract == "single":
        right = 31 - exponent
        return (acc * multiplier + np.where(right > 0, np.left_shift(1, np.maximum(right, 1) - 1), 0)) >> right
    product = ((acc * 2 ** np.maximum(exponent, 0) + 2**31) % 2**32 - 2**31) * multiplier
    high, divisor = (product + 2**30) // 2**31, 2 ** np.maximum(-exponent, 0)
    return np.sign(high) * ((np.abs(high) + divisor // 2) // divisor)


def clamped(values, low: float = -128, high: float = 127):
    return np.minimum(np.maximum(values, low), high)


def stored(acc, multiplier, exponent, zero_point=0, low=-128, high=127, contract="double"):
    return clamped(rounded(acc, multiplier, exponent, contract) + zero_point, low, high)


def wrapped(values):
    return (values + 2**31) % 2**32 - 2**31


def pair(a, k):
    return a["multipliers"][k], a["exponents"][k]


def half_away(real):
    return np.copysign(np.floor(np.abs(real) + 0.5), real)


def quantised(x, scale, zero_point, ties_away=False, dtype="int8", reciprocal=False):
    x, scale = x.astype(np.float32), np.float32(scale)
    real = (x * np.float32(1 / float(scale)) if reciprocal else x / scale).astype(float)
    return clamped((half_away if ties_away else np.rint)(real) + zero_point, *limits_of(dtype))


def column(values, x):
    return values.reshape(-1, *(1,) * (x.ndim - 2))


def requantised_short(x, multiplier, exponent, low, high):
    reduced, right = np.minimum((multiplier + 2**15) // 2**16, 2**15 - 1), 15 - column(exponent, x)
    return clamped((x * column(reduced, x) + 2 ** (right - 1)) // 2**right, low, high)


def requantised_real(x, x_scale, weight_scale, output_scale, low, high):
    return clamped(half_away(x * (x_scale * column(weight_scale, x) / output_scale)), low, high)


def cast(x, dtype):
    if dtype == "float32" or x.dtype == bool:
        return x
    values = [int(v) if abs(v) < 2**63 else -(2**63) for v in x.tolist()]
    bits = 8 * np.dtype(dtype).itemsize
    return [v % 2**bits - (2**bits if dtype != "uint8" and v % 2**bits >= 2 ** (bits - 1) else 0) for v in values]


def fourier(x, length):
    x = np.concatenate([x, np.zeros((*x.shape[:-1], length))], -1)[..., :length]
    angle = 2 * np.pi * np.outer(np.arange(length), np.arange(length // 2 + 1)) / length
    return Near(np.stack([x @ np.cos(angle), -x @ np.sin(angle)], -1), 1e-5)


def aligned(x, y, zero_points, shift, a):
    return (rounded((v - zero) << shift, *pair(a, k)) for k, (v, zero) in enumerate(zip((x, y), zero_points)))


def added(x, y, zero_points, sign, shift, multipliers, exponents, **clamp):
    a = {"multipliers": multipliers, "exponents": exponents}
    first, second = aligned(x, y, zero_points, shift, a)
    return stored(first + sign * second, *pair(a, 2), zero_points[2], **clamp)


def divided(x, y, zero_points, multiplier, exponent, **clamp):
    x, y = np.broadcast_arrays(x - zero_points[0], y - zero_points[1])
    quotient = x / np.where(y == 0, 1, y) * (multiplier * 2.0 ** (exponent - 31))
    return Near(clamped(np.where(y == 0, np.sign(x) * 2.0**16, quotient) + zero_points[2], **clamp), 0.51)


def sloped(x, slope, zero_points, **a):
    d = x - zero_points[0]
    below = rounded(d * (slope - zero_points[1]), *pair(a, 1))
    return clamped(np.where(d >= 0, rounded(d, *pair(a, 0)), below) + zero_points[2])


def squared(x, y, zero_points, shift, **a):
    first, second = aligned(x, y, zero_points, shift, a)
    return stored((first - second) ** 2, *pair(a, 2), zero_points[2])


COMPARED = {f"{name}_equal": getattr(operator, name[0] + "e") for name in ("less", "greater", "not")}
COMPARED |= {"less": operator.lt, "greater": operator.gt, "equal": operator.eq}
LARGEST = float(np.finfo(np.float32).max)


def finite(function):
    return lambda x, y: clamped(function(x, y), -LARGEST, LARGEST) if x.dtype == float else function(x, y)


def quotient(x, y):
    return x / y if x.dtype == float else np.trunc(np.where(y == 0, 0, x / np.where(y == 0, 1, y)))


def floored(x, y):
    return np.floor((x / y).astype("f4")) if x.dtype == float else np.where(y == 0, 0, x // np.where(y == 0, 1, y))


def power(x, y):
    return x**y if x.dtype == float else np.where(y < 0, 0, x ** np.maximum(y, 0))


PAIRS = {"add": finite(operator.add), "sub": finite(operator.sub), "mul": finite(operator.mul), "div": finite(quotient)}
PAIRS |= {"floor_div": floored, "pow": power, "Add": operator.add, "Sub": operator.sub, "Mul": operator.mul}
PAIRS |= {"floor_mod": lambda x, y: np.where(y == 0, 0, x - np.where(y == 0, 1, y) * floored(x, y))}
PAIRS |= dict.fromkeys(("maximum", "Max"), lambda x, y: np.where((x >= y) | (x != x), x, y))
PAIRS |= dict.fromkeys(("minimum", "Min"), lambda x, y: np.where((x <= y) | (x != x), x, y))
PAIRS["hypot"] = lambda x, y: np.sqrt(x * x + y * y)
PAIRS |= {"squared_difference": lambda x, y: (x - y) ** 2, "Div": lambda x, y: x / y, "Pow": power}
PAIRS |= {"prelu": lambda x, y: np.where(x >= 0, x, x * y), "leaky_relu": lambda x, y: np.where(x > 0, x, x * y)}
PAIRS["PRelu"] = lambda x, y: np.where(x < 0, x * y, x)

erf = np.vectorize(math.erf, otypes=[float])
FUNCTIONS = {
    "abs": abs,
    "ceil": np.ceil,
    "clip": lambda x, alpha, beta: clamped(x, alpha, beta),
    "cos": np.cos,
    "elu": lambda x, alpha=1, beta=0: np.where(x < 0, alpha * np.expm1(x), x),
    "erf": erf,
    "exp": np.exp,
    "floor": np.floor,
    "gelu": lambda x: x * (1 + erf(x / 2**0.5)) / 2,
    "gelu_tanh": lambda x: x * (1 + np.tanh((2 / math.pi) ** 0.5 * (x + 0.044715 * x**3))) / 2,
    "hard_sigmoid": lambda x, alpha, beta: clamped(alpha * x + beta, 0, 1),
    "hard_swish": lambda x: (x * clamped(x + 3, 0, 6)).astype("f4") / 6,
    "HardSwish": lambda x: x * clamped(x / 6 + 0.5, 0, 1),
    "leaky_relu": lambda x, alpha, beta=0: np.where(x < 0, alpha * x, x),
    "log": np.log,
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
    "mish": lambda x: x * np.tanh(np.logaddexp(0, x)),
    "neg": operator.neg,
    "reciprocal": lambda x: 1 / x,
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: clamped(x, 0, 6),
    "relu_0_to_1": lambda x: clamped(x, 0, 1),
    "relu_n1_to_1": lambda x: clamped(x, -1, 1),
    "round": np.rint,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "selu": lambda x, alpha, beta: beta * np.where(x > 0, x, alpha * np.expm1(x)),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "sign": np.sign,
    "sin": np.sin,
    "softplus": lambda x: np.logaddexp(0, x),
    "softsign": lambda x: x / (1 + abs(x)),
    "sqrt": np.sqrt,
    "square": lambda x: x * x,
    "tanh": np.tanh,
    "thresholded_relu": lambda x, alpha, beta=0: np.where(x > alpha, x, 0),
}


def function_of(x, function, alpha=None, beta=None):
    found = FUNCTIONS.get(function) or FUNCTIONS[re.sub("(?<=[a-z])(?=[A-Z])", "_", function).lower()]
    given = (alpha, beta) if getattr(found, "__code__", None) and found.__code__.co_argcount > 1 else ()
    parameters = [np.float32(v) for v in given if v is not None]
    # GELUs lose half a step of 1, times x / 2, where they are nearly 0
    return Near(found(x, *map(float, parameters)), 2.5e-7) if x.dtype == float else found(x)


REDUCED = {"sum": np.sum, "mean": np.mean, "prod": np.prod, "max": np.max, "min": np.min, "all": np.all, "any": np.any}
REDUCED |= {"l1": lambda x, axes: abs(x).sum(axes), "l2": lambda x, axes: (x * x).sum(axes) ** 0.5}
REDUCED |= {"sumsquare": lambda x, axes: (x * x).sum(axes)}


def reduced(x, function, axes, shape):
    found = REDUCED[function.lower().replace("reduce", "").strip("_")](x, tuple(axes)).reshape(shape)
    if x.dtype == float:
        return Near(found, 1e-6)
    return np.trunc(found) if function == "mean" else found


def first_largest(x, axis, shape, dtype, smallest=False):
    def position(row):
        known = [v if v != v else -v if smallest else v for v in row.tolist()]
        return next((k for k, v in enumerate(known) if v != v), known.index(max(known)))

    return np.apply_along_axis(position, axis, x).reshape(shape)


def largest(x, count, positions):
    def chosen(row):
        found = sorted(range(len(row)), key=lambda k: (row[k] == row[k], -row[k]))[:count]
        return found if positions else row[found]

    return np.apply_along_axis(chosen, -1, x)


def gathered(x, where):
    places = where.reshape(-1, where.shape[-1]).tolist()
    return np.array([x[tuple(place)] for place in places]).reshape(*where.shape[:-1], *x.shape[where.shape[-1] :])


def softmax(x, axis, multiplier, exponent, bits=8, steps=0, zero_point=-128):
    d = (x - x.max(axis, keepdims=True)) * (multiplier * 2.0 ** (exponent - 31) / 2**26)
    e = np.exp(d)
    zero = zero_point if steps else -(2 ** (bits - 1))
    return Near((steps or 2.0**bits) * e / e.sum(axis, keepdims=True) + zero, 0.6 if bits == 8 else 3)


def softmax_16(x, axis, multiplier, exponent):
    d = (x - x.max(axis, keepdims=True)) * (multiplier * 2.0 ** (exponent - 31) * 10 / 65535)
    e = np.exp(d)
    # units of 2**-15: an exponential differs by 1.6 for its chord of 10 / 512 and by 2.5 for half a step of 10 / 65535,
    # the sum by a rounding of each element
    return Near(2.0**15 * e / e.sum(axis, keepdims=True), 5 + x.shape[axis])


def log_softmax(x, axis, scale=1.0, output_scale=0.0, zero_point=0, logarithm=True):
    d = (x - x.max(axis, keepdims=True)) * scale
    found = d - np.log(np.exp(d).sum(axis, keepdims=True))
    found = found if logarithm else np.exp(found)
    return Near(found / output_scale + zero_point, 0.51) if output_scale else Near(found, 1e-6)


def normalised(x, axis, x_zero_point, scaled_first=False):
    d = x - x_zero_point
    return Near(128 * d / np.maximum(np.sqrt((d * d).sum(axis, keepdims=True)), 1e-9), 1.0)


def elements(shape, element):
    """The array whose element at index i is `element(*i)`."""
    return np.array([element(*index) for index in np.ndindex(*shape)]).reshape(shape)


def inside(x, index, filling=0):
    return x[tuple(index)] if all(0 <= k < n for k, n in zip(index, x.shape)) else filling


def padded(x, pads, value):
    shape, first = [n + before + after for n, (before, after) in zip(x.shape, pads)], [before for before, _ in pads]
    return elements(shape, lambda *i: inside(x, np.subtract(i, first), value))


def transposed(x, axes):
    return elements([x.shape[k] for k in axes], lambda *i: x[tuple(i[axes.index(k)] for k in range(x.ndim))])


def joined(*arrays, axis):
    return np.moveaxis(np.array([part for x in arrays for part in np.moveaxis(x, axis, 0)]), 0, axis)


def taken(x, indices):
    indices = [found or range(n) for found, n in zip(indices, x.shape)]
    return elements([*map(len, indices)], lambda *i: x[tuple(found[k] for found, k in zip(indices, i))])


def sliced(x, begin, strides, shape):
    return elements(shape, lambda *i: x[tuple(b + k * step for b, k, step in zip(begin, i, strides))])


def packed(x, batch, block, layout="NCHW"):
    x = np.moveaxis(x, -1, 1) if layout == "NHWC" else x
    shape = (-(-len(x) // batch), -(-x.shape[1] // block), *x.shape[2:], batch, block)
    return elements(shape, lambda n, c, *i: inside(x, (n * batch + i[-2], c * block + i[-1], *i[:-2])))


def unpacked(x, n, c, shape=None, layout="NCHW"):
    batch, block = x.shape[-2:]
    found = elements((n, c, *x.shape[2:-2]), lambda n, c, *i: x[(n // batch, c // block, *i, n % batch, c % block)])
    return (np.moveaxis(found, 1, -1) if layout == "NHWC" else found).reshape(shape or found.shape)


def from_bytes(*planes, shape=None, **a):
    values = np.sum([unpacked(plane % 256, **a) << 8 * k for k, plane in enumerate(planes)], 0)
    bits = 8 * len(planes)
    return np.where(values >= 2 ** (bits - 1), values - 2**bits, values).reshape(shape or values.shape)


def folded(x, rows, dilation, step, strips, group, offsets, entries, top, left, value, block, layout="NCHW"):
    x, count = np.moveaxis(x, -1, 1) if layout == "NHWC" else x, len(offsets)

    def element(n, strip, entry, _, lane):
        place = entry // count * group + offsets[entry % count] + lane
        column, row, channel = place // (rows * x.shape[1]), place // x.shape[1] % rows, place % x.shape[1]
        return inside(x, (n, channel, strip * step - top + row * dilation, column - left), value)

    return elements((len(x), strips, entries, 1, block), element)


def lanes(x, block, shape):
    if len(shape) == 4:
        columns = shape[3]
        return elements(shape, lambda _, c, h, w: x[h, (c // block * columns + w) * block + c % block])
    columns = x.shape[3]
    places = [divmod(k, columns * block) for k in range(shape[1])]
    return elements(shape, lambda h, k: inside(x, (0, places[k][0] * block + k % block, h, places[k][1] // block)))


def chained(x, stages, tables=None):
    for name, attrs in stages:
        known = attrs | {"table": np.asarray(tables)[attrs["table"]]} if name == "lookup" else attrs
        x = np.asarray(MEANINGS[name](x, **known))
    return x


def over_windows(x, function, kernel, strides, pads=(0, 0, 0, 0)):
    """`function` of the elements of each window that are no padding."""
    size = [(n + pads[k] + pads[k + 2] - kernel[k]) // strides[k] + 1 for k, n in enumerate(x.shape[2:])]

    def element(n, c, *place):
        first = [i * s - p for i, s, p in zip(place, strides, pads)]
        rows, columns = (slice(max(0, f), max(0, f + k)) for f, k in zip(first, kernel))
        return function(x[n, c, rows, columns].reshape(-1))

    return elements((*x.shape[:2], *size), element)


def exact_mean(values, ties_up):
    total, count = int(values.sum()), values.size
    return (2 * total + count) // (2 * count) if ties_up or total > 0 else -((count - 2 * total) // (2 * count))


def resized(x, size, align_corners=False, half_pixel_centers=False, offset=None):
    """Real interpolation; with integers the positions have ten bits after the point."""
    real = x.dtype == float
    for k, out in enumerate(size):
        n, i = x.shape[2 + k], np.arange(out)
        step = (n - 1) / (out - 1) if align_corners and out > 1 else n / out
        place = clamped((i + 0.5) * step - 0.5 if half_pixel_centers else i * step, 0, n - 1)
        low = np.minimum(np.floor(place).astype(int), max(0, n - 2))
        shape = [-1 if axis == 2 + k else 1 for axis in range(4)]
        part = (place - low).reshape(shape)
        x = x.take(low, 2 + k) * (1 - part) + x.take(np.minimum(low + 1, n - 1), 2 + k) * part
    return Near(x, 1e-4 if real else 0.51 if offset is not None else 2.5)


def convolved(x, weight, bias, strides, pads, dilations, groups, x_zero_point=0, ordered=False):
    top, left, bottom, right = pads
    x = np.pad(x - x_zero_point, ((0, 0), (0, 0), (top, bottom), (left, right)))
    (o, per_group, *kernel), of_group = weight.shape, len(weight) // groups
    size = [(n - (k - 1) * d - 1) // s + 1 for n, k, d, s in zip(x.shape[2:], kernel, dilations, strides)]

    def element(n, o, *place):
        rows, columns = (slice(i * s, i * s + k * d, d) for i, s, k, d in zip(place, strides, kernel, dilations))
        first = o // of_group * per_group
        return (x[n, first : first + per_group, rows, columns] * weight[o]).sum() + bias[o]

    found = elements((len(x), o, *size), element)
    return Near(found, 1e-4) if x.dtype == float else wrapped(found)


def spread(x, weight, bias, strides, pads, dilations=(1, 1), groups=0, x_zero_point=0, ordered=False):
    """A transposed convolution: every pixel of x adds its products; weights (O, C, ...), or with groups (C, O, ...)."""
    x, taps, per_group = x - x_zero_point, weight if groups else weight.swapaxes(0, 1), x.shape[1] // max(1, groups)
    outputs = max(1, groups) * taps.shape[1]
    size = [(n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip(x.shape[2:], strides, taps.shape[2:], dilations)]
    whole = np.zeros((len(x), outputs, size[0] + max(0, -pads[2]), size[1] + max(0, -pads[3])), x.dtype)
    for c, i, j, k, m in product(*map(range, (*x.shape[1:], *taps.shape[2:]))):
        first = c // per_group * taps.shape[1]
        row, column = i * strides[0] + k * dilations[0], j * strides[1] + m * dilations[1]
        whole[:, first : first + taps.shape[1], row, column] += x[:, c, i, j, None] * taps[c, :, k, m]
    end = [size[k] - pads[2 + k] for k in (0, 1)]
    found = whole[:, :, pads[0] : end[0], pads[1] : end[1]] + bias.reshape(-1, 1, 1)
    return Near(found, 1e-4) if x.dtype == float else wrapped(found)


def limits_of(dtype):
    return np.iinfo(dtype).min, np.iinfo(dtype).max


def dense(x, weight, bias, x_zero_point=0, multiplier=None, exponent=None, dtype="int16"):
    sums = (x - x_zero_point) @ weight.T + bias
    if x.dtype == float:
        return Near(sums, 1e-5)
    sums = wrapped(sums)
    return sums if multiplier is None else clamped(rounded(sums, multiplier, exponent), *limits_of(dtype))


def requantised(x, multiplier, exponent, zero_point, steps=0, **a):
    around = (-1,) + (1,) * (x.ndim - 2)
    zeros = (np.zeros_like(exponent) + zero_point + steps).reshape(around)
    return stored(x, multiplier.reshape(around), exponent.reshape(around), zeros, **a)


def filtered(x, weight, bias, **a):
    return stored(wrapped((x * weight).sum(2).reshape(len(x), len(bias), -1).sum(2) + bias), **a)


def logistic(x):
    return 1 / (1 + np.exp(-x))


def lstm_step(gates, own, cells, zero_point, cell_bits, clip, multiplier, exponent, coupled=False):
    """In real numbers: gates have 12 fractional bits, cells 15 less their integer bits."""
    sums, unit = clamped(gates[:, 0] + own, *limits_of("int16")) / 2.0**12, 2.0 ** (cell_bits - 15)
    *first, forget, new, out = np.split(sums, 3 if coupled else 4, 1)
    allow = logistic(first[0]) if first else 1 - logistic(forget)
    c = clamped(logistic(forget) * cells + allow * np.tanh(new) / unit, *limits_of("int16"))
    c = clamped(c, -clip, clip) if clip else c
    scale = multiplier * 2.0 ** (exponent - 31) * 2**30
    hidden = clamped(logistic(out) * np.tanh(c * unit) * scale + zero_point)
    return Near(np.stack([hidden, c], 1), np.stack([0 * c + 3e-3 * scale + 1, 0 * c + 60], 1))


def lstm(gates, hidden, cells, weight, bias, gate_multiplier, gate_exponent, coupled=False, **a):
    """Steps that `lstm_step` computes, which has a meaning of its own."""
    found = []
    for t in range(gates.shape[1]):
        own = rounded(wrapped(hidden @ weight.T + bias), gate_multiplier, gate_exponent)
        step = HOST_OPS["lstm_step"].function(gates[:, t : t + 1], own, cells, coupled=coupled, **a)
        hidden, cells = np.moveaxis(step.astype(np.int64), 1, 0)
        found.append(hidden)
    return np.stack([*found, cells], 1)


def float_lstm(x, weight, recurrence, bias, reverse=False):
    h = c = np.zeros((x.shape[1], recurrence.shape[1]))
    found = []
    for row in x[::-1] if reverse else x:
        i, o, f, new = np.split(row @ weight.T + h @ recurrence.T + bias, 4, 1)
        c = logistic(f) * c + logistic(i) * np.tanh(new)
        h = logistic(o) * np.tanh(c)
        found.append(h)
    return Near(found[::-1] if reverse else found, 1e-5)


def multiplied(x, y, zero_points, transposed=False, images=False, **a):
    x, y = x - zero_points[0], y - zero_points[1]
    x, y = (v[:, :, 0].swapaxes(1, 2) if images else v for v in (x, y))
    sums = np.einsum("...ij,...kj->...ik" if transposed else "...ij,...jk->...ik", x, y)
    found = stored(sums, zero_point=zero_points[2], **a)
    return found.swapaxes(1, 2)[:, :, None] if images else found


def rms_norm(x, multiplier, exponent):
    """The tests of `inverse_root` say what it is."""
    squares = (x * x).sum(-1, keepdims=True) >> max(0, (x.shape[-1] - 1).bit_length() - 6)
    return stored(x * inverse_root(squares), multiplier, exponent)


def rotated(x, position, cosine, sine):
    width, found = cosine.shape[1], x.copy()
    for t, chunk, k in np.ndindex(len(x), x.shape[1] // (2 * width), width):
        at = 2 * chunk * width + k
        row = position[0] * len(x) + t
        turned = (int(x[t, at]) + 1j * int(x[t, at + width])) * (int(cosine[row, k]) + 1j * int(sine[row, k]))
        found[t, [at, at + width]] = stored(np.array([turned.real, turned.imag], int), 1 << 30, -13)
    return found


def joined_bytes(acc, scale, zero_point, weight_scale, bias, sums):
    high, low = np.split(np.moveaxis(acc, 1, -1), 2)
    found = (256 * high + low + (128 - zero_point) * sums) * (float(np.float32(scale)) * weight_scale) + bias
    return np.moveaxis(found.astype(np.float32), -1, 1)


def without_zero_point(acc, zero, sums, axis):
    return wrapped(acc - np.moveaxis(np.broadcast_to((zero - 128) * sums, np.moveaxis(acc, axis, -1).shape), -1, axis))


def scaled_sums(acc, zero, scale, bias=None, *, sums, axis, relu=False):
    sizes = [n if k == axis else 1 for k, n in enumerate(acc.shape)]
    scale, bias = (x if x is None or x.size == 1 else x.reshape(sizes) for x in (scale, bias))
    found = (without_zero_point(acc, zero, sums, axis).astype(np.float32) * scale).astype(np.float32)
    found = found if bias is None else (found + bias).astype(np.float32)
    return np.where(found < 0, 0, found) if relu else found


def with_rows(cache, rows, position):
    found = cache.copy()
    for k, row in enumerate(rows):
        found[0, :, (position[0] * len(rows) + k) % cache.shape[2], 0] = row
    return found


def with_columns(cache, block, position, tokens=1):
    found, size = cache.copy(), block.shape[2]
    first = position[0] * tokens // size * size
    for k in range(size):
        found[0, first + k, :, 0] = block[0, :, k, 0]
    return found


def attention(queries, keys, values, position, key_groups, value_groups, seen, **a):
    """Scores in steps of 1/40, weights of at most 127, and a mean by a reciprocal of the weights' sum."""
    width, context = keys.shape[1:3]
    found, lanes = np.zeros((queries.size // width, len(value_groups)), int), np.array([*key_groups] * 2)
    left, down, right = reciprocal_shifts(context)
    for r, lane in np.ndindex(*found.shape):
        token = position[0] * len(queries) + r // (queries.shape[1] // width)
        mine = lanes == value_groups[lane]
        if value_groups[lane] >= 0:
            dots = queries.reshape(-1, width)[r, mine] @ keys[0, mine, : token + 1, 0]
            scores = rounded(dots, *pair(a, 0))
            weights = np.rint(127 * np.exp(np.maximum(scores - scores.max(), -255) / 40)).astype(int)
            root = inverse_root(weights.sum() << left) >> down
            found[r, lane] = (weights @ values[0, : token + 1, lane, 0]) * (root * root >> right)
    return stored(found, *pair(a, 1)).reshape(len(queries), -1)


def shifted(x, factor, offset, shift, low, high, zero_point=0, dtype="int8"):
    return clamped((x * factor + offset + 2**shift // 2) // 2**shift, low, high) + zero_point


def halved_parabola(x, quadratic, linear, constant, period, levels, **a):
    below = x - x.max(-1, keepdims=True)
    halvings = np.minimum(-below // period, 31)
    e = (quadratic * (below + halvings * period + linear) ** 2 + constant) // 2**halvings
    total = e.sum(-1, keepdims=True)
    shares = np.where(total == 0, 0, e * (levels - 1) // np.where(total == 0, 1, total))
    return stored(shares, **a)


def toward_zero(a, b):
    return abs(a) // b * (1 if a >= 0 else -1)


def integer_norm(x, weight, *biases, shift, low=-128, high=127, x_zero_point=0):
    found = []
    for row in x.reshape(-1, x.shape[-1]).tolist():
        row = [v - x_zero_point for v in row]
        mean = toward_zero(sum(row), len(row)) if biases else 0
        row = [v - mean for v in row]
        root = math.isqrt(sum(v * v for v in row) // len(row) + 1)
        bias = biases[0].tolist() if biases else [0] * len(row)
        found.append([toward_zero(v * w, root) + b >> shift for v, w, b in zip(row, weight.tolist(), bias)])
    return clamped(np.array(found).reshape(x.shape), low, high)


# the result of each operator for arrays of int64, bool or float64, written out; test_table.py compares every step
def hybrid_dense(x, weight, weight_scale, bias, asymmetric=False):
    """In real numbers; an input is wrong by at most a step, of which there are at least 254."""
    real = weight * weight_scale[:, None]
    return Near(x @ real.T + bias, 2 * np.abs(x).max() / 254 * np.abs(real).sum(1).max())


def hybrid_convolved(x, weight, weight_scale, bias, **geometry):
    real = weight * weight_scale[:, None, None, None]
    error = 2 * np.abs(x).max() / 254 * np.abs(real).reshape(len(real), -1).sum(1).max()
    return Near(convolved(x, real, bias, **geometry).values, error)


MEANINGS: dict[str, Callable[..., Any]] = {
    "quantize": quantised,
    "expect_numbers": lambda x: x,
    "dequantize": lambda x, scale, zero_point: (x - zero_point) * float(np.float32(scale)),
    "recode": lambda x: x - 128 if x.min() >= 0 else x + 128,
    "chain": chained,
    "pad": padded,
    "reshape": lambda x, shape: np.array(list(x.flat)).reshape(shape),
    "transpose": transposed,
    "concatenate": joined,
    "strided_slice": sliced,
    "pack": packed,
    "fold_windows": folded,
    "unpack": unpacked,
    "lanes": lanes,
    "unpack_planes": lambda x, **a: from_bytes(*x, **a),
    "unpack_softmax": lambda x, n, c, shape, **a: softmax(unpacked(x, n, c, shape), **a),
    "accumulators": from_bytes,
    "softmax": softmax,
    "requantise_int16": requantised_short,
    "requantise_real": requantised_real,
    "softmax_int16": softmax_16,
    "conv2d_accumulators": convolved,
    "conv_transpose2d_accumulators": spread,
    "dense_accumulators": dense,
    "requantise": requantised,
    "rescale": lambda x, x_zero_point, **a: stored(x - x_zero_point, **a),
    "add": added,
    "multiply": lambda x, y, zero_points, **a: stored(
        (x - zero_points[0]) * (y - zero_points[1]), zero_point=zero_points[2], **a
    ),
    "lookup": lambda x, table: table[x + len(table) // 2],
    "lookup_channels": lambda x, table: np.stack([table[c][x[:, c] + 128] for c in range(len(table))], 1),
    "max_pool": lambda x, *, low=-128, high=127, **a: clamped(
        over_windows(x, lambda v: v.max(initial=low), **a), low, high
    ),
    "average_pool": lambda x, kernel, strides, x_zero_point, **a: stored(
        over_windows(x - x_zero_point, np.sum, kernel, strides), **a
    ),
    "exact_average_pool": lambda x, *, ties_up=False, low=-128, high=127, **a: clamped(
        over_windows(x, lambda v: exact_mean(v, ties_up), **a), low, high
    ),
    "mean": lambda x, axes, shape, x_zero_point, **a: stored((x - x_zero_point).sum(tuple(axes)), **a).reshape(shape),
    "dense_int16": dense,
    "filter_int16": filtered,
    "narrow": clamped,
    "rescale_integers": lambda x, x_zero_point, dtype, **a: stored(
        x - x_zero_point, **a, **dict(zip(("low", "high"), limits_of(dtype)))
    ),
    "lstm_step": lstm_step,
    "lstm": lstm,
    "take": taken,
    "resize_bilinear": resized,
    "maximum": PAIRS["maximum"],
    "minimum": PAIRS["minimum"],
    "lookup_pair": lambda x, y, table: table[x + 128 * (x.min() < 0), y + 128 * (y.min() < 0)],
    "prelu": sloped,
    "squared_difference": squared,
    "divide": divided,
    "l2_normalize": normalised,
    "log_softmax": log_softmax,
    "number_function": function_of,
    "number_binary": lambda x, y, function: PAIRS[function](x, y),
    "number_reduce": reduced,
    "number_dense": dense,
    "compare": lambda x, y, function: COMPARED[function](x, y),
    "compare_int8": lambda x, y, function, zero_points, **a: COMPARED[function](*aligned(x, y, zero_points, 8, a)),
    "select": lambda condition, x, y: condition * x + ~condition * y,
    "hybrid_dense": hybrid_dense,
    "hybrid_conv2d": hybrid_convolved,
    "rfft": fourier,
    "cast": cast,
    "gather": lambda x, where, axis, from_end=False: x[(slice(None),) * axis + (where,)],
    "gather_nd": gathered,
    "batch_matmul": multiplied,
    "integer_matmul": lambda x, y: wrapped(x @ y),
    "requant_shift": shifted,
    "pad_by": lambda x, value, pads: MEANINGS["pad"](x, pads, value.item() - 128),
    "value_range": lambda x: [min(0, x.min()), max(0, x.max())],
    "range_scale": lambda ends: np.float32(ends[1] - ends[0]) / np.float32(255) if ends.any() else [1],
    "range_zero_point": lambda ends, scale: np.rint(clamped(-(ends[:1] / scale).astype(np.float32), 0, 255)),
    "quantize_by": lambda x, scale, zero: clamped(np.rint((x / scale).astype(np.float32)) + zero, 0, 255) - 128,
    "split_bytes": lambda x: np.concatenate([x // 256, x % 256 - 128]),
    "scale_bytes": joined_bytes,
    "subtract_zero_point": without_zero_point,
    "scale_sums": scaled_sums,
    "integer_softmax": halved_parabola,
    "integer_norm": integer_norm,
    "rms_norm": rms_norm,
    "rotate": rotated,
    "write_rows": with_rows,
    "write_columns": with_columns,
    "attention": attention,
    "reduce_max": lambda x, axes, shape: reduced(x, "max", axes, shape),
    "reduce_min": lambda x, axes, shape: reduced(x, "min", axes, shape),
    "top_k": largest,
    "arg_max": first_largest,
    "float_function": function_of,
    "float_binary": lambda x, y, function: PAIRS[function](x, y),
    "float_reduce": reduced,
    "float_softmax": lambda x, axis, logarithm=False: log_softmax(x, axis, logarithm=logarithm),
    "float_matmul": lambda x, y, ordered=False: Near(x @ y, 1e-5),
    "float_lstm": float_lstm,
    "float_conv2d": convolved,
    "float_conv_transpose2d": spread,
    "float_max_pool": lambda x, **a: over_windows(x, np.max, **a),
    "float_resize": lambda x, row_neighbours, column_neighbours, row_weights, column_weights: Near(
        np.einsum("nchawb,ha,wb->nchw", x[:, :, row_neighbours][..., column_neighbours], row_weights, column_weights),
        1e-5,
    ),
    "float_average_pool": lambda x, kernel, padding_counts=False, by_columns=False, **a: Near(
        over_windows(x, lambda v: v.sum() / (math.prod(kernel) if padding_counts else v.size), kernel, **a), 1e-5
    ),
} | token_cases.MEANINGS


def wide(x):
    """The values as int64, float64 or bool."""
    return x if x.dtype == bool else x.astype(float if x.dtype.kind == "f" else np.int64)


def check(name, arrays, attrs):
    """The result of an operator in NumPy, which is compared with its meaning."""
    (found,) = HOST_OPS[name](list(arrays), attrs)
    if name not in MEANINGS:
        return found
    with np.errstate(all="ignore"):
        meant = MEANINGS[name](
            *map(wide, arrays), **{k: wide(v) if isinstance(v, np.ndarray) else v for k, v in attrs.items()}
        )
        values, error = (meant.values, meant.error) if isinstance(meant, Near) else (np.asarray(meant), 0)
        if found.dtype.kind == "f":
            np.testing.assert_allclose(found, values.astype("f4"), 2e-6 + 10 * error, error, err_msg=f"{name} {attrs}")
        elif isinstance(meant, Near):
            worst = np.abs(found - clamped(values, *limits_of(found.dtype)))
            assert (worst <= error).all(), f"{name} {attrs}: {worst.max()} steps"
        else:
            np.testing.assert_array_equal(found, values.astype(found.dtype), f"{name} {attrs}")
    return found
