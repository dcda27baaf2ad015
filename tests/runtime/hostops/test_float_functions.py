"""Functions of float32 values: exact where they are simple, and defined where IEEE 754 leaves numbers behind."""

import math

import numpy as np
import pytest

from tilewright.runtime.hostops import floats as f

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
