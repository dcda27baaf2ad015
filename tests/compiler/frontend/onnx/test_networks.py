"""Whole networks as onnxruntime's quantiser writes them: they import, run on the device, and give its results.

Each layer by itself rounds as onnxruntime, and as integers define it in the contract of the format.
"""

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from tilewright.cli.layers import share_on_device
from tilewright.compiler import graph as g
from tilewright.compiler.frontend.onnx import import_onnx
from tilewright.compiler.graph import reference
from tilewright.compiler.graph.reference import compare
from tilewright.compiler.network import compile_graph
from tilewright.hw.config import PRESETS
from tilewright.runtime.loader import run

# what the quantiser offers, and its opsets
OPTIONS = (
    {"opset": 17},
    {"opset": 13, "activations": "QUInt8", "weights": "QUInt8", "per_channel": False},
    {"opset": 21, "prepare": True},
    {"opset": 11, "qdq": False, "activations": "QUInt8", "per_channel": False},
    {"opset": 13, "qdq": False},
)
NAMES = (
    "mobilefacenet mobilenet_v2 mobilenet_v3 resnet segmentation shufflenet sound speech transformer unet yolo".split()
)
# operators that have no integer form here, beside those that QOperator files leave in float32
FLOAT = {
    "segmentation": {"FloatAveragePool", "FloatBinary", "FloatFunction", "FloatResize"},
    "sound": {"FloatSoftmax"},
    "speech": {"FloatBinary", "FloatFunction", "FloatMatMul"},
    "transformer": {"FloatBinary", "FloatFunction", "FloatReduce"},
}


@pytest.mark.parametrize("options", OPTIONS, ids=range(len(OPTIONS)))
@pytest.mark.parametrize("name", NAMES)
def test_networks_equal_onnxruntime_but_for_rounding(quantise, onnxruntime_outputs, name, options):
    """Roundings of single operators, of one step, add up: the correlation says that nothing else differs."""
    path, shape = quantise(name, **options)
    graph = import_onnx(path)
    if options.get("qdq", True):
        floats = {type(op).__name__ for op in graph.ops if isinstance(op, g.FloatOperator)}
        assert floats <= FLOAT.get(name, set())
    rng = np.random.default_rng(1)
    for _ in range(2):
        x = {"x": rng.normal(0, 1, shape).astype(np.float32)}
        mine, _ = reference.run(graph, x)
        for tensor, expected in onnxruntime_outputs(path, x).items():
            assert mine[tensor].shape == expected.shape
            assert np.corrcoef(mine[tensor].reshape(-1), expected.reshape(-1))[0, 1] > 0.98


@pytest.mark.circuit
@pytest.mark.parametrize("name", ["mobilenet_v3", "segmentation", "speech", "transformer", "yolo"])
def test_networks_are_exact_on_the_device(quantise, name):
    path, shape = quantise(name)
    graph, cfg = import_onnx(path), PRESETS["pynq_z1"]
    x = {"x": np.random.default_rng(1).normal(0, 1, shape).astype(np.float32)}
    found = compare(graph, x, run(compile_graph(graph, cfg), x)[0])
    assert found.difference is None, str(found.difference)


@pytest.mark.circuit
@pytest.mark.parametrize("name", ["mobilefacenet", "shufflenet"])
def test_networks_in_one_launch(quantise, name):
    path, shape = quantise(name)
    graph, cfg = import_onnx(path), PRESETS["pynq_z1"]
    executable = compile_graph(graph, cfg)
    assert len(executable.launches) == 1 and (share_on_device(executable) or 0) > 0.99
    x = {"x": np.random.default_rng(1).normal(0, 1, shape).astype(np.float32)}
    found = compare(graph, x, run(executable, x)[0])
    assert found.difference is None, str(found.difference)


def ends(model):
    """(int8 tensor that it reads, int8 tensor that it becomes) of each layer, by the name of its node."""
    makers = {y: node for node in model.graph.node for y in node.output}
    readers = {x: node for node in model.graph.node for x in node.input}
    found = {}
    for node in model.graph.node:
        if node.op_type in ("Conv", "Gemm"):
            last = readers[node.output[0]]
            while last.op_type != "QuantizeLinear":
                last = readers[last.output[0]]
            found[node.name] = makers[node.input[0]].input[0], last.output[0]
    return found


def by_integers(op, x):
    """int8: onnxruntime's integer products, plus the bias, times the scale, rounded once, ties up."""
    info, kind = onnx.helper.make_tensor_value_info, "ConvInteger" if isinstance(op, g.QConv2d) else "MatMulInteger"
    attrs = {"strides": op.strides, "pads": op.pads, "group": op.groups} if kind == "ConvInteger" else {}
    constants = {"w": op.weight if attrs else op.weight.T, "z": np.int8(op.x.zero_point)}
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(kind, ["x", "w", "z"], ["y"], **attrs)],
        "layer",
        [info("x", onnx.TensorProto.INT8, x.shape)],
        [info("y", onnx.TensorProto.INT32, None)],
        [onnx.numpy_helper.from_array(np.ascontiguousarray(value), name) for name, value in constants.items()],
    )
    opset = [onnx.helper.make_opsetid("", 17)]
    session = ort.InferenceSession(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString())
    sums = np.asarray(session.run(None, {"x": x})[0])
    ratio = np.float64(op.x.scale) * op.weight_scale.astype(np.float64) / op.output.scale
    mantissa, exponent = np.frexp(ratio)
    shape = (-1, *[1] * (sums.ndim - 2))
    multiplier = np.floor(mantissa * 2.0**31 + 0.5).astype(np.int64).reshape(shape)
    total = (sums.astype(np.int64) + op.bias.reshape(shape)) * multiplier
    right = 31 - exponent.astype(np.int64).reshape(shape)
    steps = (total + (np.int64(1) << right - 1)) >> right
    return np.clip(steps + op.output.zero_point, op.low, op.high).astype(np.int8)


@pytest.mark.circuit
@pytest.mark.parametrize(
    "name",
    [
        "mobilenet_v2",
        "mobilefacenet",
        pytest.param("mobilenet_v2_224", marks=pytest.mark.slow),
        pytest.param("mobilefacenet_112", marks=pytest.mark.slow),
    ],
)
def test_layers_round_as_onnxruntime(quantise, onnxruntime_outputs, tmp_path, name):
    """It sums in float32: at most one value of 100,000 differs, by one step. The device gives the integers."""
    path, shape = quantise(name)
    graph, model, inputs = import_onnx(path), onnx.load(path), {}
    places = ends(model)
    kept = {tensor: None for pair in places.values() for tensor in pair}
    model.graph.output.extend(onnx.helper.make_tensor_value_info(t, onnx.TensorProto.INT8, None) for t in kept)
    onnx.save(model, tmp_path / "every.onnx")
    inputs = {"x": np.random.default_rng(1).normal(0, 1, shape).astype(np.float32)}
    values = onnxruntime_outputs(tmp_path / "every.onnx", inputs)
    assert {op.name for op in graph.layers} == places.keys()
    differing = total = 0
    for op in graph.layers:
        x, expected = (values[t] for t in places[op.name])
        found = reference.apply(op, x, contract=graph.contract)
        assert np.array_equal(found, by_integers(op, x)), op.name
        apart = np.abs(found.astype(int) - expected)
        assert apart.max() <= 1 and len(np.unique(found)) > 8, op.name
        differing, total = differing + np.count_nonzero(apart), total + apart.size
    assert differing <= 1e-5 * total, f"{differing} of {total:,}"
    cfg = PRESETS["pynq_z1"]
    assert compare(graph, inputs, run(compile_graph(graph, cfg, every_value=True), inputs)[0]).difference is None
