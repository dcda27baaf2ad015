"""Arithmetic on numbers, in C."""

import numpy as np
import pytest

from tilewright.hw.errors import UnsupportedError
from tilewright.runtime.hostops import floats, numbers as nn

_FUNCTIONS = [n for n, f in floats.UNARY.items() if f.c]
_UNARY = [n for n, f in nn.UNARY.items() if f.c and f.integers]
_UNARY_FLOAT = [n for n, f in nn.UNARY.items() if f.c and not f.integers]

RNG = np.random.default_rng(7)
REALS = [0.0, -0.0, np.inf, -np.inf, np.nan, 3.4e38, -3.4e38, 1e-45, -1e-45, 0.5, -0.5, 1.5, 2.5, -2.5, 8388609.0, 6.5]
INTEGERS = ["add", "sub", "mul", "div", "floor_div", "floor_mod", "pow", "maximum", "minimum", "squared_difference"]
INTEGERS += ["prelu", "leaky_relu"]


def numbers(dtype, count=40):
    """Edges and numbers of all sizes."""
    if dtype == "float32":
        return np.concatenate([REALS, RNG.normal(size=count) * 10.0 ** RNG.integers(-6, 9, count)]).astype(dtype)
    info = np.iinfo(dtype)
    edges = [info.min, info.min + 1, -2, -1, 0, 1, 2, 3, info.max - 1, info.max]
    return np.concatenate([edges, RNG.integers(-99, 99, count), RNG.integers(info.min, info.max, count)]).astype(dtype)


@pytest.mark.parametrize("function", INTEGERS)
@pytest.mark.parametrize("dtype", ["int32", "int64", "float32"])
def test_pairs(same, in_c, function, dtype):
    x, y = numbers(dtype)[:, None], numbers(dtype)
    if dtype == "float32" and function in ("floor_mod", "pow"):
        with pytest.raises(UnsupportedError, match=f"'step': function '{function}' of float32 in host"):
            in_c("number_binary", x, y, function=function)
        return
    if function == "div" and dtype != "float32":  # the quotient of an extreme by 1 or -1 may be no integer
        x = x // 2
    same("number_binary", x, y, function=function)
    same("number_binary", x[:4].reshape(2, 1, 2), y[:3, None], function=function)


@pytest.mark.parametrize("function", ["Add", "Div", "Max", "Min", "Mul", "PRelu", "Sub"])
def test_pairs_without_a_clamp(same, function):
    same("float_binary", numbers("float32")[:, None], numbers("float32"), function=function)


@pytest.mark.parametrize("function", [*_UNARY, *_UNARY_FLOAT])
@pytest.mark.parametrize("dtype", ["int32", "int64", "float32"])
def test_functions(same, in_c, function, dtype):
    if dtype != "float32" and function in _UNARY_FLOAT:
        with pytest.raises(UnsupportedError, match=f"function '{function}' of {dtype} in host operator"):
            in_c("number_function", numbers(dtype), function=function)
        return
    same("number_function", numbers(dtype, 400), function=function)


@pytest.mark.parametrize("function", _FUNCTIONS)
def test_functions_with_parameters(same, function):
    same("float_function", numbers("float32", 400), function=function, alpha=0.2, beta=0.7)
    same("float_function", numbers("float32", 400), function=function, alpha=-3.5e38, beta=3.5e38)


def test_roots(same):
    """Numbers of two binades, some of all, and neighbours of squares."""
    every = np.arange(0x3F800000, 0x40800000, 37, dtype=np.int32).view(np.float32)
    some = RNG.integers(0, 0x7F800000, 200_000, dtype=np.int32).view(np.float32)
    squares = (np.arange(1, 4096, dtype=np.float32) ** 2).view(np.int32)
    near = np.concatenate([squares - 1, squares, squares + 1, np.arange(300, dtype=np.int32)]).view(np.float32)
    for x in (every, some, near):
        same("number_function", x, function="sqrt")
        same("number_function", x, function="rsqrt")


def test_functions_that_need_more_are_refused(in_c):
    with pytest.raises(UnsupportedError, match="function 'Tanh' of float32 in host operator 'float_function' has no C"):
        in_c("float_function", numbers("float32"), function="Tanh")


@pytest.mark.parametrize("function", ["sum", "mean", "reduce_prod", "reduce_max", "reduce_min"])
@pytest.mark.parametrize("dtype", ["int32", "int64", "float32"])
def test_reductions(same, function, dtype):
    info = None if dtype == "float32" else np.iinfo(dtype)
    x = RNG.normal(size=(3, 4, 5, 2)) if info is None else RNG.integers(info.min // 99, info.max // 99, (3, 4, 5, 2))
    for axes, shape in (([0], [4, 5, 2]), ([3, 1], [3, 1, 5, 1]), ([0, 1, 2, 3], []), ([], [3, 4, 5, 2]), ([2], [24])):
        same("number_reduce", x.astype(dtype), function=function, axes=axes, shape=shape)


def test_reductions_of_truths_and_extremes(same, in_c):
    truths = RNG.random((4, 5)) < 0.8
    for function in ("reduce_all", "reduce_any", "reduce_max", "reduce_min"):
        same("number_reduce", truths, function=function, axes=[1], shape=[4, 1])
    x, y = RNG.integers(-128, 128, (3, 4, 5)).astype(np.int8), numbers("float32")[:20].reshape(4, 5)
    for axes, shape in (([1], [3, 5]), ([0, 2], [4]), ([0, 1, 2], [])):
        same("reduce_max", x, axes=axes, shape=shape)
        same("reduce_min", x, axes=axes, shape=shape)
    same("float_reduce", y, function="ReduceMax", axes=[1], shape=[4])
    same("float_reduce", y, function="ReduceMin", axes=[0], shape=[5])
    with pytest.raises(UnsupportedError, match="function 'ReduceSum' of float32"):
        in_c("float_reduce", y, function="ReduceSum", axes=[0], shape=[5])
    with pytest.raises(UnsupportedError, match="function 'sum' of bool"):
        in_c("number_reduce", truths, function="sum", axes=[0], shape=[5])


def test_dense_in_order(same):
    weight, bias = RNG.normal(size=(5, 40)).astype("f4"), RNG.normal(size=5).astype("f4")
    same("number_dense", RNG.normal(size=(2, 3, 40)).astype("f4"), weight=weight, bias=bias)
