"""Operators on several operands: each against onnxruntime."""

import numpy as np
import pytest

from tilewright.compiler import graph as g


def test_operators_on_several_inputs(m, compared):
    x, y, z = (m.input(name, [1, 6]) for name in "xyz")
    for kind in ("Sum", "Max", "Min"):
        m.output(m.node(kind, x, y, z))
    m.output(m.node("Sum", x, name="alone"))
    compared(m, 1e-5)


def test_integers_that_are_computed_when_the_network_runs(m, compared):
    y, scale, zero = m.nodes_of("DynamicQuantizeLinear", [m.input("x", [2, 8])], ["q", "scale", "zero"], "dynamic")
    # 7 bits: without VNNI onnxruntime's sums of two products of uint8 and int8 saturate at 16 bits
    w = m.const(m.rng.integers(-64, 64, (8, 5)).astype(np.int8))
    sums = m.node("Cast", m.node("MatMulInteger", y, w, zero, m.const(np.int8(3))), to=1)
    m.output(m.node("Mul", sums, m.node("Mul", scale, m.const(np.float32(0.01)))))
    compared(m, 1e-3)


@pytest.mark.parametrize("swapped", [True, False])
def test_choices_that_are_known(m, compared, swapped):
    mask = m.const(np.tril(np.ones((4, 4), bool)))
    parts = [m.input("x", [2, 4, 4]), m.const(np.float32(-1e9))]
    m.output(m.node("Softmax", m.node("Where", mask, *(parts[::-1] if swapped else parts)), axis=-1))
    compared(m, 1e-5)


def test_a_dropout_of_two_results(m, compared):
    y, _ = m.nodes_of("Dropout", [m.input("x", [2, 4])], ["y", "mask"], "dropout")
    m.output(m.node("Neg", y))
    compared(m)


@pytest.mark.parametrize("kind, attrs", [("Celu", {"alpha": 0.7}), ("Shrink", {"bias": 0.2, "lambd": 0.4})])
def test_functions_of_functions(m, compared, kind, attrs):
    m.output(m.node(kind, m.input("x", [2, 9]), **attrs))
    compared(m, 1e-5)


def test_a_function_of_functions_is_one_table(m, compared):
    m.output(m.quantise(m.node("Celu", m.quantise(m.input("x", [2, 9]))), 0.02))
    graph = compared(m, 1.001, 0.02, 0.02)
    assert sum(isinstance(op, g.Lookup) for op in graph.ops) == 1


@pytest.mark.parametrize("kind, count", [("BiasGelu", 2), ("FastGelu", 1), ("FastGelu", 2), ("QuickGelu", 1)])
def test_onnxruntimes_own_functions(m, compared, kind, count):
    more = [m.const(np.linspace(-1, 1, 9).astype(np.float32))] * (count - 1)
    m.output(m.nodes_of(kind, [m.input("x", [2, 9]), *more], ["y"], "gelu", domain="com.microsoft")[0])
    compared(m, 1e-5)


@pytest.mark.parametrize("kind", ["ReduceLogSum", "ReduceLogSumExp"])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_logarithms_of_sums(m, compared, kind, keepdims):
    x = m.node("Abs", m.input("x", [2, 3, 4]))
    m.output(m.node(kind, x, axes=[0, 2], keepdims=keepdims))
    compared(m, 1e-5)
