"""A small ONNX network whose first layers have ternary weights."""

import numpy as np
import pytest


def _layer(onnx, nodes, constants, x, weight, name, **attributes):
    """Appends Conv or Gemm `name` on `x` with quantised weights, bias and result; returns the dequantised result."""
    rng = np.random.default_rng(len(nodes))

    def constant(value):
        found = f"c{len(constants)}"
        constants.append(onnx.numpy_helper.from_array(np.asarray(value), found))
        return found

    def node(kind, inputs, output, **facts):
        nodes.append(onnx.helper.make_node(kind, inputs, [output], name=output, **facts))
        return output

    scale = rng.uniform(0.1, 0.3, len(weight)).astype(np.float32)
    zeros = constant(np.zeros(len(weight), np.int8))
    w = node("DequantizeLinear", [constant(weight), constant(scale), zeros], f"{name}.w", axis=0)
    bias = [constant(rng.integers(-50, 50, len(weight)).astype(np.int32)), constant(np.float32(0.05) * scale)]
    b = node("DequantizeLinear", [*bias, constant(np.zeros(len(weight), np.int32))], f"{name}.b", axis=0)
    y = node("Gemm" if weight.ndim == 2 else "Conv", [x, w, b], name, **attributes)
    return quantised(onnx, nodes, constants, y)


def quantised(onnx, nodes, constants, x):
    parameters = [f"{x}.scale", f"{x}.zero"]
    for name, value in zip(parameters, (np.float32(0.05), np.int8(3))):
        constants.append(onnx.numpy_helper.from_array(np.asarray(value), name))
    nodes.append(onnx.helper.make_node("QuantizeLinear", [x, *parameters], [f"{x}.q"], name=f"{x}.q"))
    nodes.append(onnx.helper.make_node("DequantizeLinear", [f"{x}.q", *parameters], [f"{x}.d"], name=f"{x}.d"))
    return f"{x}.d"


@pytest.fixture
def ternary_onnx(tmp_path):
    """The path of a network x (1, 4, 6, 6) -> first (8 channels) -> second (8) -> scores (5 classes).

    All weights of `first` and `scores` are ternary, of `second` those of the even channels.
    """
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("tvm")
    rng, nodes, constants = np.random.default_rng(0), [], []
    first = rng.integers(-1, 2, (8, 4, 3, 3)).astype(np.int8)
    second = rng.integers(-1, 2, (8, 8, 3, 3)).astype(np.int8)
    second[1::2] = rng.integers(-9, 9, second[1::2].shape)
    x = quantised(onnx, nodes, constants, "x")
    x = _layer(onnx, nodes, constants, x, first, "first", pads=[1, 1, 1, 1])
    x = _layer(onnx, nodes, constants, x, second, "second", pads=[1, 1, 1, 1], strides=[2, 2])
    nodes.append(onnx.helper.make_node("Flatten", [x], ["flat"], name="flat"))
    scores = rng.integers(-1, 2, (5, 72)).astype(np.int8)
    y = _layer(onnx, nodes, constants, "flat", scores, "scores", transB=1)
    given = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 4, 6, 6])
    made = onnx.helper.make_tensor_value_info(y, onnx.TensorProto.FLOAT, [1, 5])
    graph = onnx.helper.make_graph(nodes, "ternary", [given], [made], constants)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    path = tmp_path / "ternary.onnx"
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return path
