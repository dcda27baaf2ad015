"""Names and shapes of the graph in the making."""

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.frontend.onnx.builder import Builder
from tilewright.compiler.frontend.onnx.nodes import Node
from tilewright.compiler.frontend.onnx.values import Problem

X = g.Tensor("x", (1, 2, 5), scale=0.5, zero_point=3)


def test_names_are_unique_and_outputs_keep_theirs():
    builder = Builder({"out"})
    first = builder.append(g.Reshape("out", (X,), X))
    second = builder.append(g.Reshape("out", (first,), X), "out")
    assert (first.name, second.name) == ("out.out", "out")
    assert [op.name for op in builder.ops] == ["out", "out'"]


def test_rows_are_images():
    builder = Builder(set())
    image = builder.image("a", X)
    assert image.shape == (1, 2, 1, 5) and builder.image("b", image) is image
    op = g.MaxPool("pool", (image,), g.Tensor("", (1, 2, 1, 4), scale=0.5, zero_point=3), (1, 2))
    assert builder.plain(op, (1, 2, 4), "y").shape == (1, 2, 4)
    assert [op.name for op in builder.ops] == ["a.image", "pool", "pool.shape"]


def test_constants():
    builder = Builder(set())
    assert builder.constant("k", np.array(2.0)).shape == (1,)
    named = builder.constant("k", np.ones((2, 1), np.int8), X)
    assert (named.name, named.dtype, named.scale) == ("k'", "int8", 0.5)


def test_integers_beyond_int32_name_the_node():
    y = g.Tensor("", X.shape, scale=1e-30)
    with pytest.raises(Problem, match="scales accumulators"):
        Builder(set()).checked(Node("Relu", "it", [], []), g.Requantize("it", (X,), y))
