"""Programs of torch.export with quantized_decomposed operators: `make test-torch`, in an environment of its own.

A graph becomes a torch module of those operators, is exported and read again, and must give the same integers.
"""

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.frontend import import_model, import_onnx
from tilewright.compiler.graph import reference
from tilewright.hw.errors import FileError, UnsupportedError

torch: Any = pytest.importorskip("torch")
importlib.import_module("torch.ao.quantization.fx._decomposed")  # registers the operators
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # torch's own, within its exporter and TVM's importer
F, Q = torch.nn.functional, torch.ops.quantized_decomposed
DIGITS = Path(__file__).parents[3] / "examples" / "digits"


def import_torch(*args):
    from tilewright.compiler.frontend.torch import import_torch

    return import_torch(*args)


def requantised(x, scale, zero_point):
    parameters = scale, zero_point, -128, 127, torch.int8
    return Q.dequantize_per_tensor(Q.quantize_per_tensor(x, *parameters), *parameters)


class Network(torch.nn.Module):
    """A graph of convolutions, dense layers, pooling and reshapes in torch's operators; float32 ends."""

    def __init__(self, graph):
        super().__init__()
        self.graph = graph
        for k, op in enumerate(graph.layers):
            scale = torch.from_numpy(op.weight_scale.copy())
            self.register_buffer(f"weight{k}", torch.from_numpy(op.weight.copy()))
            self.register_buffer(f"scale{k}", scale)
            self.register_buffer(f"zero{k}", torch.zeros(len(scale), dtype=torch.int64))
            self.register_buffer(f"bias{k}", torch.from_numpy(op.bias.copy()))
            self.register_buffer(f"bias_scale{k}", scale * np.float32(op.x.scale))

    def forward(self, x):
        layer = 0
        for op in self.graph.ops:
            if isinstance(op, g.Linear):
                names = ("weight", "scale", "zero", "bias", "bias_scale")
                weight, scale, zero, bias, bias_scale = (getattr(self, f"{name}{layer}") for name in names)
                weight = Q.dequantize_per_channel(weight, scale, zero, 0, -127, 127, torch.int8)
                bias = Q.dequantize_per_channel(bias, bias_scale, zero, 0, -(2**31), 2**31 - 1, torch.int32)
                layer += 1
                if isinstance(op, g.QConv2d):
                    x = F.conv2d(x, weight, bias, op.strides, op.pads[:2], op.dilations, op.groups)
                else:
                    x = F.linear(x, weight, bias)
                x = F.relu(x) if op.low > -128 else x
            elif isinstance(op, g.MaxPool):
                x = F.max_pool2d(x, op.kernel, op.strides)
            elif isinstance(op, g.Reshape):
                x = x.flatten(1)
            if op.output.dtype == "int8":
                x = requantised(x, op.output.scale, op.output.zero_point)
        return x


def test_the_digits_are_exact(tmp_path):
    """The integers of the network read by way of torch are those of its ONNX file, on every held-out image."""
    graph = import_onnx(DIGITS / "digits.onnx")
    program = torch.export.export(Network(graph), (torch.zeros(1, 1, 8, 8),))
    torch.export.save(program, tmp_path / "digits.pt2")
    again = import_model(tmp_path / "digits.pt2")
    assert [type(op) for op in again.ops] == [type(op) for op in graph.ops]
    for mine, theirs in zip(again.layers, graph.layers, strict=True):
        assert np.array_equal(mine.weight, theirs.weight) and np.array_equal(mine.bias, theirs.bias)
    with np.load(DIGITS / "inputs.npz") as data:
        images = data["inputs"][:, 0]
    results = [reference.run(net, {net.inputs[0].name: images})[0] for net in (again, graph)]
    logits, expected = (next(iter(outputs.values())) for outputs in results)
    assert np.array_equal(logits, expected)


class Block(torch.nn.Module):
    """Depthwise and pointwise convolutions with clamps, a residual sum, a mean, a dense layer and softmax."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        for name, shape in {"deep": (4, 1, 3, 3), "point": (4, 4, 1, 1), "dense": (5, 8)}.items():
            weight = torch.randint(-127, 128, shape, dtype=torch.int8, generator=generator)
            self.register_buffer(name, weight)
            self.register_parameter(f"{name}_bias", torch.nn.Parameter(torch.randn(shape[0], generator=generator)))

    def weight(self, name):
        return Q.dequantize_per_tensor(getattr(self, name), 0.01, 0, -127, 127, torch.int8)

    def forward(self, x):
        x = requantised(x, 0.05, 3)
        deep, point = self.weight("deep"), self.weight("point")
        y = requantised(F.relu6(F.conv2d(x, deep, self.deep_bias, padding=1, groups=4)), 0.05, -128)
        y = requantised(F.conv2d(y, point, self.point_bias), 0.11, 7)
        y = requantised(F.relu(y + x), 0.1, -128)
        y = requantised(F.adaptive_avg_pool2d(y, 1), 0.05, -128)
        y = requantised(torch.cat([y, y], 1), 0.05, -128).flatten(1)
        y = requantised(F.linear(y, self.weight("dense"), self.dense_bias), 0.05, 0)
        return requantised(F.softmax(y, -1), 1 / 256, -128)


def test_a_block():
    module, rng = Block(), np.random.default_rng(0)
    graph = import_torch(torch.export.export(module, (torch.zeros(1, 4, 6, 6),)), "block")
    kinds = [g.Quantize, g.QConv2d, g.QConv2d, g.Add, g.AveragePool, g.Concat, g.Reshape, g.QDense, g.Softmax]
    assert [type(op) for op in graph.ops] == [*kinds, g.Dequantize]
    first = graph.layers[0]
    assert isinstance(first, g.QConv2d) and first.depthwise and (first.low, first.high) == (-128, -8)
    for _ in range(5):
        x = rng.normal(0, 2, (1, 4, 6, 6)).astype(np.float32)
        (mine,) = reference.run(graph, {graph.inputs[0].name: x})[0].values()
        with torch.no_grad():
            expected = module(torch.from_numpy(x)).numpy()
        assert np.abs(mine - expected).max() <= 3.01 / 256


def test_what_has_no_counterpart(tmp_path):
    class Float(torch.nn.Module):
        def forward(self, x):
            return torch.sin(requantised(x, 0.1, 0))

    with pytest.raises(UnsupportedError, match="block: relax.sin of '.*' is not supported"):
        import_torch(torch.export.export(Float(), (torch.zeros(1, 4),)), "block")

    class Narrow(torch.nn.Module):
        def forward(self, x):
            parameters = 0.1, 0, -127, 127, torch.int8
            return Q.dequantize_per_tensor(Q.quantize_per_tensor(x, *parameters), *parameters)

    with pytest.raises(UnsupportedError, match=r"clamps to \[-127, 127\]; only \[-128, 127\] is supported"):
        import_torch(torch.export.export(Narrow(), (torch.zeros(1, 4),)))
    (tmp_path / "bad.pt2").write_bytes(b"\xff" * 30)
    with pytest.raises(FileError, match=r"bad\.pt2: not an exported program, or damaged"):
        import_model(tmp_path / "bad.pt2")
    with pytest.raises(FileError, match=r"absent\.pt2: no such file"):
        import_model(tmp_path / "absent.pt2")


def test_open_sizes():
    shapes = {"x": {0: torch.export.Dim("n", min=2, max=8)}}

    class Ends(torch.nn.Module):
        def forward(self, x):
            return requantised(x, 0.1, 0)

    program = torch.export.export(Ends(), (torch.zeros(2, 4),), dynamic_shapes=shapes)
    with pytest.raises(UnsupportedError, match=r"the program has open sizes \(.*\); export it without dynamic_shapes"):
        import_torch(program)
