"""Whole .tflite files: layouts, names, folded shapes, damage, and what is said about files that cannot be imported."""

import random
from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from tilewright.compiler.frontend import import_model
from tilewright.compiler.frontend.core import Refusal, shortened, summary
from tilewright.compiler.frontend.source import read_source
from tilewright.compiler.frontend.tflite.file import read
from tilewright.compiler.frontend.tflite.importer import import_tflite
from tilewright.compiler.frontend.tflite.shapes import fold_constants
from tilewright.compiler.graph import (
    ExactAveragePool,
    NumberBinary,
    QConv2d,
    QConvTranspose2d,
    QDense,
    Reshape,
    Softmax,
    Transpose,
    reference,
)
from tilewright.hw.errors import FileError, InputError, UnsupportedError

SHARED = Path(__file__).parents[5] / "shared"
MODELS = sorted((SHARED / "models").glob("*.tflite"))
# values that differ from the golden ones, which are those of contract double, in contract single
SINGLE = {"resnet8_int8": 12, "vww_int8": 4, "kws_int8": 4, "ad01_int8": 1375}
RIGHT = {"resnet8_int8": 10, "vww_int8": 4, "kws_int8": 12}


@pytest.mark.skipif(not MODELS, reason="../shared/models is not there")
@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_every_output_byte_is_golden(path):
    graph = import_model(path)
    with np.load(SHARED / "inputs" / f"{path.stem}.npz") as data:
        inputs, expected, labels = data["inputs"], data["outputs"], data["labels"]
    differ = {}
    for contract in ("double", "single"):
        outputs, _ = reference.run(graph, {graph.inputs[0].name: inputs[:, 0]}, contract)
        (y,) = outputs.values()
        assert (y.dtype, y.shape) == (np.int8, expected[:, 0].shape)
        differ[contract] = int((y != expected[:, 0]).sum())
        if path.stem in RIGHT:
            assert (y.argmax(1) == labels).sum() == RIGHT[path.stem]
    assert differ == {"double": 0, "single": SINGLE[path.stem]}


def small(m):
    """Convolution, mean of all pixels, dense layer, softmax."""
    x = m.input((1, 6, 5, 3), name="image")
    y = m.op("CONV_2D", [x, *m.weights((4, 3, 3, 3))], (1, 6, 5, 4), 0.05, -3, strideH=1, strideW=1)
    y = m.op(
        "AVERAGE_POOL_2D", [y], (1, 1, 1, 4), 0.05, -3, strideH=1, strideW=1, filterHeight=6, filterWidth=5, padding=1
    )
    y = m.op("RESHAPE", [y, m.const(np.array([1, 4], np.int32))], (1, 4), 0.05, -3)
    y = m.op("FULLY_CONNECTED", [y, *m.weights((3, 4))], (1, 3))
    m.output(m.op("SOFTMAX", [y], (1, 3), 1 / 256, -128, beta=1.0))
    return m


def test_operators_are_named_after_kind_and_position(tflite):
    graph = import_tflite(small(tflite()).save("net.tflite"))
    assert graph.name == "net"
    kinds = [Transpose, QConv2d, ExactAveragePool, Reshape, Reshape, QDense, Softmax]
    assert [type(op) for op in graph.ops] == kinds
    names = ["conv_2d_0", "average_pool_2d_1", "reshape_2", "fully_connected_3", "softmax_4"]
    assert [op.name for op in graph.ops if not op.name.endswith(".relayout")] == names
    assert [(t.name, t.shape) for t in graph.inputs] == [("image", (1, 6, 5, 3))]
    assert graph.outputs[0].shape == (1, 3)


@pytest.mark.parametrize("deprecated", [False, True])
def test_old_and_new_operator_codes(m, deprecated):
    x = m.input((1, 4, 4, 2))
    pads = m.const(np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32))
    y = m.node("PAD", [x, pads], [m.tensor((1, 6, 6, 2), 0.05, -3)], deprecated=deprecated)
    m.output(y)
    if not deprecated:
        m.model.operatorCodes[0].deprecatedBuiltinCode = 0  # new files may leave it out
    assert [op.name for op in import_tflite(m.save()).ops if "relayout" not in op.name] == ["pad_0"]


def test_an_image_at_the_end_keeps_the_layout_of_the_file(m):
    x = m.input((1, 3, 4, 2), name="in")
    y = m.tensor((1, 3, 4, 2), 0.05, -3, name="out")
    m.output(m.node("RELU", [x], [y]))
    graph = import_tflite(m.save())
    assert [(t.name, t.shape) for t in (*graph.inputs, *graph.outputs)] == [("in", (1, 3, 4, 2)), ("out", (1, 3, 4, 2))]
    x = m.rng.integers(-128, 128, (1, 3, 4, 2)).astype(np.int8)
    assert np.array_equal(reference.run(graph, {"in": x})[0]["out"], np.maximum(x, -3))


def test_absent_and_repeated_names(m):
    x = m.input((1, 4), name="same")
    y = m.node("RELU", [x], [m.tensor((1, 4), 0.05, -3, name="same")])
    m.output(m.node("RELU", [y], [m.tensor((1, 4), 0.05, -3, name="")]))
    graph = import_tflite(m.save())
    assert [t.name for t in (*graph.inputs, *(op.output for op in graph.ops))] == ["same", "same:1", "tensor:2"]


def test_everything_unsupported_is_listed_at_once(m):
    x = m.input((1, 4, 4, 2))
    y = m.op("COS", [x], (1, 4, 4, 2))
    w, b = m.weights((3, 1, 1, 2))
    m.graph.tensors[w].quantization = None
    y = m.op("CONV_2D", [y, w, b], (1, 4, 4, 3), strideH=1, strideW=1)
    z = m.tensor((1, 4, 4, 3), dtype="FLOAT32", name="real")
    y = m.node("DEQUANTIZE", [y], [z])
    y = m.node("WHERE", [y], [m.tensor((9, 4), dtype="INT64")])
    m.output(y)
    with pytest.raises(UnsupportedError) as caught:
        import_tflite(m.save())
    text = str(caught.value)
    assert "model.tflite: 3 unsupported constructs: " in text and "\n" not in text
    for part in (
        "COS 'cos_0' (output 't1') is not supported",
        "CONV_2D 'conv_2d_1' (output 't4') has weights 't2' without quantisation parameters",
        "WHERE 'where_3' (output 't6') is not supported",
    ):
        assert part in text


def option(name, value):
    """Makes a change to the convolution's options; see `PROBLEMS`."""
    return lambda m: setattr(m.graph.operators[0].builtinOptions, name, value)


def tensor(number, name, value):
    """Makes a change to a tensor."""
    return lambda m: setattr(m.graph.tensors[number], name, value)


def quantisation(number, name, value):
    """Makes a change to a tensor's quantisation."""
    return lambda m: setattr(m.graph.tensors[number].quantization, name, value)


def operands(name, make):
    """Makes a change to the convolution's inputs or outputs."""
    return lambda m: setattr(m.graph.operators[0], name, np.array(make(m), np.int32))


def open_size(m):
    m.graph.tensors[0].shapeSignature = np.array([-1, -1, 5, 3], np.int32)
    m.graph.tensors[0].shape = np.array([1, 1, 5, 3], np.int32)


IMAGE_AS_WEIGHTS = operands("inputs", lambda m: [0, 0, 2])
PROBLEMS = {
    "has 4 inputs; at most 3 are supported": operands("inputs", lambda m: [0, 1, 2, 2]),
    "has 2 outputs; only one is supported": operands("outputs", lambda m: [3, m.tensor((1,), 1.0)]),
    "has strides (0, 1); they must be at least 1": option("strideH", 0),
    "has dilations (1, 0)": option("dilationWFactor", 0),
    "has fused activation 4; only none": option("fusedActivationFunction", 4),
    "input 'image': has tensor 'image' with no quantisation parameters": tensor(0, "quantization", None),
    "input 'image': has tensor 'image' with 2 scales": quantisation(0, "scale", np.ones(2, np.float32)),
    "the conversion is ('int16', 'int8'), expected ('int16', 'int16')": tensor(0, "type", 7),
    "input 'image' has shape (?, ?, 5, 3); only the first size may be open; give numbers": open_size,
    "has weights 't1' with a zero point other than 0": quantisation(1, "zeroPoint", np.array([1, 0, 0, 0])),
    "has weights 't1' of shape (4, 3, 3, 3) with 4 scales along dimension 3": quantisation(1, "quantizedDimension", 3),
    ": int32 of shape (3,), expected int32 (4,)": operands("inputs", lambda m: [0, 1, m.const(np.zeros(3, np.int32))]),
    "has 3 input channels and weights of shape (4, 3, 3, 2)": operands(
        "inputs", lambda m: [0, *m.weights((4, 3, 3, 2))]
    ),
    "has input 'image' that is not constant": IMAGE_AS_WEIGHTS,
    "scale inf must be positive and finite": quantisation(0, "scale", np.array([np.inf], np.float32)),
    "reads 'image' before an operator produces it": lambda m: setattr(m.graph, "inputs", []),
}


@pytest.mark.parametrize("text", PROBLEMS)
def test_why_a_model_is_refused(tflite, text):
    m = small(tflite())
    PROBLEMS[text](m)
    with pytest.raises(UnsupportedError) as caught:
        import_tflite(m.save())
    assert text in str(caught.value)
    if PROBLEMS[text] not in (IMAGE_AS_WEIGHTS, open_size):  # which the layers behind do not fit either
        assert ": 1 unsupported construct: " in str(caught.value)


def test_ends_that_are_refused(tflite):
    two = np.array([0.1, 0.2], np.float32)
    cases = []
    for make, text in (
        (lambda m: m.tensor((1, 4), 0.05, -3, name="y"), "output 'y' has no operator that produces it"),
        (lambda m: m.const(np.zeros((2, 3), np.int8), two), "output .* has tensor .* with 2 scales; activations have"),
    ):
        m = tflite()
        m.input((1, 4))
        m.output(make(m))
        cases.append((m, text))
    for m, text in cases:
        with pytest.raises(UnsupportedError, match=text):
            import_tflite(m.save())


@pytest.mark.parametrize("dtype, middle", [("INT8", 0), ("UINT8", 128)])
def test_inputs_and_constants_as_outputs(m, equals_litert, dtype, middle):
    x = m.input((1, 6), 0.05, middle, dtype=dtype)
    m.output(m.node("RELU", [x], [m.tensor((1, 6), 0.05, middle, dtype=dtype)]))
    m.output(x)
    m.output(m.const(np.arange(3, dtype=np.float32)))
    equals_litert(m, m.const(np.arange(3, dtype=np.int8), 0.05, 3))


def test_open_sizes_that_the_file_gives(m, equals_litert):
    x = m.input((1, 6, 5, 3))
    m.graph.tensors[x].shapeSignature = np.array([-1, -1, -1, 3], np.int32)
    equals_litert(m, m.op("RELU", [x], (1, 6, 5, 3), 0.05, -3))


@pytest.mark.parametrize("size", [(2, 9, 7), (1, 4, 12)])
def test_open_sizes_that_are_given(m, size):
    x = m.input((1, 1, 1, 3), name="x")
    m.graph.tensors[x].shapeSignature = np.array([-1, -1, -1, 3], np.int32)
    y = m.op("CONV_2D", [x, *m.weights((6, 3, 3, 3))], (1, 1, 1, 6), padding=0, strideH=2, strideW=1)
    m.output(m.op("RELU", [y], (1, 1, 1, 6), 0.05, -3))
    path, shape = m.save(), (*size, 3)
    with pytest.raises(UnsupportedError, match="give numbers for the others: --shape x=1,1,1,3"):
        import_tflite(path)
    graph = import_tflite(read_source(path, shapes={"x": shape}))
    image = np.random.default_rng(0).integers(-128, 128, shape, np.int8)
    interpreter = Interpreter(str(path), experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    interpreter.resize_tensor_input(interpreter.get_input_details()[0]["index"], shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], image)
    interpreter.invoke()
    expected = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    values, _ = reference.run(graph, {"x": image}, "double")
    np.testing.assert_array_equal(values[graph.outputs[0].name], expected)
    for wrong, text in (
        ({"x": (1, 4, 4, 4)}, r"\(any, any, any, 3\), which \(1, 4, 4, 4\) is not"),
        ({"q": shape}, "no input 'q'"),
    ):
        with pytest.raises(InputError, match=text):
            import_tflite(read_source(path, shapes=wrong))


def test_other_endings(tmp_path):
    (tmp_path / "net.pb").write_bytes(b"\xff" * 30)
    with pytest.raises(UnsupportedError, match=r"net\.pb: unknown kind of network; must be one of \.tflite, \.onnx"):
        import_model(tmp_path / "net.pb")


FOLDER = Path(__file__).parents[5] / "shared" / "networks"
# name -> the contract in which LiteRT rounds: dense layers once
NETWORKS = {
    "R_coral_mobilenetv1_uint8_025_128": "double",
    "R_coral_movenet_lightning": "double",
    "R_mcunet_detection": "double",
    "efinix_face_detection": "double",
    "mcunet_vww": "double",
    "secda_dcgan_gen": "single",
}


@pytest.mark.skipif(not FOLDER.is_dir(), reason="../shared/networks is not there")
@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if "movenet" in n else n for n in NETWORKS])
def test_every_output_byte_is_that_of_litert(name):
    graph = import_tflite(FOLDER / f"{name}.tflite")
    with np.load(FOLDER / f"{name}.npz") as given, np.load(FOLDER / f"{name}.litert_ref.npz") as wanted:
        (x,) = graph.inputs
        for k, each in enumerate(given["inputs"]):
            found, _ = reference.run(graph, {x.name: each}, NETWORKS[name])
            for number, output in enumerate(wanted["names"].tolist()):
                expected = wanted[f"o{number}"][k]
                assert found[output].dtype == expected.dtype and np.array_equal(found[output], expected)


LONG = "model/block/" * 9 + "BiasAdd"


def test_summaries_of_refusals():
    """Long names keep their end, and refusals that differ in names and numbers alone are counted together."""
    assert shortened("x" * 40) == "x" * 40
    assert len(shortened(LONG)) == 40 and shortened(LONG).startswith("...") and shortened(LONG).endswith("k/BiasAdd")
    one = "1 unsupported construct: COS 'cos_0' (output 'y') is bad"
    assert summary([Refusal("is bad", "COS", "cos_0", "y")]) == one
    text = summary([Refusal(f"has input '{LONG}'", "COS", "cos_0", LONG)])
    assert len(text) < 150 and text.count("k/BiasAdd'") == 2
    bits = [Refusal(f"has weights '{k}' of {k} bits", "CONV_2D", f"conv_2d_{k}", "y") for k in range(28)]
    text = summary([Refusal("input 'x': no"), *bits])
    first = "CONV_2D 'conv_2d_0' (output 'y') has weights '0' of 0 bits"
    assert text == f"29 unsupported constructs: 28 times: {first}; input 'x': no"
    text = summary([Refusal("is bad", f"KIND{'X' * k}", "k", "y") for k in range(23)])
    assert text.count("is bad") == 20 and text.endswith("; and 3 more of 3 other kinds")


@pytest.fixture
def model(tflite):
    m = tflite()
    x = m.input((1, 6, 5, 3))
    m.output(m.op("CONV_2D", [x, *m.weights((4, 3, 3, 3))], (1, 6, 5, 4), strideH=1, strideW=1))
    return m


def test_what_a_file_says(model):
    file = read(model.save())
    assert [(n.kind, n.name, n.tensor, n.inputs, n.outputs) for n in file.nodes] == [
        ("CONV_2D", "conv_2d_0", "t3", (0, 1, 2), (3,))
    ]
    assert (file.inputs, file.outputs) == ((0,), (3,))
    weights = file.tensors[1]
    assert weights.data is not None and weights.data.shape == (4, 3, 3, 3) and weights.scale.shape == (4,)
    assert file.nodes[0].option("strideH", 0) == 1 and file.nodes[0].option("unknown", 7) == 7


def test_files_of_other_kinds(tmp_path):
    with pytest.raises(FileError, match="no such file"):
        read(tmp_path / "absent.tflite")
    with pytest.raises(FileError, match="is a folder"):
        read(tmp_path)
    texts = {
        b"": "is an empty file",
        b"not a model at all": "is a text",
        bytes(1000): "not a .tflite model: bytes 4 to 7",
    }
    for content, text in texts.items():
        (tmp_path / "other.tflite").write_bytes(content)
        with pytest.raises(FileError, match=rf"other\.tflite: {text}"):
            read(tmp_path / "other.tflite")


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.9, 0.99])
def test_truncated_files(model, share):
    path = model.save()
    data = path.read_bytes()
    path.write_bytes(data[: max(8, int(len(data) * share))])
    with pytest.raises(FileError, match=r"model\.tflite: a truncated or damaged \.tflite model") as caught:
        read(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("seed", range(20))
def test_bytes_changed_at_random(model, seed):
    """Some changes are harmless; the others must be named errors."""
    rng, path = random.Random(seed), model.save()
    original = path.read_bytes()
    for _ in range(20):
        data = bytearray(original)
        for _ in range(rng.randint(1, 6)):
            data[rng.randrange(8, len(data))] = rng.randrange(256)
        path.write_bytes(data)
        try:
            import_tflite(path)
        except (FileError, UnsupportedError, InputError) as exc:
            assert str(path) in str(exc) and "\n" not in str(exc)


def test_references_that_lead_nowhere(model):
    model.graph.operators[0].inputs[0] = 99
    with pytest.raises(FileError, match=r"operator 0 \(CONV_2D\) names tensors that the file does not have"):
        read(model.save())
    model.graph.operators[0].inputs[0] = 0
    model.graph.outputs = [99]
    with pytest.raises(FileError, match="inputs or outputs are tensors that the file does not have"):
        read(model.save())


def test_a_constant_of_another_size(model):
    model.model.buffers[1].data = model.model.buffers[1].data[:-1]
    with pytest.raises(FileError, match=r"constant 't1' has 107 bytes; INT8 of shape \(4, 3, 3, 3\) takes 108"):
        read(model.save())


def test_names_are_printable(model):
    model.graph.tensors[0].name, model.graph.tensors[3].name = "image\n\x00", "ünï"
    names = [t.name for t in read(model.save()).tensors]
    assert (names[0], names[3]) == ("image??", "ünï")


def numbers(m, *values):
    return m.const(np.array(values if len(values) != 1 else values[0], np.int32))


def integer(m, kind, inputs, shape, **options):
    return m.node(kind, inputs, [m.tensor(shape, dtype="INT32")], **options)


def first_of_shape(m, x):
    """The batch size, as Keras computes it."""
    shape = integer(m, "SHAPE", [x], (4,), outType=2)
    cut = [m.const(np.array([v], np.int32)) for v in (0, 1, 1)]
    return integer(m, "STRIDED_SLICE", [shape, *cut], (), shrinkAxisMask=1)


def keras_dense(m, rows, features, units):
    """A dense layer of Keras on rows of a sequence of open batch; the file records 1 for every size it does not know.

    Returns the tensors that record other shapes than they have.
    """
    x = m.input((1, rows, features))
    shape = integer(m, "SHAPE", [x], (3,), outType=2)
    outer = integer(m, "GATHER", [shape, numbers(m, 0, 1)], (2,))
    count = integer(m, "REDUCE_PROD", [outer, numbers(m, [0])], ())
    flat = m.tensor((1, 1), 0.05, -3)
    target = integer(m, "PACK", [count, numbers(m, features)], (2,), valuesCount=2)
    m.node("RESHAPE", [x, target], [flat])
    sums = m.op("FULLY_CONNECTED", [flat, *m.weights((units, features))], (1, units), 0.3, 5)
    target = integer(m, "CONCATENATION", [outer, numbers(m, [units])], (3,))
    back = m.op("RESHAPE", [sums, target], (1, 1, units), 0.3, 5)
    for t in (x, flat, sums, back):
        shape = m.graph.tensors[t].shape
        m.graph.tensors[t].shapeSignature = np.array([-1 if n == 1 else n for n in shape], np.int32)
    return flat, sums, back


def test_computed_shapes_override_recorded_ones(m, equals_litert):
    *_, y = keras_dense(m, 6, 12, 4)
    y = m.op("RELU", [y], (1, 1, 4), 0.2, -9)
    m.output(y)
    padded = m.op("PAD", [y, m.const(np.array([[0, 0], [1, 2], [0, 1]], np.int32))], (1, 1, 1), 0.2, -9)
    equals_litert(m, m.op("TRANSPOSE", [padded, numbers(m, 0, 2, 1)], (1, 1, 1), 0.2, -9))


def test_a_reshape_and_a_transposed_convolution_with_an_open_batch(m, litert_outputs):
    x = m.input((1, 3, 4, 2))
    m.graph.tensors[x].shapeSignature = np.array([-1, 3, 4, 2], np.int32)
    batch = first_of_shape(m, x)
    shape = integer(m, "PACK", [batch, *(numbers(m, n) for n in (6, 8, 5))], (4,), valuesCount=4)
    weights, bias = m.weights((5, 3, 3, 2))
    y = m.op("TRANSPOSE_CONV", [shape, weights, x, bias], (1, 6, 8, 5), padding=0, strideH=2, strideW=2)
    shape = integer(m, "PACK", [first_of_shape(m, y), numbers(m, 240)], (2,), valuesCount=2)
    m.output(m.op("RESHAPE", [y, shape], (1, 240)))
    path = m.save()
    graph = import_tflite(path)
    kinds = [type(op) for op in graph.ops if not op.name.endswith(".relayout")]
    assert kinds == [QConvTranspose2d, Reshape]
    x = m.rng.integers(-128, 128, (1, 3, 4, 2)).astype(np.int8)
    outputs, _ = reference.run(graph, {graph.inputs[0].name: x})
    assert np.array_equal(next(iter(outputs.values())), litert_outputs(path, x)[0])


@pytest.mark.parametrize(
    "kind, values, options, expected",
    [
        ("ADD", ([1, 2], [3, 4]), {}, [4, 6]),
        ("SUB", ([1, 2], [3, 5]), {}, [-2, -3]),
        ("MUL", ([1, 2], [3, 4]), {}, [3, 8]),
        ("FLOOR_DIV", ([7, -7], [2, 2]), {}, [3, -4]),
        ("PACK", ([1, 2], [3, 4]), {"axis": 1, "valuesCount": 2}, [[1, 3], [2, 4]]),
        ("CONCATENATION", ([1, 2], [3]), {}, [1, 2, 3]),
        ("GATHER", ([5, 6, 7], [2, 0]), {}, [7, 5]),
        ("REDUCE_PROD", ([2, 3, 4], [0]), {}, 24),
        ("STRIDED_SLICE", ([5, 6, 7, 8], [-1], [0], [-2]), {"endMask": 1}, [8, 6]),
        ("EXPAND_DIMS", ([5, 6], [0]), {}, [[5, 6]]),
        ("RANK", ([[5, 6], [7, 8]],), {}, 2),
        ("RANGE", (2, 9, 3), {}, [2, 5, 8]),
        ("ZEROS_LIKE", ([5, 6],), {}, [0, 0]),
        ("MAXIMUM", ([1, 5], [3, 4]), {}, [3, 5]),
        ("MINIMUM", ([1, 5], [3, 4]), {}, [1, 4]),
        ("FLOOR_MOD", ([7, -7], [2, 2]), {}, [1, 1]),
        ("SLICE", ([5, 6, 7], [1], [-1]), {}, [6, 7]),
        ("TILE", ([5, 6], [2]), {}, [5, 6, 5, 6]),
        ("TRANSPOSE", ([[5, 6]], [1, 0]), {}, [[5], [6]]),
        ("BROADCAST_TO", ([5], [3]), {}, [5, 5, 5]),
        ("FILL", ([3], 7), {}, [7, 7, 7]),
    ],
)
def test_folded_operators(m, kind, values, options, expected):
    inputs = [m.const(np.array(v, np.int32)) for v in values]
    m.output(integer(m, kind, inputs, np.shape(expected), **options))
    file = read(m.save())
    found = fold_constants(file.nodes[0], file.tensors)
    assert found is not None and found.dtype == np.int32 and found.tolist() == expected


def test_first_values_of_a_state_that_the_file_fills(m, equals_litert):
    """As an unrolled recurrent layer has them: a constant of as many rows as the input."""
    x = m.input((1, 3, 4, 2), 0.05, 4)
    size = integer(m, "PACK", [first_of_shape(m, x), *(numbers(m, n) for n in (3, 4, 2))], (4,), valuesCount=4)
    filled = m.node("FILL", [size, m.const(np.array(9, np.int8), 0.02, 3)], [m.tensor((1, 3, 4, 2), 0.02, 3)])
    equals_litert(m, m.op("ADD", [x, filled], (1, 3, 4, 2)))


def test_parts_that_do_not_fit_together(m):
    m.output(integer(m, "PACK", [numbers(m, 1, 2), numbers(m, 1, 2, 3)], (2, 2), valuesCount=2))
    file = read(m.save())
    assert fold_constants(file.nodes[0], file.tensors) is None


def test_what_is_not_known_is_not_folded(m):
    x = m.tensor((2,), dtype="INT32", name="sizes")
    m.graph.inputs.append(x)
    m.output(integer(m, "ADD", [x, numbers(m, 1, 2)], (2,)))
    path = m.save()
    file = read(path)
    assert fold_constants(file.nodes[0], file.tensors) is None
    assert [type(op) for op in import_tflite(path).ops] == [NumberBinary]
