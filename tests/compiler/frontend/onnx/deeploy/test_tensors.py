"""Values as tensors: rows, shapes that are made once, int8 where the bits allow it, else int32."""

import numpy as np
import onnx
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.frontend.core import Node
from tilewright.compiler.frontend.onnx.deeploy_values import EVERY, UNSIGNED, Pair, Table, Tensors
from tilewright.compiler.frontend.onnx.nodes import Reader
from tilewright.compiler.frontend.values import Fixed, View

NODE = Node("Relu", "it", [], [])


@pytest.fixture
def imp():
    return Tensors(Reader(onnx.ModelProto(), {}), [])


def test_shapes_are_made_once(imp):
    view = View((1, 3, 4), g.Tensor("x", (1, 3, 4)))
    rows = imp.rows(view)
    assert rows.shape == (3, 4) and imp.rows(view) is rows and imp.natural(view) is view.tensor
    assert imp.rows(View((5,), g.Tensor("y", (5,)))).shape == (1, 5) and len(imp.ops) == 2


def test_functions_within_eight_bits_are_tables(imp):
    x = g.Tensor("x", (1, 4))
    assert imp.narrow(NODE, Table((1, 4), x, EVERY)).tensor is x
    rectified = imp.narrow(NODE, Table((1, 4), x, np.maximum(EVERY, 0) * 2))
    assert rectified.tensor.zero_point == UNSIGNED and isinstance(imp.ops[-1], g.Lookup)
    assert imp.ops[-1].table[[0, 128, 255]].tolist() == [-128, -128, 126]
    assert imp.narrow(NODE, Table((1, 4), x, EVERY * 3)) is None
    assert imp.narrow(NODE, Pair((1, 4), NODE, "Add", x, x)) is None


def test_constants_within_eight_bits(imp):
    assert imp.constant8(NODE, Fixed((2,), np.array([-128, 127], np.float32))).data.tolist() == [-128, 127]
    assert imp.constant8(NODE, Fixed((1,), np.array([128], np.float32))) is None
    wide = imp.integers32("name", np.array(1 << 20)), imp.integers32("name", np.array(3))
    assert [t.name for t in wide] == ["name", "name'"] and wide[0].shape == (1,) and wide[0].dtype == "int32"


def test_zero_points_are_subtracted_of_wide_values(imp):
    imp.widened("it", g.Tensor("x", (1, 4)))
    imp.whole(NODE, View((1, 4), g.Tensor("y", (1, 4), zero_point=UNSIGNED)))
    assert [type(op) for op in imp.ops] == [g.Cast, g.Cast, g.NumberBinary]
