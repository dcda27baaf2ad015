"""What the front end reads, and what it says about models that it cannot."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from tilewright.compiler.frontend.onnx import import_onnx
from tilewright.compiler.graph import AveragePool, Dequantize, MaxPool, QConv2d, QDense, Quantize, Reshape, reference
from tilewright.hw.errors import FileError, UnsupportedError

DIGITS = Path(__file__).parents[4] / "examples" / "digits" / "digits.onnx"


def small(qdq, **kwargs):
    """conv + relu -> max pooling -> flatten -> dense -> softmax-free logits."""
    m = qdq(**kwargs)
    x = m.quantise(m.input("x", [1, 3, 9, 7]))
    w, scale = m.weights(5, 3, 3, 2)
    y = m.node("Conv", x, w, m.bias(scale), name="first", strides=[2, 1], pads=[1, 0, 2, 1], dilations=[1, 2])
    y = m.quantise(m.node("Relu", y), 0.2, -128)
    y = m.quantise(m.node("MaxPool", y, name="pool", kernel_shape=[2, 2], strides=[2, 1], pads=[0, 1, 1, 0]), 0.2, -128)
    y = m.quantise(m.node("Flatten", y), 0.2, -128)
    features = 5 * 3 * 6
    w, scale = m.weights(4, features)
    y = m.quantise(m.node("Gemm", y, w, m.bias(scale, 0.2), name="last", transB=1), 1.5, 7)
    m.output(y)
    return m


def compare(graph, outputs, inputs):
    """The graph's outputs are at most one step from `outputs`, and almost all of them equal."""
    mine, _ = reference.run(graph, inputs)
    for name, expected in outputs.items():
        op = next(op for op in graph.ops if op.output.name == name)
        step = op.x.scale if isinstance(op, Dequantize) else 1
        difference = np.abs((mine[name].astype(np.float64) - expected) / step)
        assert difference.max() < 1.01
        assert (difference > 0.5).mean() <= 0.02


def test_digits_keep_their_names_and_shapes():
    graph = import_onnx(DIGITS)
    assert [type(op) for op in graph.ops] == [Quantize, *[QConv2d] * 3, MaxPool, Reshape, QDense, Dequantize]
    assert [op.name for op in graph.layers] == ["conv1", "conv2", "conv3", "gemm"]
    assert [op.macs for op in graph.layers] == [9216, 73728, 147456, 1280]
    assert [(t.name, t.shape, t.dtype) for t in graph.inputs] == [("image", (1, 1, 8, 8), "float32")]
    assert [(t.name, t.shape, t.dtype) for t in graph.outputs] == [("logits", (1, 10), "float32")]
    conv2 = graph.layers[1]
    assert isinstance(conv2, QConv2d) and (conv2.strides, conv2.pads) == ((2, 2), (1, 1, 1, 1))


@pytest.mark.parametrize("activations", [np.int8, np.uint8])
def test_a_network_equals_onnxruntime_but_for_rounding(qdq, onnxruntime_outputs, activations):
    m = small(qdq, activations=activations)
    path = m.save()
    graph = import_onnx(path)
    first = graph.layers[0]
    assert isinstance(first, QConv2d)
    assert (first.pads, first.strides, first.dilations, first.low) == ((1, 0, 2, 1), (2, 1), (1, 2), -128)
    x = m.rng.normal(0, 3, (1, 3, 9, 7)).astype(np.float32)
    compare(graph, onnxruntime_outputs(path, {"x": x}), {"x": x})


def test_average_pooling_equals_onnxruntime_but_for_rounding(m, onnxruntime_outputs):
    x = m.quantise(m.input("x", [1, 3, 8, 6]))
    y = m.quantise(m.node("AveragePool", x, name="some", kernel_shape=[2, 3], strides=[2, 1]), 0.04, 5)
    m.output(m.quantise(m.node("GlobalAveragePool", y, name="all"), 0.02, -9))
    path = m.save()
    graph = import_onnx(path)
    assert [op.name for op in graph.ops if isinstance(op, AveragePool)] == ["some", "all"]
    x = m.rng.normal(0, 3, (1, 3, 8, 6)).astype(np.float32)
    compare(graph, onnxruntime_outputs(path, {"x": x}), {"x": x})


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER", "VALID"])
def test_automatic_padding(m, onnxruntime_outputs, mode):
    x = m.quantise(m.input("x", [1, 2, 8, 5]))
    w, _ = m.weights(3, 2, 3, 2)
    m.output(m.quantise(m.node("Conv", x, w, auto_pad=mode, strides=[2, 1]), 0.3))
    path = m.save()
    x = m.rng.normal(0, 3, (1, 2, 8, 5)).astype(np.float32)
    compare(import_onnx(path), onnxruntime_outputs(path, {"x": x}), {"x": x})


@pytest.mark.parametrize("swapped", [False, True])
def test_matmul_with_bias_per_tensor_weights_and_int8_ends(m, onnxruntime_outputs, swapped):
    scale, zero = m.const(np.float32(0.1)), m.const(np.int8(-4))
    x = m.node("DequantizeLinear", m.input("x", [1, 6], "INT8"), scale, zero)
    w, weight_scale = m.weights(6, 5, axis=1, per_channel=False)
    bias = m.const(m.rng.normal(0, 1, 5).astype(np.float32))
    product = m.node("MatMul", x, w, name="product")
    y = m.node("Relu", m.node("Add", *((bias, product) if swapped else (product, bias))))
    m.output(m.node("QuantizeLinear", y, m.const(np.float32(0.05)), m.const(np.int8(-128))), "INT8")
    path = m.save()
    graph = import_onnx(path)
    (op,) = graph.ops
    assert isinstance(op, QDense) and op.name == "product" and op.weight.shape == (5, 6)
    assert np.array_equal(op.bias, np.rint(m.constants[bias] / (np.float64(np.float32(0.1)) * weight_scale)))
    x = m.rng.integers(-128, 128, (1, 6)).astype(np.int8)
    compare(graph, onnxruntime_outputs(path, {"x": x}), {"x": x})


def test_a_name_for_two_tensors_and_two_names_for_one(m, onnxruntime_outputs):
    x = m.input("x", [1, 4])
    w, _ = m.weights(4, 3, axis=1)
    parameters = m.const(np.float32(0.05)), m.const(np.int8(0))
    q = m.node("QuantizeLinear", x, *parameters, name="x")
    y = m.node("MatMul", m.node("DequantizeLinear", q, *parameters), w, name="x.y")
    y = m.node("QuantizeLinear", y, *parameters)
    m.output(y, "INT8")
    m.output(m.node("QuantizeLinear", m.node("DequantizeLinear", y, *parameters), *parameters), "INT8")
    path = m.save()
    graph = import_onnx(path)
    x = m.rng.normal(0, 3, (1, 4)).astype(np.float32)
    expected = onnxruntime_outputs(path, {"x": x})
    assert [t.name for t in graph.outputs] == list(expected)
    compare(graph, expected, {"x": x})


def test_open_batch_becomes_one(m):
    x = m.quantise(m.input("x", ["N", 4]))
    w, _ = m.weights(4, 3, axis=1)
    m.output(m.quantise(m.node("MatMul", x, w)))
    assert import_onnx(m.save()).inputs[0].shape == (1, 4)


def test_relu_clamps_at_the_zero_point(m):
    x = m.quantise(m.input("x", [1, 4]))
    w, _ = m.weights(4, 3, axis=1)
    m.output(m.quantise(m.node("Relu", m.node("MatMul", x, w)), 0.1, -20))
    assert import_onnx(m.save()).layers[0].low == -20


def test_operators_that_onnx_does_not_know_are_unsupported_not_damage(m):
    x = m.quantise(m.input("x", [1, 4, 8, 8]))
    m.output(m.node("Unheard", m.node("Strange", x, name="first"), name="second"))
    with pytest.raises(UnsupportedError) as caught:
        import_onnx(m.save())
    assert "model.onnx: 2 unsupported operators: Strange 'first' is not supported; Unheard 'second' is not" in str(
        caught.value
    )


def test_every_unsupported_node_is_named_at_once(m):
    x = m.quantise(m.input("x", [1, 4, 8, 8]))
    y = m.node("Conv", x, m.const(np.ones((4, 4, 1, 1), np.float32)), m.input("bias", [4]), name="biased")
    m.output(m.node("Softmax", m.node("Asinh", y, name="wave"), name="top"))
    for k in range(3):
        m.output(m.node("Asinh", x, name=f"other{k}"))
    m.output(m.node("Det", x, name="size"))
    with pytest.raises(UnsupportedError) as caught:
        import_onnx(m.save())
    text = str(caught.value)
    assert "model.onnx: 5 unsupported operators: " in text and "\n" not in text
    for part in (
        "Asinh 'wave' (and 3 more) is not supported",
        "Det 'size' is not supported",
    ):
        assert part in text


def float_pool(m, kind, **attrs):
    m.output(m.node(kind, m.input("x", [1, 2, 6, 6]), name="bad", kernel_shape=[2, 2], **attrs))


PROBLEMS = {
    "Conv 'bad' has weights or biases that are not constant": lambda m: m.output(
        m.node("Conv", m.input("x", [1, 2, 4, 4]), m.input("w", [2, 2, 1, 1]), name="bad")
    ),
    "Conv 'bad' has weights of 5 dimensions; only 3 and 4 are supported": lambda m: m.output(
        m.node("Conv", m.input("x", [1, 1, 4, 4, 4]), m.const(np.ones((1, 1, 2, 2, 2), np.float32)), name="bad")
    ),
    "Clip 'bad' has bounds that are not constant": lambda m: m.output(
        m.quantise(m.node("Clip", m.quantise(m.input("x", [1, 4])), m.input("low", [1]), name="bad"))
    ),
    "Pad 'bad' pads with inf": lambda m: m.output(
        m.node("Pad", m.input("x", [1, 4]), m.const(np.array([0, 1, 0, 0])), m.const(np.float32(np.inf)), name="bad")
    ),
    "Pad 'bad' has a shape that depends on values": lambda m: m.output(
        m.node("Pad", m.quantise(m.input("x", [1, 4])), m.input("pads", [4], "INT64"), name="bad")
    ),
    "MaxPool 'bad' has dilations": lambda m: float_pool(m, "MaxPool", dilations=[2, 2]),
    "AveragePool 'bad' has dilations, or ceil_mode with padding that counts": lambda m: float_pool(
        m, "AveragePool", ceil_mode=1, count_include_pad=1
    ),
    "input 'x' is of type int16; only float32, int8, uint8, int32, int64, bool": lambda m: m.output(
        m.node("Cast", m.input("x", [1, 4], "INT16"), to=onnx.TensorProto.FLOAT)
    ),
    "QGemm 'bad' of domain 'com.microsoft' is not supported": lambda m: m.output(
        m.node("QGemm", m.input("x", [1, 4]), name="bad", domain="com.microsoft")
    ),
    "Conv 'bad' has inputs or attributes that do not fit together": lambda m: m.output(
        m.node(
            "Conv",
            m.input("x", [1, 2, 4, 4]),
            *(m.const(np.ones(n, np.float32)) for n in ((2, 2, 1, 1), 3)),
            name="bad",
        )
    ),
    "Pad 'bad' has 4,294,967,297 elements; at most 2,147,483,648 are supported": lambda m: m.output(
        m.node("Pad", m.input("x", [1, 1]), m.const(np.array([0, 1 << 32, 0, 0])), name="bad")
    ),
}


@pytest.mark.parametrize("text", PROBLEMS)
def test_why_an_operator_is_refused(m, text):
    PROBLEMS[text](m)
    with pytest.raises(UnsupportedError) as caught:
        import_onnx(m.save())
    assert text in str(caught.value)


def test_open_sizes_other_than_the_batch_are_refused(m):
    m.output(m.quantise(m.input("x", ["N", 4, "H", "W"])))
    path = m.save()
    with pytest.raises(
        UnsupportedError, match=r"input 'x' has shape \(N, 4, H, W\); only the first size may be open"
    ) as caught:
        import_onnx(path)
    tool = str(caught.value).partition("python -m ")[2]
    subprocess.run(
        [sys.executable, "-m", tool, "--input_name=x", "--input_shape=1,4,6,8", path, path], check=True, timeout=300
    )
    assert import_onnx(path).inputs[0].shape == (1, 4, 6, 8)


@pytest.mark.parametrize("share", [0, 0.1, 0.5, 0.99, 0.9999])
def test_truncated_files(tmp_path, share):
    data = DIGITS.read_bytes()
    path = tmp_path / "cut.onnx"
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(FileError, match=r"cut\.onnx: not an ONNX model, or damaged") as caught:
        import_onnx(path)
    assert "\n" not in str(caught.value)


def test_other_files(tmp_path):
    with pytest.raises(FileError, match="no such file"):
        import_onnx(tmp_path / "absent.onnx")
    with pytest.raises(FileError, match="is a folder"):
        import_onnx(tmp_path)
    (tmp_path / "text.onnx").write_text("not a model")
    with pytest.raises(FileError, match="not an ONNX model"):
        import_onnx(tmp_path / "text.onnx")


def test_shapes_that_contradict_each_other(tmp_path):
    model = onnx.load(DIGITS)
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 3
    onnx.save(model, tmp_path / "channels.onnx")
    with pytest.raises(UnsupportedError, match="Conv 'conv1' has 3 input channels, its weights have 1"):
        import_onnx(tmp_path / "channels.onnx")
    model = onnx.load(DIGITS)
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_value = 12
    onnx.save(model, tmp_path / "features.onnx")
    with pytest.raises(FileError, match="shapes or types are inconsistent"):
        import_onnx(tmp_path / "features.onnx")


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("activations", ["QInt8", "QUInt8"])
def test_what_the_quantiser_of_onnxruntime_writes(quantise, onnxruntime_outputs, activations, per_channel):
    path, shape = quantise("every_operator", activations=activations, per_channel=per_channel)
    graph, rng = import_onnx(path), np.random.default_rng(0)
    for _ in range(5):
        x = {"x": rng.normal(0, 1, shape).astype(np.float32)}
        (expected,), (mine,) = onnxruntime_outputs(path, x).values(), reference.run(graph, x)[0].values()
        assert expected.argmax() == mine.argmax()
        assert np.abs(mine - expected).max() <= 3.01 * graph.ops[-1].x.scale
