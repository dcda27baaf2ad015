"""Builds small quantised ONNX models, and shows the instructions of schedules."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from tilewright.compiler import build
from tilewright.hw.isa import Isa


class QdqModel:
    """A QDQ model in the making: every method appends nodes and returns the name of the resulting tensor."""

    def __init__(self, folder, seed=0, activations=np.int8):
        self.folder, self.rng, self.type = folder, np.random.default_rng(seed), activations
        self.nodes, self.constants, self.inputs, self.outputs = [], {}, [], []

    def const(self, array):
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def node(self, kind, *inputs, name=None, **attrs):
        name = name or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(onnx.helper.make_node(kind, list(inputs), [f"{name}.y"], name=name, **attrs))
        return f"{name}.y"

    def input(self, name, shape, dtype="FLOAT"):
        self.inputs.append(onnx.helper.make_tensor_value_info(name, getattr(onnx.TensorProto, dtype), shape))
        return name

    def output(self, tensor, dtype="FLOAT"):
        self.outputs.append(onnx.helper.make_tensor_value_info(tensor, getattr(onnx.TensorProto, dtype), None))

    def quantise(self, x, scale=0.05, zero_point=3, **names):
        """quantize + dequantize; `zero_point` counts from the middle of the type's range."""
        zero = self.type(zero_point + (128 if self.type is np.uint8 else 0))
        parameters = self.const(np.float32(scale)), self.const(zero)
        return self.node("DequantizeLinear", self.node("QuantizeLinear", x, *parameters, **names), *parameters)

    def weights(self, *shape, axis=0, per_channel=True):
        w = self.rng.integers(-127, 128, shape).astype(np.int8)
        scale = self.rng.uniform(0.002, 0.01, shape[axis] if per_channel else ()).astype(np.float32)
        parameters = [self.const(w), self.const(scale), self.const(np.zeros(scale.shape, np.int8))]
        return self.node("DequantizeLinear", *parameters, axis=axis), scale

    def bias(self, weight_scale, x_scale=0.05):
        scale = np.float32(x_scale) * weight_scale
        b = self.rng.integers(-2000, 2000, weight_scale.shape).astype(np.int32)
        parameters = self.const(b), self.const(scale), self.const(np.zeros(scale.shape, np.int32))
        return self.node("DequantizeLinear", *parameters, axis=0)

    def proto(self):
        constants = [onnx.numpy_helper.from_array(value, name) for name, value in self.constants.items()]
        graph = onnx.helper.make_graph(self.nodes, "test", self.inputs, self.outputs, constants)
        opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)]
        model = onnx.shape_inference.infer_shapes(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9))
        for value in model.graph.output:  # the shape must be there, even where nobody knows it
            value.type.tensor_type.shape.SetInParent()
        return model

    def save(self, name="model.onnx"):
        path = self.folder / name
        onnx.save(self.proto(), path)
        return path


@pytest.fixture
def qdq(tmp_path):
    """A maker of `QdqModel`s that are saved in the test's folder."""
    return lambda *args, **kwargs: QdqModel(tmp_path, *args, **kwargs)


@pytest.fixture
def onnxruntime_outputs():
    """Outputs of onnxruntime by the definition of QDQ: nothing is fused, floats between quantisations."""

    def run(path, inputs):
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return dict(zip((o.name for o in session.get_outputs()), session.run(None, inputs)))

    return run


@pytest.fixture
def instructions():
    """(mnemonic, fields) of what a schedule becomes, in order, without micro-op loads and FINISH."""

    def show(scheduled, cfg="vta"):
        launch = build(scheduled, cfg).finish()
        isa = Isa(launch.cfg)
        found = [(isa.mnemonic(fields), fields) for fields in isa.decode(launch.insn)]
        return [(name, fields) for name, fields in found if name not in ("LOAD.UOP", "FINISH")]

    return show
