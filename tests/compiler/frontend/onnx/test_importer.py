"""What the front end reads of files, scales and constants, and what it says about models that it cannot read."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from tilewright.compiler.frontend.onnx import import_onnx
from tilewright.compiler.frontend.onnx.file import named_nodes
from tilewright.compiler.frontend.onnx.nodes import Reader
from tilewright.compiler.frontend.source import read_source
from tilewright.compiler.graph import Dequantize, MaxPool, QConv2d, QDense, Quantize, Reshape, reference
from tilewright.hw.errors import FileError, UnsupportedError

DIGITS = Path(__file__).parents[4] / "examples" / "digits" / "digits.onnx"


def ints(m, *values):
    return m.const(np.array(values, np.int64))


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
def test_a_network_equals_onnxruntime_but_for_rounding(qdq, compared, activations):
    """conv + relu -> max pooling -> flatten -> dense."""
    m = qdq(activations=activations)
    x = m.quantise(m.input("x", [1, 3, 9, 7]))
    w, scale = m.weights(5, 3, 3, 2)
    y = m.node("Conv", x, w, m.bias(scale), name="first", strides=[2, 1], pads=[1, 0, 2, 1], dilations=[1, 2])
    y = m.quantise(m.node("Relu", y), 0.2, -128)
    y = m.quantise(m.node("MaxPool", y, name="pool", kernel_shape=[2, 2], strides=[2, 1], pads=[0, 1, 1, 0]), 0.2, -128)
    y = m.quantise(m.node("Flatten", y), 0.2, -128)
    w, scale = m.weights(4, 5 * 3 * 6)
    m.output(m.quantise(m.node("Gemm", y, w, m.bias(scale, 0.2), name="last", transB=1), 1.5, 7))
    first = compared(m, 1.01, 0.02, 1.5).layers[0]
    assert isinstance(first, QConv2d)
    assert (first.pads, first.strides, first.dilations, first.low) == ((1, 0, 2, 1), (2, 1), (1, 2), -128)


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
    unit = np.float64(np.float32(0.1)) * weight_scale
    assert op.steps is not None
    whole = op.bias * unit + op.steps * np.float64(np.float32(0.05))
    np.testing.assert_allclose(whole, m.constants[bias], atol=0.02 * unit.max())
    x = {"x": m.rng.integers(-128, 128, (1, 6)).astype(np.int8)}
    ((name, expected),) = onnxruntime_outputs(path, x).items()
    assert np.abs(reference.run(graph, x)[0][name].astype(int) - expected).max() <= 1


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
    x = {"x": m.rng.normal(0, 3, (1, 4)).astype(np.float32)}
    expected, mine = onnxruntime_outputs(path, x), reference.run(graph, x)[0]
    assert [t.name for t in graph.outputs] == list(expected)
    assert all(np.abs(mine[name].astype(int) - value).max() <= 1 for name, value in expected.items())


def test_a_node_may_have_the_name_of_the_output(m, onnxruntime_outputs):
    w, scale = m.weights(3, 4)
    y = m.node("Gemm", m.quantise(m.input("x", [1, 4])), w, m.bias(scale), name="logits", transB=1)
    m.output(y := m.quantise(y, 0.3))
    model = m.proto()
    for node in model.graph.node:
        node.output[:] = ["logits" if name == y else name for name in node.output]
    model.graph.output[0].name = "logits"
    path = m.folder / "model.onnx"
    onnx.save(model, path)
    graph = import_onnx(path)
    assert [t.name for t in graph.outputs] == ["logits"]
    assert [op.name for op in graph.layers] == ["logits"] and graph.layers[0].output.name == "logits.out"
    x = {"x": m.rng.normal(0, 1, (1, 4)).astype(np.float32)}
    expected = onnxruntime_outputs(path, x)["logits"]
    assert np.abs(reference.run(graph, x)[0]["logits"] - expected).max() <= 0.3001


@pytest.mark.parametrize("opset", [11, 13, 15, 19, 21, 22])
def test_opsets(m, compared, opset):
    w, _ = m.weights(4, 3, axis=1, per_channel=opset >= 13)
    y = m.quantise(m.node("MatMul", m.quantise(m.input("x", [1, 4])), w), 0.1)
    if opset < 13:
        for node in m.nodes:
            del node.attribute[:]
    m.output(m.node("Clip", y, m.const(np.float32(-9))))
    compared(m, 1.001, 0.1, 0.1, opset=opset)


def in_opset(path, version):
    """A file in which amounts of padding and bounds are attributes."""
    node, info = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    nodes = [node("Pad", ["x"], ["p"], pads=[0, 0, 1, 2, 0, 0, 0, 1], value=0.5)]
    nodes += [node("Clip", ["p"], ["y"], min=-0.5, max=1.0)]
    x, y = info("x", onnx.TensorProto.FLOAT, [1, 2, 4, 4]), info("y", onnx.TensorProto.FLOAT, None)
    graph = onnx.helper.make_graph(nodes, "old", [x], [y])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", version)], ir_version=5), path)
    return path


def test_older_opsets_are_converted_or_named(tmp_path, monkeypatch):
    graph = import_onnx(in_opset(tmp_path / "old.onnx", 10))
    given = np.random.default_rng(1).normal(0, 2, (1, 2, 4, 4)).astype(np.float32)
    (found,) = reference.run(graph, {"x": given})[0].values()
    padded = np.pad(given, ((0, 0), (0, 0), (1, 0), (2, 1)), constant_values=0.5)
    np.testing.assert_array_equal(found, np.clip(padded, -0.5, 1))

    def fails(*args):
        raise RuntimeError("no adapter")

    monkeypatch.setattr(onnx.version_converter, "convert_version", fails)
    with pytest.raises(UnsupportedError, match=r"opset 9; must be 11 or later, and onnx cannot convert it \(no adapt"):
        import_onnx(in_opset(tmp_path / "old.onnx", 9))


def test_open_sizes_other_than_the_batch_are_refused(m):
    m.output(m.quantise(m.input("x", ["N", 4, "H", "W"])))
    path = m.save()
    text = r"input 'x' has shape \(N, 4, H, W\); only the first size may be open.*: --shape x=1,4,H,W"
    with pytest.raises(UnsupportedError, match=text):
        import_onnx(path)
    assert import_onnx(read_source(path, shapes={"x": (1, 4, 6, 8)})).inputs[0].shape == (1, 4, 6, 8)


def each(values, change):
    for value in values:
        change(value)


def plain_dense(qdq):
    m = qdq()
    w, scale = m.weights(3, 4)
    m.output(m.quantise(m.node("Gemm", m.quantise(m.input("x", ["N", 4])), w, m.bias(scale), transB=1, name="same")))
    return m


def declare_weights(graph):
    infos = [onnx.helper.make_tensor_value_info(i.name, i.data_type, i.dims) for i in graph.initializer]
    graph.input.extend(infos)


def largest(graph):
    return max(graph.initializer, key=lambda t: len(t.raw_data))


@pytest.mark.parametrize(
    "change, layers",
    [
        (declare_weights, ["same"]),
        (lambda graph: each(graph.node, lambda node: node.ClearField("name")), ["gemm_4"]),
        (lambda graph: each(graph.output, lambda out: out.type.tensor_type.ClearField("shape")), ["same"]),
        (lambda graph: each(graph.node, lambda node: setattr(node, "name", "same")), ["same_4"]),
        (lambda graph: setattr(largest(graph), "data_type", 70), "damaged"),  # a type that does not exist
        (lambda graph: largest(graph).dims.append(3), "damaged"),  # data for another shape
        (lambda graph: setattr(graph.input[0].type.tensor_type, "elem_type", 111), "damaged"),
        (lambda graph: setattr(graph.output[0].type.tensor_type, "elem_type", 111), "damaged"),
    ],
)
def test_what_files_may_leave_out_repeat_or_damage(qdq, change, layers):
    m = plain_dense(qdq)
    model, path = m.proto(), m.folder / "changed.onnx"
    change(model.graph)
    path.write_bytes(model.SerializeToString())
    if layers == "damaged":
        with pytest.raises(FileError, match="damaged"):
            import_onnx(path)
        return
    graph = import_onnx(path)
    assert [op.name for op in graph.layers] == layers and len({op.name for op in graph.ops}) == len(graph.ops)
    assert [(t.name, t.shape) for t in graph.inputs] == [("x", (1, 4))]


@pytest.mark.parametrize("text", [b"QuantizeLinear", b"same"])
def test_names_that_are_no_text(qdq, text):
    m = plain_dense(qdq)
    path = m.folder / "changed.onnx"
    path.write_bytes(m.proto().SerializeToString().replace(text, b"\xff" + text[1:]))
    with pytest.raises(FileError, match=r"damaged \(name b'.xff.* is no UTF-8\)"):
        import_onnx(path)


@pytest.mark.parametrize("share", [0, 0.1, 0.5, 0.99, 0.9999])
def test_truncated_files(tmp_path, share):
    data = DIGITS.read_bytes()
    path = tmp_path / "cut.onnx"
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(
        FileError, match=r"cut\.onnx: is (an empty file|the first [\d,]+ bytes of an ONNX network)"
    ) as caught:
        import_onnx(path)
    assert "\n" not in str(caught.value)


def test_other_files(tmp_path):
    (tmp_path / "text.onnx").write_text("not a model")
    texts = {"absent.onnx": "no such file", ".": "is a folder", "text.onnx": "is a text; give a network"}
    for name, text in texts.items():
        with pytest.raises(FileError, match=text):
            import_onnx(tmp_path / name)


@pytest.mark.parametrize(
    "axis, size, error, text",
    [
        (1, 3, UnsupportedError, "Conv 'conv1' has 3 input channels, its weights have 1"),
        (2, 12, FileError, "shapes or types are inconsistent .Gemm 'gemm'"),
    ],
)
def test_shapes_that_contradict_each_other(tmp_path, axis, size, error, text):
    model = onnx.load(DIGITS)
    model.graph.input[0].type.tensor_type.shape.dim[axis].dim_value = size
    onnx.save(model, tmp_path / "other.onnx")
    with pytest.raises(error, match=text):
        import_onnx(tmp_path / "other.onnx")


def bad(m, op, *inputs, **attrs):
    return m.node(op, *(m.const(x) if isinstance(x, np.ndarray) else m.input(*x) for x in inputs), name="bad", **attrs)


def ones(*shape):
    return np.ones(shape, np.float32)


X, X4, IMAGE = ("x", [1, 1]), ("x", [1, 4]), ("x", [1, 2, 4, 4])
PROBLEMS = {
    "Conv 'bad' has weights or biases that are not constant": lambda m: bad(m, "Conv", IMAGE, ("w", [2, 2, 1, 1])),
    "Conv 'bad' has weights of 5 dimensions; only 3 and 4 are supported": lambda m: bad(
        m, "Conv", ("x", [1, 1, 4, 4, 4]), ones(1, 1, 2, 2, 2)
    ),
    "Conv 'bad' has inputs or attributes that do not fit together": lambda m: bad(
        m, "Conv", IMAGE, ones(2, 2, 1, 1), ones(3)
    ),
    "Conv 'bad' has 2 input channels, its weights have 3": lambda m: bad(m, "Conv", IMAGE, ones(4, 3, 1, 1)),
    "constant 'bad.y' has 67,108,865 elements; at most 67,108,864 are allowed": lambda m: m.node(
        "Add", m.input(*X), bad(m, "Expand", np.zeros(1, np.float32), np.array([(1 << 26) + 1]))
    ),
    "Clip 'bad' has bounds that are not constant": lambda m: m.quantise(
        m.node("Clip", m.quantise(m.input(*X4)), m.input("low", [1]), name="bad")
    ),
    "Pad 'bad' has a shape that depends on values": lambda m: m.node(
        "Pad", m.quantise(m.input(*X4)), m.input("pads", [4], "INT64"), name="bad"
    ),
    "Pad 'bad' has 4,294,967,297 elements; at most 2,147,483,648 are supported": lambda m: bad(
        m, "Pad", X, np.array([0, 1 << 32, 0, 0])
    ),
    "MaxPool 'bad' has positions that are read, or dilations with SAME padding": lambda m: bad(
        m, "MaxPool", IMAGE, kernel_shape=[2, 2], dilations=[2, 2], auto_pad="SAME_UPPER"
    ),
    "MaxPool 'bad' has 3 spatial dimensions; only 1 and 2 are supported": lambda m: bad(
        m, "MaxPool", ("x", [1, 1, 4, 4, 4]), kernel_shape=[2] * 3
    ),
    "AveragePool 'bad' has dilations, or ceil_mode with padding that counts": lambda m: bad(
        m, "AveragePool", IMAGE, kernel_shape=[2, 2], ceil_mode=1, count_include_pad=1
    ),
    "ConvTranspose 'bad' has an output_shape larger than what its kernel reaches": lambda m: bad(
        m, "ConvTranspose", ("x", [1, 1, 4, 4]), ones(1, 1, 3, 3), strides=[2, 2], output_shape=[99, 8]
    ),
    "input 'x' is of type uint16; only float32, int8, uint8, int16, int32, int64, bool": lambda m: bad(
        m, "Cast", ("x", [1, 4], "UINT16"), to=onnx.TensorProto.FLOAT
    ),
    "QGemm 'bad' has inputs or attributes that are not supported": lambda m: bad(
        m, "QGemm", X4, domain="com.microsoft"
    ),
    "QuantizeLinear 'bad' has a scale or zero point that is not constant": lambda m: bad(
        m, "QuantizeLinear", X4, ("scale", [1]), np.zeros((), np.int8)
    ),
    "2 unsupported operators: Strange 'first' is not supported; Unheard 'second' is not": lambda m: m.node(
        "Unheard", m.node("Strange", m.quantise(m.input(*X4)), name="first"), name="second"
    ),
}


@pytest.mark.parametrize("text", PROBLEMS)
def test_why_an_operator_is_refused(m, refusal, text):
    m.output(PROBLEMS[text](m), "INT8" if "Quant" in text else "FLOAT")
    assert text in refusal(m.save())


def test_floats_of_8_bits_are_refused_by_name(m, refusal):
    m.output(bad(m, "QuantizeLinear", X4, ones(), output_dtype=onnx.TensorProto.FLOAT8E4M3FN), "FLOAT8E4M3FN")
    model, path = m.proto(), m.folder / "small.onnx"
    model.opset_import[0].version = 21
    onnx.save(model, path)
    assert "QuantizeLinear 'bad' is of type float8e4m3fn; only int8, uint8, int16, uint16 are supported" in refusal(
        path
    )


def test_every_unsupported_node_is_named_at_once(m, refusal):
    x = m.quantise(m.input("x", [1, 4, 8, 8]))
    y = m.node("Conv", x, m.const(ones(4, 4, 1, 1)), m.input("bias", [4]), name="biased")
    m.output(m.node("Softmax", m.node("Asinh", y, name="wave"), name="top"))
    for k in range(3):
        m.output(m.node("Asinh", x, name=f"other{k}"))
    m.output(m.node("Det", x, name="size"))
    text = refusal(m.save())
    assert "model.onnx: 5 unsupported operators: 4 times: Asinh 'wave' is not supported" in text
    assert "Det 'size' is not supported" in text


def test_contradictions_are_damage(m):
    m.output(m.node("MatMul", m.input("x", [2, 3]), m.const(ones(4, 5)), name="it"))
    with pytest.raises(FileError, match="shapes or types are inconsistent .MatMul 'it'"):
        import_onnx(m.save())


def read(m):
    reader = Reader(m.proto(), {})
    reader.read(named_nodes(m.proto().graph))
    return reader


def test_arithmetic_of_shapes_is_done_when_the_file_is_read(m):
    x = m.input("x", [2, 3, 4])
    size = m.node("Gather", m.node("Shape", x), ints(m, 0), axis=0)
    rest = m.node("Mul", m.node("Slice", m.node("Shape", x), ints(m, 1), ints(m, 2)), ints(m, 2))
    last = m.node("Div", m.node("Size", x), m.node("Mul", size, rest))
    m.output(m.node("Reshape", x, m.node("Concat", size, rest, last, axis=0)))
    reader = read(m)
    assert [node.op for node in reader.nodes] == ["Reshape"]
    assert reader.shapes[reader.nodes[0].outputs[0]] == (2, 6, 2)


@pytest.mark.parametrize("keep", [0, 1])
def test_reductions_have_shapes_of_their_own(m, keep):
    m.output(m.node("ReduceMean", m.input("x", [2, 3, 4]), axes=[-1, 0], keepdims=keep))
    reader = read(m)
    assert reader.shapes[reader.nodes[0].outputs[0]] == ((1, 3, 1) if keep else (3,))


def test_nodes_stand_in_any_order_but_a_cycle(m, onnxruntime_outputs):
    x = m.input("x", [2, 3])
    m.output(m.node("Relu", m.node("Neg", m.node("Abs", m.node("Sub", x, m.const(np.float32(0.5)))))))
    m.nodes.reverse()
    path, values = m.save(), {"x": m.rng.normal(size=(2, 3)).astype(np.float32)}
    found, wanted = reference.run(import_onnx(path), values)[0], onnxruntime_outputs(path, values)
    np.testing.assert_array_equal([*found.values()], [*wanted.values()])
    m.nodes[-1].input[0] = m.nodes[1].output[0]
    with pytest.raises(FileError, match="damaged: (Sub|Abs|Neg) .* reads a value that depends on its own"):
        import_onnx(m.save())


@pytest.mark.parametrize("op", ["SoftmaxCrossEntropyLoss", "SoftmaxGrad", "SGD"])
def test_a_step_of_training_is_named_as_such(m, refusal, op):
    x = m.input("x", [2, 3])
    m.nodes.append(onnx.helper.make_node(op, [m.node("Relu", x), x], ["y"], domain="com.microsoft"))
    m.output("y")
    assert refusal(m.save()).endswith(f"is a step of training, with {op}; export the network for inference instead")
