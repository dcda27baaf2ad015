"""Names and shapes of the graph in the making, and what is known of the file's tensors."""

import numpy as np
import onnx
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.frontend.core import Builder, Node, Problem
from tilewright.compiler.frontend.onnx.nodes import Reader, Reading
from tilewright.compiler.frontend.values import Broken, Fixed
from tilewright.runtime.schema import MOST

X = g.Tensor("x", (1, 2, 5), scale=0.5, zero_point=3)


def test_names_are_unique_and_outputs_keep_theirs():
    builder = Builder(frozenset({"out"}))
    first = builder.append(g.Reshape("out", (X,), X))
    second = builder.append(g.Reshape("out", (first,), X), "out")
    assert (first.name, second.name) == ("out.out", "out")
    assert [op.name for op in builder.ops] == ["out", "out'"]


def test_rows_are_images():
    builder = Builder(frozenset())
    image = builder.image("a", X)
    assert image.shape == (1, 2, 1, 5) and builder.image("b", image) is image
    op = g.MaxPool("pool", (image,), g.Tensor("", (1, 2, 1, 4), scale=0.5, zero_point=3), (1, 2))
    assert builder.plain(op, (1, 2, 4), "y").shape == (1, 2, 4)
    assert [op.name for op in builder.ops] == ["a.image", "pool", "pool.shape"]


def test_constants():
    builder = Builder(frozenset())
    assert builder.constant("k", np.array(2.0)).shape == (1,)
    named = builder.constant("k", np.ones((2, 1), np.int8), X)
    assert (named.name, named.dtype, named.scale) == ("k'", "int8", 0.5)


def test_integers_beyond_int32_name_the_node():
    y = g.Tensor("", X.shape, scale=1e-30)
    with pytest.raises(Problem, match="scales accumulators"):
        Builder(frozenset()).checked(Node("Relu", "it", [], []), g.Requantize("it", (X,), y))


SLICE = Node("Slice", "it", [], [])


@pytest.fixture
def reading():
    graph = onnx.helper.make_graph(
        [], "g", [], [], [onnx.numpy_helper.from_array(np.array([2, 1]), "ints"),
                          onnx.numpy_helper.from_array(np.array(0.5, np.float32), "half")]
    )  # fmt: skip
    return Reading(Reader(onnx.helper.make_model(graph), {}), ["y"])


def test_constants_have_values(reading):
    assert reading.integers(SLICE, "ints", "bounds") == [2, 1] and reading.number(SLICE, "half") == 0.5
    assert reading.shape(SLICE, "ints") == (2,) and reading.outputs == ["y"]
    assert isinstance(reading.value("ints"), Fixed) and isinstance(reading.value("other"), Broken)
    assert reading.value("") is None


def test_what_is_not_constant_is_refused(reading):
    for call, message in (
        (lambda: reading.integers(SLICE, "half", "bounds"), "has bounds that are not constant"),
        (lambda: reading.number(SLICE, "ints"), "has a value that is not constant"),
        (lambda: reading.shape(SLICE, "other"), "depends on values"),
    ):
        with pytest.raises(Problem, match=message):
            call()
    reading.reader.shapes["large"] = (MOST + 1,)
    with pytest.raises(Problem, match="at most"):
        reading.shape(SLICE, "large")
