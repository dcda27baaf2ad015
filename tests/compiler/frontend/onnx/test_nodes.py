"""Constants that are evaluated, shapes that are inferred."""

import numpy as np
import pytest

from tilewright.compiler.frontend.onnx import import_onnx
from tilewright.compiler.frontend.onnx.file import named_nodes
from tilewright.compiler.frontend.onnx.nodes import Reader
from tilewright.hw.errors import FileError


def ints(m, *values):
    return m.const(np.array(values, np.int64))


def read(m):
    reader = Reader(m.proto(), {})
    reader.read(named_nodes(m.proto()))
    return reader


def test_arithmetic_of_shapes_is_done_when_the_file_is_read(m):
    x = m.input("x", [2, 3, 4])
    size = m.node("Gather", m.node("Shape", x), ints(m, 0), axis=0)
    rest = m.node("Mul", m.node("Slice", m.node("Shape", x), ints(m, 1), ints(m, 2)), ints(m, 2))
    whole = m.node("Div", m.node("Size", x), m.node("Mul", size, rest))
    m.output(m.node("Reshape", x, m.node("Concat", size, rest, whole, axis=0)))
    reader = read(m)
    assert [node.op for node in reader.nodes] == ["Reshape"]
    assert reader.shapes[reader.nodes[0].outputs[0]] == (2, 6, 2)


def test_weights_that_the_file_quantises(m, compared):
    """A constant may pass QuantizeLinear itself."""
    w = m.const(m.rng.normal(0, 0.3, (4, 3)).astype(np.float32))
    p = m.const(np.full(3, 0.01, np.float32)), m.const(np.zeros(3, np.int8))
    w = m.node("DequantizeLinear", m.node("QuantizeLinear", w, *p, axis=1), *p, axis=1)
    m.output(m.quantise(m.node("MatMul", m.quantise(m.input("x", [1, 4])), w)))
    graph = compared(m, 1.001, 0.05, 0.05)
    assert graph.layers


def test_real_constants(m):
    p = m.const(np.array([1, 2], np.int8)), m.const(np.float32(0.5)), m.const(np.int8(1))
    y = m.node("DequantizeLinear", *p)
    m.output(m.node("Add", m.input("x", [2]), y))
    reader = read(m)
    assert np.array_equal(np.array(reader.real(y)), [0, 0.5]) and reader.real("x") is None and reader.value(y) is None


@pytest.mark.parametrize("keep", [0, 1])
def test_reductions_have_shapes_of_their_own(m, keep):
    m.output(m.node("ReduceMean", m.input("x", [2, 3, 4]), axes=[-1, 0], keepdims=keep))
    reader = read(m)
    assert reader.shapes[reader.nodes[0].outputs[0]] == ((1, 3, 1) if keep else (3,))


def test_contradictions_are_damage(m):
    m.output(m.node("MatMul", m.input("x", [2, 3]), m.const(np.ones((4, 5), np.float32)), name="it"))
    model = m.save()
    with pytest.raises(FileError, match="shapes or types are inconsistent .MatMul 'it'"):
        import_onnx(model)
