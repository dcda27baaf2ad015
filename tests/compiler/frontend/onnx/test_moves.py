"""Movements: exact on int8 tensors and on float32 ones."""

import numpy as np
import onnx
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.frontend.onnx import import_onnx
from tilewright.compiler.graph import reference


def ints(m, *values):
    return m.const(np.array(values, np.int64))


MOVES = {
    "Flatten": lambda m, x: m.node("Flatten", x, axis=2),
    "Gather one": lambda m, x: m.node("Gather", x, m.const(np.int64(-1)), axis=1),
    "Gather some": lambda m, x: m.node("Gather", x, ints(m, 2, 0, 0, 3), axis=2),
    "Gather a matrix": lambda m, x: m.node("Gather", x, m.const(np.array([[0, 2], [1, 1]])), axis=3),
    "MaxPool": lambda m, x: m.node("MaxPool", x, kernel_shape=[3, 2], strides=[2, 2], ceil_mode=1),
    "MaxPool padded": lambda m, x: m.node("MaxPool", x, kernel_shape=[3, 3], auto_pad="SAME_UPPER", strides=[2, 2]),
    "Pad edge": lambda m, x: m.node("Pad", x, ints(m, 0, 0, 1, 2, 0, 0, 0, 1), mode="edge"),
    "Pad reflect": lambda m, x: m.node("Pad", x, ints(m, 0, 0, 1, 2, 0, 0, 2, 1), mode="reflect"),
    "Pad zeros": lambda m, x: m.node("Pad", x, ints(m, 0, 1, 0, 2, 0, 0, 2, 1)),
    "Pad and cut": lambda m, x: m.node("Pad", x, ints(m, 0, 0, -1, 2, 0, 0, 2, -1)),
    "Reshape": lambda m, x: m.node("Reshape", x, ints(m, 0, -1, 2)),
    "Resize twice": lambda m, x: m.node("Resize", x, "", m.const(np.array([1, 1, 2, 2], np.float32))),
    "Resize to a size": lambda m, x: m.node("Resize", x, "", "", ints(m, 1, 3, 9, 4), nearest_mode="ceil"),
    "Slice": lambda m, x: m.node("Slice", x, ints(m, 3, 0), ints(m, -9, 4), ints(m, 2, 3), ints(m, -2, 3)),
    "Split": lambda m, x: m.nodes_of("Split", [x, ints(m, 1, 2)], ["a", "b"], "split", axis=1)[1],
    "SpaceToDepth": lambda m, x: m.node("SpaceToDepth", x, blocksize=2),
    "Tile": lambda m, x: m.node("Tile", x, ints(m, 1, 2, 1, 3)),
    "Transpose": lambda m, x: m.node("Transpose", x),
    "Unsqueeze": lambda m, x: m.node("Squeeze", m.node("Unsqueeze", x, ints(m, 0)), ints(m, 1)),
}


@pytest.mark.parametrize("quantised", [True, False])
@pytest.mark.parametrize("name", MOVES)
def test_movements_are_exact(m, compared, name, quantised):
    x = m.input("x", [1, 3, 4, 6])
    y = MOVES[name](m, m.quantise(x) if quantised else x)
    m.output(m.quantise(y) if quantised else y)
    graph = compared(m, 0)
    if quantised:
        assert not any(t.dtype == "float32" for op in graph.ops[1:] for t in op.inputs if op is not graph.ops[-1])


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space(m, compared, mode):
    m.output(m.node("DepthToSpace", m.quantise(m.input("x", [1, 8, 2, 3])), blocksize=2, mode=mode))
    compared(m, 0)


def test_movements_come_after_quantisation(m, compared):
    """The input is quantised first: int8 moves a quarter of the bytes."""
    x = m.node("Transpose", m.input("x", [1, 4, 5, 2]), perm=[0, 3, 1, 2], name="turn")
    m.output(m.quantise(m.node("Relu", m.node("Reshape", x, ints(m, 2, 20)), name="relu"), 0.05))
    graph = compared(m, 0)
    assert [type(op) for op in graph.ops][:2] == [g.Quantize, g.NearestRequantize]
    assert [op.name for op in graph.ops if isinstance(op, g.Transpose)] == ["turn"]
    assert not any(isinstance(op, g.FloatOperator) for op in graph.ops)


def test_positions_outside_are_refused(m, refusal):
    m.output(m.quantise(m.node("Gather", m.quantise(m.input("x", [1, 3, 4, 6])), ints(m, 0, 9), axis=1)))
    onnx.save(m.proto(), m.folder / "net.onnx")
    assert "reads position 9 of a dimension of 3" in refusal(m.folder / "net.onnx")


def test_many_pieces_are_taken_at_once(m, compared):
    x = m.quantise(m.input("x", [1, 900]))
    m.output(m.node("Gather", x, m.const(m.rng.permutation(900)), axis=1))
    compared(m)


def test_an_input_is_an_output_of_another_name(m):
    x = m.input("x", [1, 4])
    m.output(m.quantise(x))
    m.output(x)
    graph = import_onnx(m.save())
    given = np.array([[1, 2, 3, 4]], np.float32)
    outputs, _ = reference.run(graph, {"x": given})
    assert np.array_equal(outputs[graph.outputs[1].name], given) and graph.outputs[1].name == "x'"
