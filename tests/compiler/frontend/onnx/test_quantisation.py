"""Scales and zero points, and names of nodes and tensors."""

import numpy as np
import onnx
import pytest

from tilewright.compiler.frontend.onnx import import_onnx
from tilewright.compiler.graph import reference


def test_a_node_may_have_the_name_of_the_output(m, onnxruntime_outputs):
    x = m.quantise(m.input("x", [1, 4]))
    w, scale = m.weights(3, 4)
    y = m.quantise(m.node("Gemm", x, w, m.bias(scale), name="logits", transB=1), 0.3)
    m.output(y)
    model = m.proto()
    for node in model.graph.node:
        node.output[:] = ["logits" if name == y else name for name in node.output]
    model.graph.output[0].name = "logits"
    onnx.save(model, m.folder / "model.onnx")
    graph = import_onnx(m.folder / "model.onnx")
    assert [t.name for t in graph.outputs] == ["logits"]
    assert [op.name for op in graph.layers] == ["logits"] and graph.layers[0].output.name == "logits.out"
    x = {"x": m.rng.normal(0, 1, (1, 4)).astype(np.float32)}
    expected = onnxruntime_outputs(m.folder / "model.onnx", x)["logits"]
    assert np.abs(reference.run(graph, x)[0]["logits"] - expected).max() <= 0.3001


def test_dense_layers_of_both_kinds_keep_their_names(m):
    x = m.quantise(m.input("x", [1, 4]))
    w, _ = m.weights(4, 4)
    x = m.quantise(m.node("Gemm", x, w, name="one", transB=1))
    w, _ = m.weights(4, 4, axis=1)
    m.output(m.quantise(m.node("MatMul", x, w, name="two")))
    assert [op.name for op in import_onnx(m.save()).layers] == ["one", "two"]


@pytest.mark.parametrize("scale", [0.0, -0.5, np.inf, np.nan])
def test_scales_of_activations_are_positive(qdq, scale, refusal):
    text = refusal(qdq().dense(scale=scale))
    assert f"QuantizeLinear 'first' has scale {scale:g}; it must be finite and positive" in text


def test_integers_may_be_taken_for_other_numbers(m, onnxruntime_outputs):
    zero = m.const(np.int8(0))
    q = m.node("QuantizeLinear", m.input("x", [1, 4]), m.const(np.float32(0.5)), zero)
    m.output(m.node("DequantizeLinear", q, m.const(np.float32(0.25)), m.const(np.int8(7)), name="otherwise"))
    path = m.save()
    x = {"x": m.rng.normal(0, 9, (1, 4)).astype(np.float32)}
    ((name, expected),) = onnxruntime_outputs(path, x).items()
    assert np.array_equal(reference.run(import_onnx(path), x)[0][name], expected)


@pytest.mark.parametrize("dtype, zero", [(np.uint8, 120), (np.int8, 5), (np.uint8, 128)])
def test_weights_with_zero_points(m, onnxruntime_outputs, dtype, zero):
    x = m.quantise(m.input("x", [1, 40]), 0.1)
    low = np.iinfo(dtype).min
    weights = m.rng.integers(low, low + 256, (40, 30)).astype(dtype)
    parameters = m.const(weights), m.const(np.float32(0.01)), m.const(dtype(zero))
    m.output(m.quantise(m.node("MatMul", x, m.node("DequantizeLinear", *parameters), name="shifted"), 0.5))
    path = m.save()
    graph = import_onnx(path)
    assert len(graph.layers) == 1 and graph.layers[0].weight.shape[1] == (40 if zero == 128 else 80)
    x = {"x": m.rng.normal(0, 5, (1, 40)).astype(np.float32)}
    ((name, expected),) = onnxruntime_outputs(path, x).items()
    assert np.abs(reference.run(graph, x)[0][name] - expected).max() <= 0.501


BAD = {
    "has a scale or zero point that is not constant": lambda m: (m.input("scale", [1]), m.const(np.int8(0))),
    "has one scale per channel; activations have one per tensor": lambda m: (
        m.const(np.ones(4, np.float32)),
        m.const(np.zeros(4, np.int8)),
    ),
}


@pytest.mark.parametrize("text", BAD)
def test_what_activations_cannot_have(m, refusal, text):
    y = m.node("QuantizeLinear", m.input("x", [1, 4]), *BAD[text](m), name="first")
    m.output(y, "INT8")
    assert f"QuantizeLinear 'first' {text}" in refusal(m.save())


def test_sixteen_bits_are_refused_by_name(m, refusal):
    y = m.node("QuantizeLinear", m.input("x", [1, 4]), m.const(np.float32(1)), m.const(np.int16(0)), name="wide")
    m.output(y, "INT16")
    model = m.proto()
    model.opset_import[0].version = 21
    onnx.save(model, m.folder / "wide.onnx")
    assert "QuantizeLinear 'wide' is of type int16; only int8 and uint8 are supported" in refusal(
        m.folder / "wide.onnx"
    )
