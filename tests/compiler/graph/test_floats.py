"""What the float32 operators of a graph refuse, and their work."""

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.hw.errors import InputError

X = g.Tensor("x", (1, 4, 6, 6), "float32")


def y(*shape, dtype="float32"):
    return g.Tensor("y", shape, dtype)


def weights(*shape):
    return np.ones(shape, np.float32), np.zeros(shape[0], np.float32)


def lstm(units, hidden, features):
    """An LSTM on (3, 2, 4) that gives (3, 2, units)."""
    shapes = (4 * hidden, features), (4 * hidden, hidden), (4 * hidden,)
    w, r, b = (np.ones(shape, np.float32) for shape in shapes)
    return g.FloatLstm("op", (y(3, 2, 4),), y(3, 2, units), w, r, b)


WRONG = {
    "the conversion is": lambda: g.FloatFunction("op", (X,), y(1, 4, 6, 6, dtype="int8"), "Exp"),
    "the output's shape is": lambda: g.FloatFunction("op", (X,), y(1, 4, 6), "Exp"),
    "the number of operands is": lambda: g.FloatBinary("op", (X,), X, "Add"),
    "the number of elements of the output is": lambda: g.FloatReduce("op", (X,), y(4, 2), "ReduceSum", (2, 3)),
    "whether the axis exists is": lambda: g.FloatSoftmax("op", (X,), y(1, 4, 6, 6), 4),
    "the number of rows of the second operand is": lambda: g.FloatMatMul("op", (X, y(5, 2)), y(1, 4, 6, 2)),
    "the weights' shapes is": lambda: lstm(5, 5, 3),
    "the output's shape is \\(3, 2, 6": lambda: lstm(6, 5, 4),
    "the number of input channels is": lambda: g.FloatConv2d("op", (X,), y(1, 2, 6, 6), *weights(2, 3, 1, 1)),
    "the number of output channels is": lambda: g.FloatConvTranspose2d("op", (X,), y(1, 3, 6, 6), *weights(4, 2, 1, 1)),
}


@pytest.mark.parametrize("text", WRONG)
def test_what_does_not_fit_is_refused(text):
    with pytest.raises(InputError, match=text):
        WRONG[text]()


def test_pools_check_their_windows():
    with pytest.raises(InputError, match="the output's shape"):
        g.FloatMaxPool("op", (X,), y(1, 4, 3, 3), (2, 2))


def test_work():
    assert g.FloatConv2d("op", (X,), y(1, 2, 6, 6), *weights(2, 4, 1, 1)).macs == 2 * 4 * 36
    assert g.FloatConvTranspose2d("op", (X,), y(1, 2, 7, 7), *weights(4, 2, 2, 2)).macs == 4 * 36 * 8
    assert lstm(5, 5, 4).macs == 3 * 2 * 20 * 9
    assert g.FloatMatMul("op", (X, y(6, 5)), y(1, 4, 6, 5)).macs == 4 * 6 * 5 * 6
