"""Programs of torch.export with quantized_decomposed operators: `make test-torch`, in an environment of its own.

A graph becomes a torch module of those operators, is exported and read again, and must give the same integers.
"""

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
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


def layers(forward, *modules):
    """A module that computes `forward(modules, x)`."""

    class Layers(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = torch.nn.ModuleList(modules)

        def forward(self, x):
            return forward(self.parts, x)

    return Layers()


def attention(parts, x):
    """Two heads of four features."""
    q, k, v = (part(x).view(1, 6, 2, 4).transpose(1, 2) for part in parts[:3])
    weights = torch.softmax(q @ k.transpose(-2, -1) / 2, -1)
    return parts[3]((weights @ v).transpose(1, 2).reshape(1, 6, 8))


nn = torch.nn
IMAGE = (1, 3, 12, 12)
FLOATS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "dense": (lambda: nn.Sequential(nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 4), nn.Sigmoid()), (1, 16)),
    "normalised": (
        lambda: nn.Sequential(
            *(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU6()),
            *(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.BatchNorm2d(8), nn.Hardswish(), nn.Conv2d(8, 4, 1)),
        ),
        IMAGE,
    ),
    "average pool": (lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(8, 8, 3)), IMAGE),
    "flattened": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.Flatten(), nn.Linear(100, 5)),
        IMAGE,
    ),
    "global mean": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)),
        IMAGE,
    ),
    "residual": (
        lambda: layers(lambda p, x: F.relu(p[1](F.relu(p[0](x))) + x), *(nn.Conv2d(3, 3, 3, padding=1) for _ in "ab")),
        IMAGE,
    ),
    "joined": (
        lambda: layers(
            lambda p, x: p[3](torch.cat([F.relu(p[0](x)), p[2](F.relu(p[1](x)))], 1)),
            *(nn.Conv2d(3, 4, 1), nn.Conv2d(3, 4, 3, 2, 1), nn.ConvTranspose2d(4, 4, 2, 2), nn.Conv2d(8, 4, 1)),
        ),
        IMAGE,
    ),
    "enlarged": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Upsample(scale_factor=2), nn.Conv2d(8, 3, 1)),
        IMAGE,
    ),
    "attention": (lambda: layers(attention, *(nn.Linear(8, 8) for _ in range(4))), (1, 6, 8)),
    "layer norm": (lambda: nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 8), nn.LayerNorm(8)), (1, 4, 16)),
    "moved": (
        lambda: layers(
            lambda p, x: p[1](
                torch.cat(F.pad(p[0](x), (1, 1, 1, 1)).chunk(2, 1)[::-1], 1)[:, :, ::2].permute(0, 2, 3, 1)
            ),
            *(nn.Conv2d(3, 8, 3), nn.Linear(8, 4)),
        ),
        IMAGE,
    ),
    "gated": (
        lambda: layers(lambda p, x: p[1](F.glu(p[0](x), 1)).mean((2, 3)), nn.Conv2d(3, 8, 3), nn.Conv2d(4, 4, 1)),
        IMAGE,
    ),
}


TIES = ("global mean",)


def xnnpack(**options):
    module = importlib.import_module("torchao.testing.pt2e._xnnpack_quantizer")
    config = module.get_symmetric_quantization_config(is_per_channel=True, **options)
    return module.XNNPACKQuantizer().set_global(config)


def x86_inductor(**options):
    module = importlib.import_module("torchao.quantization.pt2e.quantizer.x86_inductor_quantizer")
    return module.X86InductorQuantizer().set_global(module.get_default_x86_inductor_quantization_config(**options))


def converted(module, shape, quantiser, generator):
    """The module quantised by PT2E: ranges are those of eight random inputs."""
    pt2e = importlib.import_module("torchao.quantization.pt2e.quantize_pt2e")
    example = (torch.randn(shape, generator=generator),)
    prepared = pt2e.prepare_pt2e(torch.export.export(module.eval(), example).module(), quantiser)
    for _ in range(8):
        prepared(torch.randn(shape, generator=generator))
    return pt2e.convert_pt2e(prepared)


@pytest.mark.filterwarnings("ignore")  # torchao's own, when it is imported and while it converts
@pytest.mark.parametrize("quantiser", [xnnpack, x86_inductor])
@pytest.mark.parametrize("name", FLOATS)
def test_networks_of_both_quantisers(tmp_path, name, quantiser):
    """They compute what PyTorch computes, but for means of all pixels whose sum is half way between two steps: there
    the order of PyTorch's additions in float32 decides."""
    make, shape = FLOATS[name]
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    module = converted(make(), shape, quantiser(), generator)
    torch.export.save(torch.export.export(module, (torch.zeros(shape),)), tmp_path / "network.pt2")
    graph = import_model(tmp_path / "network.pt2")
    differences = []
    for _ in range(6):
        x = torch.randn(shape, generator=generator)
        (mine,) = reference.run(graph, {graph.inputs[0].name: x.numpy()})[0].values()
        with torch.no_grad():
            expected = module(x).numpy()
        assert mine.shape == expected.shape
        differences.append(np.abs(mine - expected) / np.abs(expected).max())
    assert graph.layers or quantiser is x86_inductor
    assert np.max(differences) < (0.03 if name in TIES else 1e-5)


def test_what_stays_in_float():
    """torch.sin has no quantiser: the host computes it."""

    class Float(torch.nn.Module):
        def forward(self, x):
            return torch.sin(requantised(x, 0.1, 0))

    graph = import_torch(torch.export.export(Float(), (torch.zeros(1, 4),)), "block")
    assert [type(op) for op in graph.ops] == [g.Quantize, g.Dequantize, g.FloatFunction]
    x = np.linspace(-2, 2, 4, dtype=np.float32)[None]
    (mine,) = reference.run(graph, {graph.inputs[0].name: x})[0].values()
    assert np.abs(mine - np.sin(np.rint(x * 10) / 10)).max() < 1e-6


@pytest.mark.parametrize("dtype, low, high", [(torch.int8, -127, 127), (torch.uint8, 0, 127)])
def test_reduced_ranges(dtype, low, high):
    def clamped(x):
        parameters = 0.1, 60, low, high, dtype
        return Q.dequantize_per_tensor(Q.quantize_per_tensor(x, *parameters), *parameters)

    graph, x = import_torch(exported(clamped, torch.zeros(1, 41))), torch.linspace(-40, 40, 41)[None]
    (mine,) = reference.run(graph, {graph.inputs[0].name: x.numpy()})[0].values()
    assert np.array_equal(mine, clamped(x).numpy())


def exported(forward, x):
    return torch.export.export(layers(lambda _, x: forward(x)), (x,))


@pytest.mark.parametrize(
    "forward, text",
    [
        (
            lambda x: Q.quantize_per_tensor(x, 0.1, 0, -(2**15), 2**15 - 1, torch.int16).float(),
            "'quantize_per_tensor' is of type int16; only int8 and uint8 are supported for activations",
        ),
        (
            lambda x: x * Q.choose_qparams.tensor(x, -128, 127, 1e-6, torch.int8)[0],
            "computes a scale in each run; prepare the network with is_dynamic=False",
        ),
        (torch.special.bessel_j0, "torch cannot export the program to ONNX: ONNX has no prims.bessel_j0"),
        (lambda x: x.double().sin(), "1 unsupported operator: Cast '.*' has an output of type float64; only float32"),
    ],
)
def test_what_has_no_counterpart(forward, text):
    with pytest.raises(UnsupportedError, match=f"^block: .*{text}"):
        import_torch(exported(forward, torch.zeros(1, 4)), "block")


def test_files_that_are_no_programs(tmp_path):
    (tmp_path / "bad.pt2").write_bytes(b"\xff" * 30)
    with pytest.raises(FileError, match=r"bad\.pt2: not an exported program, or damaged"):
        import_model(tmp_path / "bad.pt2")
    with pytest.raises(FileError, match=r"absent\.pt2: no such file"):
        import_model(tmp_path / "absent.pt2")


def test_a_program_is_compiled_as_it_is():
    program = exported(lambda x: requantised(F.relu(requantised(x, 0.1, 3)), 0.05, -128), torch.zeros(1, 4))
    x = np.array([[-1, 0.24, 0.26, 3]], np.float32)
    (y,) = tw.compile(program, "tiny")({"x": x}).values()
    assert np.array_equal(y, program.module()(torch.from_numpy(x)).numpy())
    with pytest.raises(
        UnsupportedError, match=r"a module \(Linear\) is no exported program; .*tw.quantise\(module, data\)"
    ):
        tw.compile(nn.Linear(2, 2), "tiny")


def test_open_sizes():
    shapes = {"x": {0: torch.export.Dim("n", min=2, max=8)}}

    class Ends(torch.nn.Module):
        def forward(self, x):
            return requantised(x, 0.1, 0)

    program = torch.export.export(Ends(), (torch.zeros(2, 4),), dynamic_shapes=shapes)
    with pytest.raises(UnsupportedError, match=r"the program has open sizes \(.*\); export it without dynamic_shapes"):
        import_torch(program)
