"""What float operators need and give: declared results against those of the operators, and steps that lie."""

import numpy as np
import pytest

from tilewright.hw.errors import ProgramError
from tilewright.runtime.hostops import HOST_OPS
from tilewright.runtime.hostshapes import Operand

IMAGE = (2, 6, 7, 9)
POOL = {"kernel": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
CONV = {"weight": np.ones((4, 3, 3, 2), np.float32), "bias": np.zeros(4, np.float32)}
CONV |= {"strides": [2, 1], "pads": [1, 0, 2, 1], "dilations": [2, 1], "groups": 2}
BACK = {"weight": np.ones((6, 2, 3, 2), np.float32), "bias": np.zeros(4, np.float32)}
BACK |= {"strides": [2, 3], "pads": [1, 0, -2, 1], "dilations": [1, 2], "groups": 2}
LSTM = {"weight": np.ones((20, 4), np.float32), "recurrence": np.ones((20, 5), np.float32)}
LSTM |= {"bias": np.ones(20, np.float32), "reverse": True}
GOOD = {
    "float_function": ([IMAGE], {"function": "Clip", "alpha": 0.0, "beta": 6.0}),
    "float_binary": ([IMAGE, (6, 1, 1)], {"function": "Mul"}),
    "float_reduce": ([IMAGE], {"function": "ReduceMean", "axes": [2, 3], "shape": [2, 6]}),
    "float_softmax": ([IMAGE], {"axis": 1, "logarithm": True}),
    "float_matmul": ([IMAGE, (9, 4)], {}),
    "float_lstm": ([(3, 2, 4)], LSTM),
    "float_conv2d": ([IMAGE], CONV),
    "float_conv_transpose2d": ([IMAGE], BACK),
    "float_max_pool": ([IMAGE], POOL),
    "float_average_pool": ([IMAGE], POOL | {"padding_counts": True}),
}
LIES = [
    ("float_function", {"function": "Strange"}, "must be one of Abs"),
    ("float_function", {"alpha": float("nan")}, "must be a number"),
    ("float_reduce", {"axes": [2, 2]}, "are not those of"),
    ("float_softmax", {"axis": 4}, "4 dimensions"),
    ("float_conv2d", {"weight": np.ones((4, 6, 3, 2), np.float32)}, "needs 12 channels, not 6"),
    ("float_conv2d", {"weight": np.full((4, 3, 3, 2), np.inf, np.float32)}, "must be an array, float32"),
    ("float_conv_transpose2d", {"groups": 4}, "in 4 groups does not fit 6 channels"),
    ("float_conv_transpose2d", {"pads": [9, 9, 9, 9]}, "leave nothing"),
    ("float_lstm", {"bias": np.ones(5, np.float32)}, "do not fit 4"),
    ("float_max_pool", {"kernel": [20, 2]}, "do not fit an image"),
    ("float_average_pool", {"padding_counts": False, "pads": [3, 0, 0, 0]}, "hold padding alone"),
]


def declared(name, shapes, attrs):
    return HOST_OPS[name].result([Operand(shape, "float32") for shape in shapes], attrs)


def test_every_operator_is_among_them():
    assert set(GOOD) == {name for name in HOST_OPS if name.startswith("float_")}


@pytest.mark.parametrize("name", GOOD)
def test_the_result_is_the_declared_one(name):
    shapes, attrs = GOOD[name]
    (result,) = HOST_OPS[name]([np.ones(shape, np.float32) for shape in shapes], attrs)
    assert (result.shape, str(result.dtype)) == declared(name, shapes, attrs)[:2]


@pytest.mark.parametrize("name, change, text", LIES)
def test_steps_that_lie(name, change, text):
    shapes, attrs = GOOD[name]
    with pytest.raises(ProgramError, match=text):
        declared(name, shapes, attrs | change)


@pytest.mark.parametrize("name, shapes", [("float_matmul", [(2, 3), (4, 5)]), ("float_binary", [(2, 3), (4, 3)])])
def test_operands_that_do_not_fit(name, shapes):
    with pytest.raises(ProgramError, match="do not broadcast|not matrices"):
        declared(name, shapes, GOOD[name][1])
