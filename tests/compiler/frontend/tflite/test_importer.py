"""Whole .tflite files: layouts, names, and what is said about files that cannot be imported."""

from pathlib import Path

import numpy as np
import pytest

from tilewright.compiler.frontend import import_model
from tilewright.compiler.frontend.tflite.importer import import_tflite
from tilewright.compiler.graph import ExactAveragePool, QConv2d, QDense, Reshape, Softmax, Transpose, reference
from tilewright.hw.errors import UnsupportedError

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


OTHER_SHAPE = tensor(3, "shape", np.array([1, 7, 5, 4], np.int32))
PROBLEMS = {
    "has 4 inputs; at most 3 are supported": operands("inputs", lambda m: [0, 1, 2, 2]),
    "has 2 outputs; only one is supported": operands("outputs", lambda m: [3, m.tensor((1,), 1.0)]),
    "has strides (0, 1); they must be at least 1": option("strideH", 0),
    "has dilations (1, 0)": option("dilationWFactor", 0),
    "has fused activation 4; only none": option("fusedActivationFunction", 4),
    "input 'image': has tensor 'image' with no quantisation parameters": tensor(0, "quantization", None),
    "input 'image': has tensor 'image' with 2 scales": quantisation(0, "scale", np.ones(2, np.float32)),
    "has tensor 'image' of 16 bits; only activations of 8 bits are supported: convert the model": tensor(0, "type", 7),
    "input 'image' has shape (?, ?, 5, 3); the file must give open sizes, but": open_size,
    "has weights 't1' with a zero point other than 0": quantisation(1, "zeroPoint", np.array([1, 0, 0, 0])),
    "has weights 't1' of shape (4, 3, 3, 3) with 4 scales along dimension 3": quantisation(1, "quantizedDimension", 3),
    ": int32 of shape (3,), expected int32 (4,)": operands("inputs", lambda m: [0, 1, m.const(np.zeros(3, np.int32))]),
    "has input 'image' that is not constant": operands("inputs", lambda m: [0, 0, 2]),
    "scale inf must be positive and finite": quantisation(0, "scale", np.array([np.inf], np.float32)),
    "CONV_2D 'conv_2d_0' (output 't3') does not fit: QConv2d 'conv_2d_0': the output's shape": OTHER_SHAPE,
    "reads 'image' before an operator produces it": lambda m: setattr(m.graph, "inputs", []),
}


@pytest.mark.parametrize("text", PROBLEMS)
def test_why_a_model_is_refused(tflite, text):
    m = small(tflite())
    PROBLEMS[text](m)
    with pytest.raises(UnsupportedError) as caught:
        import_tflite(m.save())
    assert text in str(caught.value)
    if PROBLEMS[text] not in (OTHER_SHAPE, open_size):  # which the layers behind do not fit either
        assert ": 1 unsupported construct: " in str(caught.value)


def test_float_models(m):
    x = m.input((1, 4), None, dtype="FLOAT32")
    m.output(m.node("RELU", [x], [m.tensor((1, 4), dtype="FLOAT32")]))
    with pytest.raises(UnsupportedError, match="is a float32 model without int8 tensors; convert it"):
        import_tflite(m.save())


def test_outputs_that_nothing_computes(m):
    m.input((1, 4))
    m.output(m.tensor((1, 4), 0.05, -3, name="y"))
    with pytest.raises(UnsupportedError, match="output 'y' has no operator that produces it"):
        import_tflite(m.save())


def test_outputs_that_are_no_activations(m):
    m.input((1, 4))
    m.output(m.const(np.zeros((2, 3), np.int8), np.array([0.1, 0.2], np.float32)))
    with pytest.raises(UnsupportedError, match="output .* has tensor .* with 2 scales; activations have one scale"):
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


def test_other_endings():
    with pytest.raises(UnsupportedError, match=r"net\.pb: unknown kind of network; must be one of \.tflite, \.onnx"):
        import_model("net.pb")
