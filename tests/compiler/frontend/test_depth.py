"""Networks of many operators in a row: import without recursion, and work in proportion to the operators."""

import sys
from functools import partial

import numpy as np
import onnx
import pytest

from tilewright.compiler import reference
from tilewright.compiler.frontend import import_model
from tilewright.compiler.network import compile_for
from tilewright.hw.config import load_config


def lines_of(function):
    """The lines of Python that a call executes: unlike its time, a fixed number."""
    count, before = 0, sys.gettrace()

    def trace(frame, event, argument):
        nonlocal count
        count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


def convolutions(m, n):
    """Float convolutions that permute four channels, each with a Relu: the values stay."""
    x = m.input("x", [1, 4, 4, 4])
    for k in range(n):
        weight = np.eye(4, dtype=np.float32)[m.rng.permutation(4)].reshape(4, 4, 1, 1)
        x = m.node("Relu", m.node("Conv", x, m.const(weight), name=f"conv{k}"))
    return x


@pytest.mark.parametrize("dynamic", [False, True])
def test_many_convolutions_in_float32_or_dynamically_quantised(m, onnxruntime_outputs, dynamic):
    from onnxruntime.quantization import quantize_dynamic

    m.output(convolutions(m, 300 if not dynamic else 100))
    path = m.save()
    if dynamic:
        quantize_dynamic(path, path)
    graph = import_model(path)
    x = {"x": m.rng.uniform(0.1, 1, (1, 4, 4, 4)).astype(np.float32)}
    (mine,), (expected,) = reference.run(graph, x)[0].values(), onnxruntime_outputs(path, x).values()
    assert np.abs(mine - expected).max() <= 1e-4
    assert len(np.unique(mine)) > 40


def doubled_and_halved(m, x, k):
    return m.node("Mul", x, m.const(np.array([0.5], np.float32))) if k % 2 else m.node("Add", x, x)


def joined_and_cut(m, x, k):
    bounds = [m.const(np.array([n])) for n in (0, 4, 3)]
    return m.node("Slice", x, *bounds) if k % 2 else m.node("Concat", x, x, axis=3)


def clamped(m, x, k):
    return m.node("Clip", x, m.const(np.float32(-100)), m.const(np.float32(100 + k)))


def transposed(m, x, k):
    return m.node("Transpose", x, perm=[0, 1, 3, 2])


def multiplied(m, x, k):
    return m.node("Mul", x, m.const(np.array([0.5 if k % 2 else 2], np.float32)))


@pytest.mark.parametrize("step", [doubled_and_halved, joined_and_cut, clamped, transposed, multiplied])
def test_expressions_of_2000_operators_between_integers(m, step):
    """Each is the identity, and reads its operand up to twice: what visits operands twice takes 2**1000 visits."""
    x = m.quantise(m.input("x", [1, 2, 4, 4]))
    for k in range(2000):
        x = step(m, x, k)
    m.output(m.quantise(x))
    values = m.rng.uniform(-5, 5, (1, 2, 4, 4)).astype(np.float32)
    (y,) = reference.run(import_model(m.save()), {"x": values})[0].values()
    np.testing.assert_array_equal(
        y, (np.clip(np.rint(values / np.float32(0.05)) + 3, -128, 127) - 3) * np.float32(0.05)
    )


def float_chain(qdq, tflite, n):
    m = qdq()
    m.output(convolutions(m, n // 2))
    return m.save()


def qdq_chain(qdq, tflite, n):
    m = qdq()
    x = m.quantise(m.input("x", [1, 4, 4, 4]))
    for _ in range(n // 5):
        weights, _ = m.weights(4, 4, 1, 1)
        x = m.quantise(m.node("Relu", m.node("Conv", x, weights)))
    m.output(x)
    return m.save()


def sums_with_constants(qdq, tflite, n):
    m = qdq()
    x = m.node("Cast", m.input("x", [1, 4]), to=onnx.TensorProto.INT32)
    for _ in range(n):
        x = m.node("Add", x, m.const(np.array([1], np.int32)))
    m.output(m.node("Cast", x, to=onnx.TensorProto.FLOAT))
    return m.save()


def tflite_chain(qdq, tflite, n):
    m = tflite()
    x = m.input((1, 4, 4, 4))
    for _ in range(n):
        x = m.op("LOGISTIC", [x], (1, 4, 4, 4), 1 / 256, -128)
    m.output(x)
    return m.save()


CHAINS = [float_chain, qdq_chain, sums_with_constants, tflite_chain]


@pytest.mark.parametrize("chain", CHAINS)
def test_work_is_linear_in_the_operators(qdq, tflite, chain):
    short, long = (lines_of(partial(import_model, chain(qdq, tflite, n))) for n in (100, 400))
    assert long <= 4.2 * short


@pytest.mark.parametrize("chain", [float_chain, tflite_chain])
def test_work_of_the_compiler_is_linear_in_the_operators(qdq, tflite, chain):
    graphs = [import_model(chain(qdq, tflite, n)) for n in (100, 400)]
    short, long = (lines_of(partial(compile_for, graph, load_config("tiny"))) for graph in graphs)
    assert long <= 4.5 * short
