"""Small files in Deeploy's dialect, run by the interpreter in both contracts and on the device `model`."""

from typing import Any

import numpy as np
import onnx

from tilewright.compiler.frontend.onnx import import_onnx
from tilewright.compiler.graph import reference
from tilewright.compiler.network import compile_graph
from tilewright.hw.config import load_config
from tilewright.hw.rounding import CONTRACTS
from tilewright.runtime.loader import run


class Dialect:
    """A file in the making: methods append nodes and return the name of the resulting tensor."""

    def __init__(self, folder, seed=3):
        self.folder, self.rng = folder, np.random.default_rng(seed)
        self.nodes, self.constants, self.inputs, self.outputs = [], [], [], []
        self.given, self.wanted = [], []  # integers of the inputs and of the outputs

    def input(self, *shape, name=None):
        name = name or f"x{len(self.inputs)}"
        self.inputs.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape))
        return name

    def const(self, array, dtype=np.float32):
        self.constants.append(onnx.numpy_helper.from_array(np.asarray(array).astype(dtype), f"c{len(self.constants)}"))
        return self.constants[-1].name

    def node(self, op, *inputs, count=1, **attrs):
        name = f"{op}_{len(self.nodes)}"
        results = [f"{name}_{k}" for k in range(count)]
        self.nodes.append(onnx.helper.make_node(op, list(inputs), results, name=name, **attrs))
        return results if count > 1 else results[0]

    def shift(self, x, mul=7349, add=0, div=1 << 16, levels=256, signed=1):
        """A RequantShift as Deeploy's files have it: attributes are tensors of float32."""
        attrs = {"div": div, "n_levels_out": [levels], "signed": [signed]}
        tensors: dict[str, Any] = {
            key: onnx.numpy_helper.from_array(np.array(value, np.float32)) for key, value in attrs.items()
        }
        return self.node("RequantShift", x, self.const(mul), self.const(add), **tensors)

    @staticmethod
    def shifted(x, mul, add=0, bits=16, low=-128, high=127):
        """What a RequantShift makes of integers."""
        return np.clip((np.asarray(x, np.int64) * mul + add + ((1 << bits) >> 1)) >> bits, low, high)

    def output(self, *names):
        self.outputs += [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in names]

    def proto(self):
        graph = onnx.helper.make_graph(self.nodes, "small", self.inputs, self.outputs, self.constants)
        return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 10)], ir_version=5)

    def save(self):
        onnx.save(self.proto(), self.folder / "small.onnx")
        return self.folder / "small.onnx"

    def graph(self):
        return import_onnx(self.save())

    def run(self, *arrays):
        """(graph, its outputs as int64), which device and interpreter agree on, for integers by input."""
        graph = self.graph()
        inputs = {t.name: np.asarray(x).astype(t.dtype) for t, x in zip(graph.inputs, arrays, strict=True)}
        found = [reference.run(graph, inputs, contract)[0] for contract in CONTRACTS]
        found.append(run(compile_graph(graph, load_config("pynq_z1")), inputs)[0])
        for t in graph.outputs:
            assert all(np.array_equal(one[t.name], found[0][t.name]) for one in found)
        return graph, [found[0][t.name].astype(np.int64) for t in graph.outputs]

    def int8(self, *shape):
        return self.rng.integers(-128, 128, shape)

    def x(self, *shape, array=None):
        """(name, values) of an input, random unless they are given."""
        self.given.append(self.int8(*shape) if array is None else array)
        return self.input(*self.given[-1].shape), self.given[-1]

    def expect(self, tensor, array, mul=None, add=0, bits=16, levels=256, signed=1):
        """Make `tensor` an output of these integers, with `mul` after a RequantShift. Returns its name."""
        if mul is not None:
            low = -levels // 2 * signed
            tensor = self.shift(tensor, mul, add, 1 << bits, levels, signed)
            array = self.shifted(array, mul, add, bits, low, low + levels - 1)
        self.output(tensor)
        self.wanted.append(array)
        return tensor

    def check(self, *kinds):
        """Runs the network on its inputs: every output is as expected; the operators are of `kinds`, where given."""
        graph, outputs = self.run(*self.given)
        for array, wanted in zip(outputs, self.wanted, strict=True):
            np.testing.assert_array_equal(array, wanted)
        assert not kinds or [type(op) for op in graph.ops] == list(kinds)
        return graph
