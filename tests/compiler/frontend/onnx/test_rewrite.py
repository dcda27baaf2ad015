"""Composed operators: each against onnxruntime."""

import numpy as np
import pytest

from tilewright.compiler import graph as g


def real(m, *shape, low=-1.0, high=1.0):
    return m.const(m.rng.uniform(low, high, shape).astype(np.float32))


def norm(m, x, c):
    return m.node("BatchNormalization", x, *(real(m, c) for _ in range(3)), real(m, c, low=0.5), name="norm")


def test_a_normalisation_is_part_of_the_convolution_before_it(qdq, compared):
    m = qdq()
    w, scale = m.weights(5, 3, 3, 3)
    y = m.node("Conv", m.quantise(m.input("x", [1, 3, 6, 6])), w, m.bias(scale), name="conv")
    m.output(m.quantise(m.node("Relu", norm(m, y, 5)), 0.1))
    graph = compared(m, 1.001, 0.02, 0.1)
    assert [type(op) for op in graph.ops] == [g.Quantize, g.QConv2d, g.Dequantize]


@pytest.mark.parametrize("shape", [(1, 5, 6, 4), (3, 5), (2, 5, 7)])
def test_a_normalisation_of_its_own_is_a_depthwise_convolution(qdq, compared, shape):
    m = qdq()
    m.output(m.quantise(m.node("Relu", norm(m, m.quantise(m.input("x", list(shape))), 5)), 0.02))
    graph = compared(m, 1.001, 0.02, 0.02)
    assert [op.groups for op in graph.ops if isinstance(op, g.QConv2d)] == [5]


def test_channels_multiplied_by_zero(qdq, compared):
    m = qdq()
    factor = np.array([0, 1, -0.5], np.float32).reshape(3, 1, 1)
    y = m.node("Mul", m.quantise(m.input("x", [1, 3, 4, 4])), m.const(factor))
    m.output(m.quantise(m.node("Add", y, m.const(np.array([[[0.3]], [[0]], [[1]]], np.float32)))))
    compared(m, 1.001, 0.2, 0.05)  # half steps, which are ties


@pytest.mark.parametrize("bias", [True, False])
def test_layer_normalisation(qdq, compared, bias):
    m = qdq()
    m.output(m.node("LayerNormalization", m.input("x", [2, 3, 8]), real(m, 8), *([real(m, 8)] if bias else [])))
    compared(m, 1e-4)


def test_instance_normalisation(qdq, compared):
    m = qdq()
    m.output(m.node("InstanceNormalization", m.input("x", [1, 3, 5, 4]), real(m, 3), real(m, 3)))
    compared(m, 1e-4)


def test_operators_on_several_inputs(qdq, compared):
    m = qdq()
    x, y, z = (m.input(name, [1, 6]) for name in "xyz")
    for kind in ("Sum", "Max", "Min"):
        m.output(m.node(kind, x, y, z))
    m.output(m.node("Sum", x, name="alone"))
    compared(m, 1e-5)


@pytest.mark.parametrize("kind", ["GlobalMaxPool", "GlobalAveragePool"])
def test_global_pools(qdq, compared, kind):
    m = qdq()
    m.output(m.quantise(m.node(kind, m.quantise(m.input("x", [1, 3, 5, 4])))))
    compared(m, 1.001, 0.3, 0.05)


def test_softmax_of_old_files_is_over_all_that_follows(qdq, compared):
    m = qdq()
    m.output(m.node("Softmax", m.input("x", [2, 3, 4]), axis=1))
    compared(m, 1e-5, opset=11)


@pytest.mark.parametrize(
    "mode, scales", [("linear", [1, 1, 2, 2]), ("linear", [1, 1, 1.5, 0.5]), ("cubic", [1, 1, 2, 2])]
)
@pytest.mark.parametrize("where", ["half_pixel", "align_corners", "asymmetric"])
def test_resizes(qdq, compared, mode, scales, where):
    m = qdq()
    attrs = {"mode": mode, "coordinate_transformation_mode": where}
    m.output(m.node("Resize", m.input("x", [1, 2, 6, 4]), "", m.const(np.array(scales, np.float32)), **attrs))
    compared(m, 1e-4)


def test_a_size_that_is_there_already(qdq, compared):
    m = qdq()
    x = m.node("Resize", m.input("x", [1, 2, 3, 4]), "", m.const(np.ones(4, np.float32)))
    m.output(m.node("Tile", m.node("Expand", x, m.const(np.array([2, 2, 3, 4]))), m.const(np.ones(4, np.int64))))
    compared(m)


def test_integers_that_are_computed_when_the_network_runs(qdq, compared):
    m = qdq()
    y, scale, zero = m.nodes_of("DynamicQuantizeLinear", [m.input("x", [2, 8])], ["q", "scale", "zero"], "dynamic")
    w = m.const(m.rng.integers(-128, 128, (8, 5)).astype(np.int8))
    sums = m.node("Cast", m.node("MatMulInteger", y, w, zero, m.const(np.int8(3))), to=1)
    m.output(m.node("Mul", sums, m.node("Mul", scale, m.const(np.float32(0.01)))))
    compared(m, 1e-3)


@pytest.mark.parametrize("size", [3, 5])
def test_local_response_normalisation(qdq, compared, size):
    m = qdq()
    m.output(m.node("LRN", m.input("x", [2, 6, 3, 4]), size=size, alpha=0.3, beta=0.6, bias=2.0))
    compared(m, 1e-5)


@pytest.mark.parametrize("swapped", [True, False])
def test_choices_that_are_known(qdq, compared, swapped):
    m = qdq()
    mask = m.const(np.tril(np.ones((4, 4), bool)))
    parts = [m.input("x", [2, 4, 4]), m.const(np.float32(-1e9))]
    m.output(m.node("Softmax", m.node("Where", mask, *(parts[::-1] if swapped else parts)), axis=-1))
    compared(m, 1e-5)


def test_a_dropout_of_two_results(qdq, compared):
    m = qdq()
    y, _ = m.nodes_of("Dropout", [m.input("x", [2, 4])], ["y", "mask"], "dropout")
    m.output(m.node("Neg", y))
    compared(m)


def test_a_softmax_of_fine_steps_is_not_in_fixed_point(qdq, compared):
    m = qdq()
    m.output(m.quantise(m.node("Softmax", m.quantise(m.input("x", [2, 100])), axis=-1), 0.0005, -128))
    compared(m, 1.001, 0.01, 0.0005)
