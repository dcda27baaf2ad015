"""compiler/frontend/relax.py: names of nodes and tensors."""

import numpy as np
import onnx
import pytest

from tilewright.compiler import reference
from tilewright.compiler.frontend import relax as module
from tilewright.compiler.frontend.onnx import import_onnx
from tilewright.hw.errors import UnsupportedError


def test_a_node_may_have_the_name_of_the_output(qdq, onnxruntime_outputs):
    m = qdq()
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


def test_dense_layers_of_both_kinds_keep_their_names(qdq):
    m = qdq()
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


def test_weights_and_scales_are_named_by_their_nodes(qdq, refusal):
    m = qdq()
    x = m.quantise(m.input("x", [1, 4]), 0.1)
    scale = m.const(np.float32(0.5)), m.const(np.int8(0))
    q = m.node("QuantizeLinear", x, *scale, name="again")
    y = m.node("DequantizeLinear", q, m.const(np.float32(0.25)), scale[1], name="otherwise")
    parameters = m.const(np.ones((4, 3), np.int8)), m.const(np.float32(0.1)), m.const(np.int8(1))
    x = m.node("MatMul", x, m.node("DequantizeLinear", *parameters), name="shifted")
    m.output(m.quantise(x))
    m.output(y)
    text = refusal(m.save())
    assert "DequantizeLinear 'otherwise' has scale and zero point (0.25, 0); its input has (0.5, 0)" in text
    assert "MatMul 'shifted' has weights with a zero point other than 0 (uint8: 128)" in text


def test_a_dequantisation_of_another_scale_is_named(qdq, refusal):
    m = qdq()
    zero = m.const(np.int8(0))
    q = m.node("QuantizeLinear", m.input("x", [1, 4]), m.const(np.float32(0.5)), zero)
    m.output(m.node("DequantizeLinear", q, m.const(np.float32(0.25)), zero, name="otherwise"))
    assert "DequantizeLinear 'otherwise' has scale and zero point (0.25, 0); its input has (0.5, 0)" in refusal(
        m.save()
    )


def test_what_the_importer_of_tvm_prints_stays_out_of_sight(qdq, monkeypatch, capsys):
    def refuse(*args, **kwargs):
        print("details")
        raise ValueError("first line\nthe reason\n")

    monkeypatch.setattr(module, "from_onnx", refuse)
    with pytest.raises(UnsupportedError, match="model: TVM's ONNX importer refuses the model: the reason"):
        import_onnx(qdq().dense())
    assert capsys.readouterr().out == ""
