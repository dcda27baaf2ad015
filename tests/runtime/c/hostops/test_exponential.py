"""Exponentials of float32, in C."""

import numpy as np
import pytest

from tilewright.hw.errors import UnsupportedError

RNG = np.random.default_rng(7)
EDGES = [0.0, -0.0, np.inf, -np.inf, np.nan, 88.7, 88.8, -87.4, -103.9, -104.0, 200.5, -200.5, 1e-45, 16.619047, -9.0]


@pytest.mark.parametrize("function", ["exp", "logistic"])
def test_functions(same, function):
    x = np.concatenate([EDGES, RNG.uniform(-110, 95, 50_000), RNG.normal(size=50_000)]).astype(np.float32)
    same("number_function", x, function=function)
    same(
        "number_function",
        np.nextafter(np.array([88.72284, -9, 16.619047], np.float32), np.float32(0)),
        function=function,
    )


def test_softmax(same, in_c):
    for shape, axis in (((3, 40), 1), ((2, 5, 4), 1), ((1,), 0), ((6, 1), 1)):
        same("float_softmax", RNG.normal(size=shape).astype(np.float32) * 20, axis=axis)
    same("float_softmax", np.array([EDGES, [1.0] * len(EDGES)], np.float32), axis=1)
    same("float_softmax", np.array([EDGES, [1.0] * len(EDGES)], np.float32), axis=0)
    with pytest.raises(UnsupportedError, match="host operator 'float_softmax' has no C kernel for logarithms"):
        in_c("float_softmax", np.ones((1, 4), np.float32), axis=1, logarithm=True)
