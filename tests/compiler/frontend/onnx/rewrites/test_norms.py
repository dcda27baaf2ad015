"""Normalisations: each against onnxruntime."""

import numpy as np
import pytest

from tilewright.compiler import graph as g


def real(m, *shape, low=-1.0, high=1.0):
    return m.const(m.rng.uniform(low, high, shape).astype(np.float32))


def norm(m, x, c):
    return m.node("BatchNormalization", x, *(real(m, c) for _ in range(3)), real(m, c, low=0.5), name="norm")


def test_a_normalisation_is_part_of_the_convolution_before_it(m, compared):
    w, scale = m.weights(5, 3, 3, 3)
    y = m.node("Conv", m.quantise(m.input("x", [1, 3, 6, 6])), w, m.bias(scale), name="conv")
    m.output(m.quantise(m.node("Relu", norm(m, y, 5)), 0.1))
    graph = compared(m, 1.001, 0.02, 0.1)
    assert [type(op) for op in graph.ops] == [g.Quantize, g.QConv2d, g.Dequantize]


@pytest.mark.parametrize("shape", [(1, 5, 6, 4), (3, 5), (2, 5, 7)])
def test_a_normalisation_of_its_own_is_a_depthwise_convolution(m, compared, shape):
    m.output(m.quantise(m.node("Relu", norm(m, m.quantise(m.input("x", list(shape))), 5)), 0.02))
    graph = compared(m, 1.001, 0.02, 0.02)
    assert [op.groups for op in graph.ops if isinstance(op, g.QConv2d)] == [5]


def test_channels_multiplied_by_zero(m, compared):
    factor = np.array([0, 1, -0.5], np.float32).reshape(3, 1, 1)
    y = m.node("Mul", m.quantise(m.input("x", [1, 3, 4, 4])), m.const(factor))
    m.output(m.quantise(m.node("Add", y, m.const(np.array([[[0.3]], [[0]], [[1]]], np.float32)))))
    compared(m, 1.001, 0.2, 0.05)  # half steps, which are ties


@pytest.mark.parametrize(
    "kind, shape, constants, attrs, most, opset",
    [
        ("GroupNormalization", [2, 6, 3, 4], [6, 6], {"num_groups": 2}, 1e-4, 21),
        ("InstanceNormalization", [1, 3, 5, 4], [3, 3], {}, 1e-4, 17),
        ("LRN", [2, 6, 3, 4], [], {"size": 3, "alpha": 0.3, "beta": 0.6, "bias": 2.0}, 1e-5, 17),
        ("LRN", [2, 6, 3, 4], [], {"size": 5, "alpha": 0.3, "beta": 0.6, "bias": 2.0}, 1e-5, 17),
        ("LayerNormalization", [2, 3, 8], [8, 8], {}, 1e-4, 17),
        ("LayerNormalization", [2, 3, 8], [8], {}, 1e-4, 17),
        ("MeanVarianceNormalization", [2, 3, 4, 5], [], {}, 1e-4, 17),
        ("RMSNormalization", [2, 3, 8], [8], {"epsilon": 1e-3}, 1e-4, 23),
        ("Softmax", [2, 3, 4], [], {"axis": 1}, 1e-5, 11),  # of old files: over all that follows
    ],
)
def test_normalisations(m, compared, kind, shape, constants, attrs, most, opset):
    m.output(m.node(kind, m.input("x", shape), *(real(m, n) for n in constants), **attrs))
    compared(m, most, opset=opset)


def test_a_softmax_of_fine_steps_is_not_in_fixed_point(m, compared):
    m.output(m.quantise(m.node("Softmax", m.quantise(m.input("x", [2, 100])), axis=-1), 0.0005, -128))
    compared(m, 1.001, 0.01, 0.0005)


@pytest.mark.parametrize("p", [1, 2])
def test_vectors_of_length_1(m, compared, p):
    x = m.node("Mul", m.input("x", [2, 3, 8]), m.const(np.array([[[1]], [[0]]], np.float32)))
    m.output(m.node("LpNormalization", x, axis=-1, p=p))
    compared(m, 1e-5)


@pytest.mark.parametrize("bias", [True, False])
def test_normalisation_of_a_sum(m, compared, bias):
    x, y = m.input("x", [2, 3, 8]), m.input("y", [2, 3, 8])
    more = [real(m, 8), real(m, 8)] if bias else []
    outputs = ["normalised", "", "", "total"] if bias else ["normalised"]
    found = m.nodes_of("SkipLayerNormalization", [x, y, real(m, 8), *more], outputs, "skip", domain="com.microsoft")
    m.output(found[0])
    if bias:
        m.output(m.node("Neg", found[3]))
    compared(m, 1e-4)
