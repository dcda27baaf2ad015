"""Whole networks as onnxruntime's quantiser writes them: they import, run on the device, and give its results."""

import numpy as np
import pytest

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
    "mobilefacenet": {"FloatBinary"},
    "segmentation": {"FloatAveragePool", "FloatBinary", "FloatFunction", "FloatMatMul"},
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


def test_a_dynamically_quantised_mobilenet_v2_of_53_convolutions(quantise, onnxruntime_outputs):
    path, shape = quantise("mobilenet_v2", dynamic=True, blocks=((6, 8, 6, 1), (6, 16, 11, 2)))
    x = {"x": np.random.default_rng(1).normal(0, 1, shape).astype(np.float32)}
    (mine,), (expected,) = reference.run(import_onnx(path), x)[0].values(), onnxruntime_outputs(path, x).values()
    assert np.corrcoef(mine.reshape(-1), expected.reshape(-1))[0, 1] > 0.98


@pytest.mark.circuit
@pytest.mark.parametrize("name", ["mobilenet_v3", "segmentation", "speech", "transformer", "yolo"])
def test_networks_are_exact_on_the_device(quantise, name):
    path, shape = quantise(name)
    graph, cfg = import_onnx(path), PRESETS["pynq_z1"]
    x = {"x": np.random.default_rng(1).normal(0, 1, shape).astype(np.float32)}
    found = compare(graph, x, run(compile_graph(graph, cfg), x)[0])
    assert found.difference is None, str(found.difference)
