"""What is known of a file's tensors while it is read."""

import numpy as np
import onnx
import pytest

from tilewright.compiler.frontend.onnx.nodes import Node, Reader
from tilewright.compiler.frontend.onnx.reading import Reading
from tilewright.compiler.frontend.onnx.values import Broken, Fixed, Problem
from tilewright.runtime.schema import MOST

NODE = Node("Slice", "it", [], [])


@pytest.fixture
def reading():
    graph = onnx.helper.make_graph(
        [], "g", [], [], [onnx.numpy_helper.from_array(np.array([2, 1]), "ints"),
                          onnx.numpy_helper.from_array(np.array(0.5, np.float32), "half")]
    )  # fmt: skip
    return Reading(Reader(onnx.helper.make_model(graph), {}), ["y"])


def test_constants_have_values(reading):
    assert reading.integers(NODE, "ints", "bounds") == [2, 1] and reading.number(NODE, "half") == 0.5
    assert reading.shape(NODE, "ints") == (2,) and reading.outputs == ["y"]
    assert isinstance(reading.value("ints"), Fixed) and isinstance(reading.value("other"), Broken)
    assert reading.value("") is None


def test_what_is_not_constant_is_refused(reading):
    for call, message in (
        (lambda: reading.integers(NODE, "half", "bounds"), "has bounds that are not constant"),
        (lambda: reading.number(NODE, "ints"), "has a value that is not constant"),
        (lambda: reading.shape(NODE, "other"), "depends on values"),
    ):
        with pytest.raises(Problem, match=message):
            call()
    reading.reader.shapes["large"] = (MOST + 1,)
    with pytest.raises(Problem, match="at most"):
        reading.shape(NODE, "large")
