"""Integers that files hold in other types."""

import numpy as np
import onnx
import pytest

from tilewright.compiler.frontend.core import Node, Problem
from tilewright.compiler.frontend.onnx.deeploy_values import attribute, whole

TENSOR = onnx.numpy_helper.from_array(np.array([65536], np.float32))
NODE = Node("RequantShift", "it", [], [], {"div": TENSOR, "n_levels": 256.0, "list": [3.0], "two": [1, 2], "s": b"a"})


def test_attributes_are_numbers_lists_or_tensors():
    assert [attribute(NODE, name) for name in ("div", "n_levels", "list")] == [65536, 256, 3]
    assert attribute(NODE, "n_levels_out", "n_levels") == 256


@pytest.mark.parametrize(
    ("name", "message"),
    [("signed", "no attribute 'signed'"), ("two", "2 values of 'two'"), ("s", "s of type .*, which are no integers")],
)
def test_attributes_that_are_refused(name, message):
    with pytest.raises(Problem, match=message):
        attribute(NODE, name)


@pytest.mark.parametrize("value", [0.5, np.nan, np.inf, 2.0**31])
def test_other_numbers_are_refused(value):
    with pytest.raises(Problem, match="which is no integer of 32 bits"):
        whole(NODE, np.array([1.0, value]), "weights")
    assert whole(NODE, np.array([-3, 7], np.float32), "weights").tolist() == [-3, 7]
