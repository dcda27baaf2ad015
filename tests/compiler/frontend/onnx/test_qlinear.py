"""Operators of QOperator files, each against onnxruntime."""

import numpy as np
import pytest

from tilewright.compiler import graph as g

SCALE = 0.05


def parameters(m, dtype, scale=SCALE, zero=7):
    middle = 128 if dtype is np.uint8 else 0
    return m.const(np.float32(scale)), m.const(dtype(zero + middle))


def quantised(m, dtype, name="x", shape=(1, 4, 6, 5)):
    p = parameters(m, dtype)
    return m.node("QuantizeLinear", m.input(name, list(shape)), *p), *p


def finish(m, y, p):
    m.output(m.node("DequantizeLinear", y, *p))


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_convolutions(m, compared, dtype, biased):
    w = m.rng.integers(-128, 128, (6, 4, 3, 3)) if dtype is np.int8 else m.rng.integers(0, 256, (6, 4, 3, 3))
    scales = m.rng.uniform(0.002, 0.01, 6).astype(np.float32) if dtype is np.int8 else np.float32(0.004)
    zeros = np.zeros(6, np.int8) if dtype is np.int8 else np.uint8(119)
    bias = [m.const(m.rng.integers(-900, 900, 6).astype(np.int32))] if biased else []
    out = parameters(m, dtype, 0.1)
    inputs = (m.const(w.astype(dtype)), m.const(scales), m.const(zeros), *out, *bias)
    finish(m, m.node("QLinearConv", *quantised(m, dtype), *inputs, name="conv", pads=[1, 1, 1, 1]), out)
    graph = compared(m, 1.001, 0.02, 0.1)
    assert [op.name for op in graph.layers] == ["conv"]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_matrix_products(m, compared, dtype):
    w = m.rng.integers(-128, 128, (5, 7)).astype(np.int8), m.rng.uniform(0.01, 0.02, 7).astype(np.float32)
    out = parameters(m, dtype, 0.2)
    weights = m.const(w[0]), m.const(w[1]), m.const(np.zeros(7, np.int8))
    if dtype is np.uint8:
        weights = m.const((w[0].astype(np.int16) + 128).astype(np.uint8)), *parameters(m, np.uint8, 0.02, 5)
    finish(m, m.node("QLinearMatMul", *quantised(m, dtype, shape=(3, 5)), *weights, *out), out)
    compared(m, 1.001, 0.02, 0.2)


@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize("real", [True, False])
def test_dense_layers(m, compared, transposed, real):
    w = m.rng.integers(-127, 128, (7, 5) if transposed else (5, 7)).astype(np.int8)
    parts = [m.const(w), m.const(np.float32(0.02)), m.const(np.int8(0)), m.const(np.arange(7, dtype=np.int32) * 50)]
    out = parameters(m, np.int8, 0.2)
    attrs = {"domain": "com.microsoft", "transB": transposed}
    y = m.node("QGemm", *quantised(m, np.int8, shape=(3, 5)), *parts, *(() if real else out), name="dense", **attrs)
    if real:
        m.output(y)
    else:
        finish(m, y, out)
    graph = compared(m, 1e-4) if real else compared(m, 1.001, 0.02, 0.2)
    assert len(graph.layers) == (0 if real else 1)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("kind", ["Add", "Mul"])
def test_sums_and_products(m, compared, kind, dtype):
    out = parameters(m, dtype, 0.08)
    inputs = *quantised(m, dtype), *quantised(m, dtype, "y", (1, 4, 1, 1)), *out
    finish(m, m.node(f"QLinear{kind}", *inputs, domain="com.microsoft"), out)
    compared(m, 1.001, 0.1, 0.08)


UNARY = {
    "QLinearAveragePool": {"kernel_shape": [2, 2], "strides": [2, 2]},
    "QLinearGlobalAveragePool": {},
    "QLinearLeakyRelu": {"alpha": 0.2},
    "QLinearSigmoid": {},
    "QLinearSoftmax": {"axis": 1, "opset": 13},
}


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("kind", UNARY)
def test_operators_on_one_tensor(m, compared, kind, dtype):
    scale, zero = (1 / 256, -128) if kind == "QLinearSoftmax" else (0.02, 3)
    out = parameters(m, dtype, scale, zero)
    finish(m, m.node(kind, *quantised(m, dtype), *out, domain="com.microsoft", **UNARY[kind]), out)
    compared(m, 1.001, 0.3, scale)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_concatenation(m, compared, dtype):
    out = parameters(m, dtype, 0.06)
    parts = *quantised(m, dtype), *quantised(m, dtype, "y", (1, 2, 6, 5))
    finish(m, m.node("QLinearConcat", *out, *parts, domain="com.microsoft", axis=1), out)
    graph = compared(m, 1.001, 0.1, 0.06)
    assert any(isinstance(op, g.Concat) for op in graph.ops)


@pytest.mark.parametrize("kind", ["Conv", "MatMul"])
def test_sums_as_integers(m, compared, kind):
    """The scales follow in float32: they become those of the layer."""
    shape, weights = ((1, 4, 6, 5), (6, 4, 3, 3)) if kind == "Conv" else ((3, 5), (5, 7))
    x, _, zero = quantised(m, np.uint8, shape=shape)
    # 7 bits: without VNNI onnxruntime's sums of two products of uint8 and int8 saturate at 16 bits
    w = m.const(m.rng.integers(-64, 64, weights).astype(np.int8))
    sums = m.node("Cast", m.node(f"{kind}Integer", x, w, zero, name="sums"), to=1)
    y = m.node("Mul", sums, m.const(np.float32(SCALE * 0.004)))
    bias = m.rng.normal(0, 1, (6, 1, 1) if kind == "Conv" else 7).astype(np.float32)
    m.output(m.quantise(m.node("Relu", m.node("Add", y, m.const(bias))), 0.1))
    graph = compared(m, 1.001, 0.02, 0.1)
    assert [op.name for op in graph.layers] == ["sums"]
    assert not any(isinstance(op, g.FloatOperator) for op in graph.ops)


def test_channels_last_is_refused_by_name(m, refusal):
    out = parameters(m, np.int8)
    attrs = {"domain": "com.microsoft", "channels_last": 1, "name": "last"}
    finish(m, m.node("QLinearGlobalAveragePool", *quantised(m, np.int8), *out, **attrs), out)
    assert "QLinearGlobalAveragePool 'last' of domain 'com.microsoft' is not supported" in refusal(m.save())
