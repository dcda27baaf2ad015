"""Layers of weights of 8 bits on int16 and uint16 activations, or whose results stay float32: sums on the device.

onnxruntime adds products in float32, of which few sums round to another step of 16 bits; the others are equal.
"""

import numpy as np
import onnx
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.frontend.onnx import import_onnx
from tilewright.compiler.graph import reference
from tilewright.compiler.network import compile_graph
from tilewright.hw.config import PRESETS
from tilewright.runtime.loader import run

STEP, FINE = 0.0005, 0.0003


def values(m, *shape, zero_point=37):
    return m.quantise(m.input(f"x{len(m.inputs)}", list(shape)), FINE, zero_point)


def conv(*shape, out=6, kernel=(3, 3), groups=1, bias=True, unsigned=False, **attrs):
    def make(m):
        w, scale = m.weights(out, shape[1] // groups, *kernel)
        if unsigned:
            data = m.rng.integers(0, 256, (out, shape[1] // groups, *kernel)).astype(np.uint8)
            w = m.node("DequantizeLinear", m.const(data), m.const(np.float32(0.004)), m.const(np.uint8(90)))
            scale = np.full(out, 0.004, np.float32)
        b = [m.bias(scale, FINE)] if bias else []
        return m.node("Conv", values(m, *shape), w, *b, group=groups, **attrs)

    return make


def relu(make):
    return lambda m: m.node("Relu", make(m))


def gemm(m, **attrs):
    w, scale = m.weights(20, 30)
    return m.node("Gemm", values(m, 4, 30), w, m.bias(scale, FINE), transB=1, **attrs)


def matmul(m):
    w, _ = m.weights(30, 20, axis=1)
    return m.node("MatMul", values(m, 2, 5, 30), w)


def moved(m):
    """int16 values move, and the same ones are read with another scale."""
    parameters = [m.const(np.float32(FINE)), m.const(m.type(m.middle + 5))]
    t = m.node("Transpose", m.node("QuantizeLinear", m.input("x", [2, 3, 4, 5]), *parameters), perm=[0, 2, 1, 3])
    t = m.node("Reshape", t, m.const(np.array([2, 60])))
    return m.node("DequantizeLinear", t, m.const(np.float32(2 * FINE)), parameters[1])


def of_wide_weights(m):
    w = m.const(m.rng.integers(-3000, 3000, (30, 20)).astype(np.int16))
    return m.node("MatMul", values(m, 4, 30), m.node("DequantizeLinear", w, m.const(np.float32(1e-5))))


LAYERS = {
    "conv": conv(2, 5, 9, 8, pads=[1, 0, 2, 1], strides=[2, 1]),
    "rectified": relu(conv(1, 20, 6, 7, out=18, bias=False, dilations=[1, 2])),
    "depthwise": conv(1, 20, 6, 7, out=20, groups=20, pads=[1] * 4),
    "groups": conv(1, 8, 6, 7, out=12, groups=2),
    "row": conv(1, 4, 30, kernel=(5,), pads=[2, 2]),
    "uint8 weights": conv(1, 4, 6, 7, unsigned=True, pads=[1] * 4),
    "gemm": gemm,
    "matmul": matmul,
}
OTHERS = {
    "sum": lambda m: m.node("Add", values(m, 2, 30), values(m, 2, 30)),
    "moved": moved,
    "pooled": lambda m: m.node("MaxPool", values(m, 1, 3, 6, 6), kernel_shape=[2, 2]),
    "mean": lambda m: m.node("GlobalAveragePool", values(m, 1, 3, 6, 6)),
    "scaled gemm": lambda m: gemm(m, alpha=0.5),
    "wide weights": of_wide_weights,
}


@pytest.mark.parametrize("dtype", [np.int16, np.uint16])
@pytest.mark.parametrize("name", [*LAYERS, *OTHERS])
def test_steps_of_16_bits_are_those_of_onnxruntime(qdq, compared, name, dtype):
    m = qdq(activations=dtype)
    m.output(m.quantise((LAYERS | OTHERS)[name](m), STEP, -200))
    graph = compared(m, 1.01, 0.02, STEP, opset=21, spread=2.0)
    assert bool(graph.of(g.ScaleBytes)) == (name in LAYERS)
    inputs = {t.name: m.rng.normal(0, 2, t.shape).astype(np.float32) for t in graph.inputs}
    device = run(compile_graph(graph, PRESETS["pynq_z1"]), inputs)[0]
    for tensor, expected in reference.run(graph, inputs)[0].items():
        np.testing.assert_array_equal(device[tensor], expected)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("name", LAYERS)
def test_results_of_8_bits_that_stay_in_float(qdq, onnxruntime_outputs, name, dtype):
    """Equal to onnxruntime's sums in float32 up to their rounding; the device gives the reference's results."""
    m = qdq(activations=dtype)
    m.output(LAYERS[name](m), "FLOAT")
    path = m.save()
    graph = import_onnx(path)
    kinds = {type(op) for op in graph.ops}
    assert g.ScaleSums in kinds and not kinds & {g.FloatConv2d, g.FloatMatMul, g.Dequantize}
    inputs = {t.name: m.rng.normal(0, 0.02, t.shape).astype(np.float32) for t in graph.inputs}
    device = run(compile_graph(graph, PRESETS["pynq_z1"]), inputs)[0]
    for tensor, expected in onnxruntime_outputs(path, inputs).items():
        np.testing.assert_allclose(device[tensor], expected, rtol=1e-5, atol=2e-6 * np.abs(expected).max())
        np.testing.assert_array_equal(device[tensor], reference.run(graph, inputs)[0][tensor])


def test_int8_layers_leave_wide_weights_to_the_host(qdq, compared):
    m = qdq()
    w = m.const(m.rng.integers(-3000, 3000, (30, 20)).astype(np.int16))
    w = m.node("DequantizeLinear", w, m.const(np.float32(1e-4)))
    m.output(m.quantise(m.node("MatMul", m.quantise(m.input("x", [4, 30])), w)))
    assert compared(m, 1.01, 0.02, 0.05, opset=21).of(g.FloatMatMul)


def test_inputs_and_outputs_of_16_bits(qdq, onnxruntime_outputs, refusal):
    for dtype in (np.int16, np.uint16):
        m = qdq(activations=dtype)
        scale, zero = m.const(np.float32(1e-3)), m.const(m.type(m.middle + 3))
        x = m.node("DequantizeLinear", m.input("x", [2, 3], "INT16"), scale, m.const(np.int16(-1024)))
        m.output(m.node("Transpose", m.node("QuantizeLinear", m.node("Relu", x), scale, zero)), m.type.__name__.upper())
        path = m.save()
        if dtype == np.uint16:
            assert "is uint16; outputs of 16 bits must be int16" in refusal(path)
            continue
        model = onnx.load(path)
        model.opset_import[0].version = 21
        onnx.save(model, path)
        inputs = {"x": m.rng.integers(-(1 << 15), 1 << 15, (2, 3)).astype(np.int16)}
        for tensor, expected in onnxruntime_outputs(path, inputs).items():
            np.testing.assert_array_equal(reference.run(import_onnx(path), inputs)[0][tensor], expected)
