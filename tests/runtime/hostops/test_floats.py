"""Operators in float32 against their definitions; onnxruntime judges them in tests/compiler/frontend/onnx."""

import math
from typing import Any

import numpy as np
import pytest

from tilewright.runtime.hostops import floats as f

RNG = np.random.default_rng(2)


def image(*shape):
    return RNG.normal(0, 1, shape).astype(np.float32)


def test_a_convolution_is_a_sum_of_products():
    x, w, b = image(1, 4, 5, 6), image(6, 2, 3, 2), image(6)
    y = f.float_conv2d(x, weight=w, bias=b, strides=[2, 1], pads=[1, 0, 1, 1], dilations=[1, 2], groups=2)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (0, 1)))
    window = padded[0, 2:, 2:5, 1:4:2]
    assert np.isclose(y[0, 4, 1, 1], (window * w[4]).sum() + b[4], atol=1e-5)
    assert y.shape == (1, 6, 3, 5) and y.dtype == np.float32


def test_a_transposed_convolution_is_the_convolutions_gradient():
    x, y, w = image(1, 3, 5, 5), image(1, 4, 3, 3), image(4, 3, 3, 3)
    options: dict[str, Any] = {
        "bias": np.zeros(4, np.float32),
        "strides": [2, 2],
        "pads": [1, 1, 1, 1],
        "dilations": [1, 1],
        "groups": 1,
    }
    forward = f.float_conv2d(x, weight=w, **options)
    options["bias"] = np.zeros(3, np.float32)
    back = f.float_conv_transpose2d(y, weight=w, **options)
    assert np.isclose((forward * y).sum(), (back * x).sum(), rtol=1e-4)


def test_an_lstm_backwards_is_one_of_the_steps_turned_round():
    parts: dict[str, Any] = {"weight": image(20, 3), "recurrence": image(20, 5), "bias": image(20)}
    x = image(4, 2, 3)
    there, back = f.float_lstm(x, **parts), f.float_lstm(x[::-1], **parts, reverse=True)
    assert there.shape == (4, 2, 5) and np.array_equal(back[::-1], there)
    gates = 1 / (1 + np.exp(-(x[0] @ parts["weight"].T + parts["bias"])))
    cell = gates[:, :5] * np.tanh(x[0] @ parts["weight"][15:].T + parts["bias"][15:])
    np.testing.assert_allclose(there[0], gates[:, 5:10] * np.tanh(cell), rtol=1e-5)


def test_sums_in_order():
    """Products of 1e8, 1 and -1e8 make 0, because 1 is lost; numpy may add them in another order."""
    values, ones = np.array([1e8, 1, -1e8], np.float32), np.ones((1, 3, 1, 1), np.float32)
    x = values.reshape(1, 3, 1, 1)
    options: dict[str, Any] = {"strides": [1, 1], "pads": [0] * 4, "dilations": [1, 1], "groups": 1, "ordered": True}
    bias = np.zeros(1, np.float32)
    assert f.float_conv2d(x, weight=ones, bias=bias, **options).item() == 0
    assert f.float_conv_transpose2d(x, weight=ones.reshape(3, 1, 1, 1), bias=bias, **options).item() == 0
    assert f.float_matmul(values[None], np.ones((3, 1), np.float32), ordered=True).item() == 0


def test_padding_of_a_pool_counts_or_does_not():
    x = np.ones((1, 1, 2, 2), np.float32)
    pool: dict[str, Any] = {"kernel": [2, 2], "strides": [1, 1], "pads": [1, 1, 0, 0]}
    assert f.float_average_pool(x, **pool).tolist() == [[[[1, 1], [1, 1]]]]
    assert f.float_average_pool(x, **pool, padding_counts=True).tolist() == [[[[0.25, 0.5], [0.5, 1]]]]
    assert f.float_max_pool(-x, **pool).tolist() == [[[[-1, -1], [-1, -1]]]]


def test_softmax_and_its_logarithm():
    x = image(2, 5) * 50
    y = f.float_softmax(x, axis=1)
    assert np.allclose(y.sum(1), 1) and np.allclose(
        f.float_softmax(x, axis=1, logarithm=True)[y > 1e-9], np.log(y[y > 1e-9])
    )


def test_products_reductions_and_functions():
    x, y = image(2, 3, 4), image(4, 5)
    assert np.allclose(f.float_matmul(x, y), x @ y)
    assert np.allclose(f.float_reduce(x, function="ReduceMean", axes=[0, 2], shape=[3, 1]), x.mean((0, 2))[:, None])
    assert np.array_equal(f.float_binary(x, x, function="Sub"), 0 * x)
    assert np.array_equal(f.float_function(x, function="Neg"), -x)


X = np.array([-3, -1, -0.5, 0, 0.5, 1, 3], np.float32)


@pytest.mark.parametrize("name", f.UNARY)
def test_every_function_gives_float32_without_warnings(name):
    alpha, beta = f.DEFAULTS.get(name, (-1.0, 1.0))
    wide = np.array([-np.inf, -1e38, 0, 1e38, np.inf, np.nan], np.float32)
    for x in (X, wide):
        assert (f.unary(x, name, alpha, beta).dtype, f.unary(x, name, alpha, beta).shape) == (np.float32, x.shape)


VALUES = {
    "Gelu": lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2))),
    "HardSwish": lambda x: x * min(max(x / 6 + 0.5, 0), 1),
    "Mish": lambda x: x * math.tanh(math.log1p(math.exp(x))),
    "Sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "Softplus": lambda x: math.log1p(math.exp(x)),
}


@pytest.mark.parametrize("name", VALUES)
def test_values(name):
    assert np.allclose(f.unary(X, name), [VALUES[name](float(x)) for x in X], atol=1e-6)


def test_parameters():
    assert f.unary(X, "Clip", -1, 0.5).tolist() == [-1, -1, -0.5, 0, 0.5, 0.5, 0.5]
    assert f.unary(X, "LeakyRelu", 0.5).tolist() == [-1.5, -0.5, -0.25, 0, 0.5, 1, 3]
    assert f.unary(X, "ThresholdedRelu", 0.5).tolist() == [0, 0, 0, 0, 0, 1, 3]


def test_two_values_broadcast():
    assert f.binary(X[:2], X[:, None], "Sub").shape == (7, 2)
    assert f.binary(X, np.zeros(1, np.float32), "Div")[3:5].tolist()[1] == np.inf
    assert f.binary(X[:2], np.full(1, 0.5, np.float32), "PRelu").tolist() == [-1.5, -0.5]


@pytest.mark.parametrize("name, value", [("ReduceL2", math.sqrt(20.5)), ("ReduceMax", 3), ("ReduceProd", 0)])
def test_reductions(name, value):
    assert f.reduced(X, name, (0,)) == np.float32(value)
