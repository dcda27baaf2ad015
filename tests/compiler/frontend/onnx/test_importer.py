"""What the front end reads of files, scales and constants, and what it says about models that it cannot read."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from tilewright.compiler.frontend.onnx import import_onnx
from tilewright.compiler.frontend.onnx.file import named_nodes
from tilewright.compiler.frontend.onnx.nodes import Reader
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
        "4 times: Asinh 'wave' is not supported",
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
    "ConvTranspose 'bad' has an output_shape larger than what its kernel reaches": lambda m: m.output(
        m.node(
            "ConvTranspose",
            m.input("x", [1, 1, 4, 4]),
            m.const(np.ones((1, 1, 3, 3), np.float32)),
            name="bad",
            strides=[2, 2],
            output_shape=[99, 8],
        )
    ),
    "MaxPool 'bad' has 3 spatial dimensions; only 1 and 2 are supported": lambda m: m.output(
        m.node("MaxPool", m.input("x", [1, 1, 4, 4, 4]), name="bad", kernel_shape=[2] * 3)
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


def plain_dense(qdq):
    m = qdq()
    w, scale = m.weights(3, 4)
    m.output(m.quantise(m.node("Gemm", m.quantise(m.input("x", ["N", 4])), w, m.bias(scale), transB=1, name="same")))
    return m


def saved(m, change):
    model = m.proto()
    change(model)
    onnx.save(model, m.folder / "changed.onnx")
    return m.folder / "changed.onnx"


def test_weights_may_be_inputs_too(qdq):
    def change(model):
        for i in model.graph.initializer:
            model.graph.input.append(onnx.helper.make_tensor_value_info(i.name, i.data_type, i.dims))

    assert [t.name for t in import_onnx(saved(plain_dense(qdq), change)).inputs] == ["x"]


def test_names_and_output_shapes_may_be_left_out(qdq):
    def change(model):
        for node in model.graph.node:
            node.name = ""
        for value in model.graph.output:
            value.type.tensor_type.ClearField("shape")

    assert [op.name for op in import_onnx(saved(plain_dense(qdq), change)).layers] == ["gemm_4"]


def test_equal_names_are_told_apart(qdq):
    def change(model):
        for node in model.graph.node:
            node.name = "same"

    names = [op.name for op in import_onnx(saved(plain_dense(qdq), change)).ops]
    assert len({*names}) == len(names)


def in_opset(path, version):
    """A file in which amounts of padding and bounds are attributes."""
    node, info = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    nodes = [node("Pad", ["x"], ["p"], pads=[0, 0, 1, 2, 0, 0, 0, 1], value=0.5)]
    nodes += [node("Clip", ["p"], ["y"], min=-0.5, max=1.0)]
    x, y = info("x", onnx.TensorProto.FLOAT, [1, 2, 4, 4]), info("y", onnx.TensorProto.FLOAT, None)
    graph = onnx.helper.make_graph(nodes, "old", [x], [y])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", version)], ir_version=5), path)
    return path


def test_older_opsets_are_converted(tmp_path):
    graph = import_onnx(in_opset(tmp_path / "old.onnx", 10))
    given = np.random.default_rng(1).normal(0, 2, (1, 2, 4, 4)).astype(np.float32)
    (found,) = reference.run(graph, {"x": given})[0].values()
    padded = np.pad(given, ((0, 0), (0, 0), (1, 0), (2, 1)), constant_values=0.5)
    np.testing.assert_array_equal(found, np.clip(padded, -0.5, 1))


def test_older_opsets_that_cannot_be_converted(tmp_path, monkeypatch):
    def fails(*args):
        raise RuntimeError("no adapter")

    monkeypatch.setattr(onnx.version_converter, "convert_version", fails)
    with pytest.raises(UnsupportedError, match=r"opset 9; must be 11 or later, and onnx cannot convert it \(no adapt"):
        import_onnx(in_opset(tmp_path / "old.onnx", 9))


@pytest.mark.parametrize("opset", [11, 13, 15, 19, 21, 22])
def test_opsets(m, compared, opset):
    w, _ = m.weights(4, 3, axis=1, per_channel=opset >= 13)
    y = m.quantise(m.node("MatMul", m.quantise(m.input("x", [1, 4])), w), 0.1)
    if opset < 13:
        for node in m.nodes:
            del node.attribute[:]
    m.output(m.node("Clip", y, m.const(np.float32(-9))))
    compared(m, 1.001, 0.1, 0.1, opset=opset)


@pytest.mark.parametrize("text", [b"QuantizeLinear", b"same"])
def test_names_that_are_no_text(qdq, text):
    m = plain_dense(qdq)
    path = m.folder / "changed.onnx"
    path.write_bytes(m.proto().SerializeToString().replace(text, b"\xff" + text[1:]))
    with pytest.raises(FileError, match=r"damaged \(name b'.xff.* is no UTF-8\)"):
        import_onnx(path)


@pytest.mark.parametrize("change", [{"data_type": 70}, {"dims": [1, 3, 3]}])
def test_constants_that_are_none(qdq, change):
    """onnx's checker lets both pass: a type that does not exist, and data for another shape."""
    m = plain_dense(qdq)
    model = m.proto()
    tensor = max(model.graph.initializer, key=lambda t: len(t.raw_data))
    for name, value in change.items():
        if name == "dims":
            tensor.dims[:] = value
        else:
            setattr(tensor, name, value)
    (m.folder / "changed.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(FileError, match="damaged"):
        import_onnx(m.folder / "changed.onnx")


@pytest.mark.parametrize("where", ["input", "output"])
def test_types_that_do_not_exist(qdq, where):
    m = plain_dense(qdq)
    model = m.proto()
    getattr(model.graph, where)[0].type.tensor_type.elem_type = 111
    (m.folder / "changed.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(FileError, match="damaged"):
        import_onnx(m.folder / "changed.onnx")


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
