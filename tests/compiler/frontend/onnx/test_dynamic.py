"""Dynamic quantisation, as onnxruntime's quantize_dynamic writes it: all values equal, products on the device.

Weights have 7 bits: without VNNI onnxruntime's sums of two products of uint8 and int8 saturate at 16 bits.
"""

from typing import Any

import numpy as np
import pytest
from onnxruntime import quantization

from tests.compiler.frontend.onnx.conftest import NETWORKS
from tilewright.compiler import graph as g
from tilewright.compiler.frontend.onnx import import_onnx
from tilewright.compiler.graph import reference
from tilewright.compiler.network import compile_for
from tilewright.hw.config import PRESETS
from tilewright.runtime.device import open_device
from tilewright.runtime.loader import Loaded
from tilewright.runtime.steps import HostStep

MICROSOFT = {"domain": "com.microsoft"}


def real(m, *shape, low=0.001, high=0.01):
    return m.const(m.rng.uniform(low, high, shape).astype(np.float32))


def dynamic(m, *shape, name="x"):
    """(values, scale, zero point) of an input."""
    return m.nodes_of("DynamicQuantizeLinear", [m.input(name, list(shape))], [f"{name}{k}" for k in range(3)], name)


def weights(m, *shape, dtype: Any = np.int8, zero=None, points=(), low=None, high=None):
    """Weights, and their zero points of shape `points` where they have some."""
    middle = 128 if dtype == np.uint8 else 0
    w = m.rng.integers(middle - 64, middle + 64, shape) if low is None else m.rng.integers(low, high, shape)
    zeros = [] if zero is None else [m.const((zero + m.rng.integers(-9, 9, points)).astype(dtype))]
    return [m.const(w.astype(dtype))], zeros


def scaled(m, sums, *factors):
    y = m.node("Cast", sums, to=1)
    for op, factor in zip(("Mul", "Add"), factors):
        y = m.node(op, y, factor)
    return y


def conv(*shape, out=6, kernel=(3, 3), groups=1, bias=True, relu=False, weight=None, channel=False, **attrs):
    def make(m):
        q, scale, zero = dynamic(m, *shape)
        w, points = weights(m, out, shape[1] // groups, *kernel, **(weight or {}))
        sums = m.node("ConvInteger", q, *w, zero, *points, group=groups, **attrs)
        per = [out, *[1] * len(kernel)]
        scale = m.node("Mul", scale, real(m, *(per if channel else ())))
        y = scaled(m, sums, scale, *([real(m, *per, low=-1, high=1)] if bias else []))
        return m.node("Relu", y) if relu else y

    return make


def matmul(x, columns, weight=None, channel=False, bias=True):
    def make(m):
        q, scale, zero = dynamic(m, *x)
        w, points = weights(m, x[-1], columns, **(weight or {}))
        scale = m.node("Mul", scale, real(m, *([columns] if channel else [])))
        sums = m.node("MatMulInteger", q, *w, zero, *points)
        return scaled(m, sums, scale, *([real(m, columns, low=-1, high=1)] if bias else []))

    return make


def of_two(m):
    (a, first, x), (b, second, y) = dynamic(m, 2, 5, 7, name="a"), dynamic(m, 7, 4, name="b")
    return scaled(m, m.node("MatMulInteger", a, b, x, y), m.node("Mul", first, second))


def in_one(op, dtype: Any = np.uint8, bias=True, columns=20):
    """onnxruntime's own operators."""

    def make(m):
        scale = real(m, columns)
        (w,), (zero,) = weights(m, 16, columns, dtype=dtype, zero=128 if dtype == np.uint8 else 0, points=(columns,))
        added = [real(m, columns, low=-1, high=1)] if bias else []
        if op == "DynamicQuantizeMatMul":
            return m.node(op, m.input("x", [3, 16]), w, scale, zero, *added, **MICROSOFT)
        q, s, z = dynamic(m, 3, 16)
        return m.node(op, q, w, s, scale, z, zero, *added, **MICROSOFT)

    return make


def parts_of(m):
    """Values, scale and zero point themselves, and the values made real again."""
    q, scale, zero = dynamic(m, 2, 9)
    moved = m.node("Transpose", q, perm=[1, 0])
    for t in (q, moved, zero):
        m.output(t, "UINT8")
    m.output(scale)
    return m.node("DequantizeLinear", q, scale, zero)


def known(op, dtype, zero, output="INT32"):
    """Integers of which the file says the zero point, or none."""

    def make(m):
        x = m.input("x", [1, 4, 6, 5], dtype.__name__.upper())
        points = [] if zero is None else [m.const(dtype(zero))]
        (w,), _ = weights(m, *((6, 4, 3, 3) if op == "ConvInteger" else (5, 6)))
        y = m.node(op, x, w, *points, **({"pads": [1, 1, 0, 2]} if op == "ConvInteger" else {}))
        if output == "FLOAT":
            return scaled(m, y, real(m), real(m, 6, 1, 1) if op == "ConvInteger" else real(m, 6))
        m.output(y, output)

    return make


def quantised_before(m):
    scale, zero = m.const(np.float32(0.02)), m.const(np.uint8(100))
    q = m.node("QuantizeLinear", m.input("x", [1, 4, 6, 5]), scale, zero)
    return scaled(m, m.node("ConvInteger", q, *weights(m, 6, 4, 3, 3)[0], zero, pads=[1] * 4), real(m))


U8 = {"dtype": np.uint8, "zero": 128}
ROWS = {
    "conv": conv(1, 4, 9, 8, pads=[1, 0, 2, 1], relu=True),
    "strides": conv(2, 20, 9, 8, out=18, kernel=(3, 2), strides=[2, 1], bias=False, relu=True),
    "dilations": conv(1, 4, 9, 8, dilations=[2, 1], pads=[2, 1, 2, 1], channel=True),
    "auto_pad": conv(1, 4, 9, 8, auto_pad="SAME_UPPER", strides=[2, 2]),
    "depthwise": conv(1, 20, 7, 6, out=20, groups=20, pads=[1] * 4, channel=True, relu=True),
    "multiplied": conv(1, 5, 7, 6, out=10, groups=5),
    "groups": conv(1, 8, 7, 6, out=12, groups=2, pads=[1] * 4),
    "row": conv(1, 4, 30, kernel=(5,), pads=[2, 2]),
    "uint8": conv(1, 4, 9, 8, weight=U8, pads=[1] * 4),
    "wide": conv(1, 4, 5, 8, weight={"dtype": np.uint8, "zero": 20}, pads=[1] * 4),
    "wider": conv(1, 4, 5, 8, weight={"dtype": np.uint8, "low": 190, "high": 256}, pads=[1] * 4),
    "wide depthwise": conv(1, 4, 5, 8, out=4, groups=4, weight={"dtype": np.uint8, "zero": 20}),
    "matmul": matmul((4, 40), 20),
    "sequence": matmul((1, 5, 40), 20, channel=True),
    "vector": matmul((40,), 20, bias=False),
    "many": matmul((2, 700), 20, weight={"zero": 3}),
    "columns": matmul((4, 40), 20, weight=U8 | {"points": (20,)}, channel=True),
    "wide columns": matmul((2, 3, 40), 20, weight={"dtype": np.uint8, "zero": 9, "points": (20,)}, channel=True),
    "of two": of_two,
    "quantised before": quantised_before,
    **{
        f"{op} {dtype.__name__} {zero} {output}": known(op, dtype, zero, output)
        for op, dtype, zero, output in (
            ("ConvInteger", np.uint8, 7, "INT32"),
            ("ConvInteger", np.uint8, None, "FLOAT"),
            ("MatMulInteger", np.uint8, 200, "FLOAT"),
            ("MatMulInteger", np.int8, -3, "INT32"),
            ("MatMulInteger", np.int8, None, "INT32"),
        )
    },
    "parts": parts_of,
    **{
        f"{op} {bias}": in_one(op, bias=bias)
        for op in ("DynamicQuantizeMatMul", "MatMulIntegerToFloat")
        for bias in (False, True)
    },
    "DynamicQuantizeMatMul int8": in_one("DynamicQuantizeMatMul", np.int8),
}
INPUTS = {"both": (-1, 2), "positive": (0.5, 3), "negative": (-4, -3), "zero": (0, 0), "tiny": (-1e-35, 3e-35)}


def drawn(m, t, low, high):
    if t.dtype == "float32":
        return m.rng.uniform(low, high, t.shape).astype(np.float32)
    info = np.iinfo(t.dtype)
    return m.rng.integers(info.min, info.max, t.shape, endpoint=True).astype(t.dtype)


def run(executable, cfg, inputs):
    with Loaded(executable, open_device("model", cfg)) as loaded:
        return loaded.run(inputs)


@pytest.mark.parametrize("name", ROWS)
def test_all_values_are_those_of_onnxruntime(qdq, onnxruntime_outputs, name):
    m, cfg = qdq(), PRESETS["pynq_z1"]
    if (y := ROWS[name](m)) is not None:
        m.output(y)
    path = m.save()
    graph = import_onnx(path)
    assert not [op for op in graph.ops if isinstance(op, (g.FloatConv2d, g.FloatMatMul))]
    compiled = compile_for(graph, cfg).executable
    for low, high in INPUTS.values():
        inputs = {t.name: drawn(m, t, low, high) for t in graph.inputs}
        expected, device = onnxruntime_outputs(path, inputs), run(compiled, cfg, inputs)
        mine, _ = reference.run(graph, inputs)
        for tensor, values in expected.items():
            np.testing.assert_array_equal(mine[tensor], values)
            np.testing.assert_array_equal(device[tensor], values)


@pytest.mark.parametrize("weight", ["QInt8", "QUInt8"])
@pytest.mark.parametrize("name", ["resnet", "mobilefacenet", "mobilenet_v3", "shufflenet"])
def test_networks_of_the_quantiser(tmp_path, onnxruntime_outputs, name, weight):
    """But for the order of the sums of float32 means nothing differs from onnxruntime; the layers are integers."""
    m, *outputs = NETWORKS[name](17)
    m.save(tmp_path / "float.onnx", *outputs)
    path, kind = tmp_path / "dynamic.onnx", quantization.QuantType[weight]
    quantization.quantize_dynamic(tmp_path / "float.onnx", path, weight_type=kind, per_channel=weight == "QInt8")
    graph = import_onnx(path)
    assert not [op for op in graph.ops if isinstance(op, (g.FloatConv2d, g.FloatMatMul))]
    inputs = {"x": m.rng.normal(0, 1, m.shape).astype(np.float32)}
    for tensor, values in onnxruntime_outputs(path, inputs).items():
        np.testing.assert_allclose(reference.run(graph, inputs)[0][tensor], values, rtol=0, atol=1e-6)


def lstm(m, way="forward", outputs=("y",), dtype: Any = np.int8, per=(), first=False, bias=True, steps=6, **attrs):
    """onnxruntime's DynamicQuantizeLSTM of 8 inputs and 4 hidden values."""
    ways = 2 if way == "bidirectional" else 1
    parameters, zeros = [real(m, ways, *per) for _ in range(2)], m.const(np.full((ways, *per), 0 if per else 7, dtype))
    w, r = (weights(m, ways, n, 16, dtype=dtype)[0][0] for n in (8, 4))
    b = real(m, ways, 32, low=-0.5, high=0.5) if bias else ""
    states = [m.input(f"first{k}", [ways, 1, 4]) if first else "" for k in range(2)]
    inputs = [m.input("x", [steps, 1, 8]), w, r, b, "", *states, "", parameters[0], zeros, parameters[1], zeros]
    attrs |= {"hidden_size": 4, "direction": way}
    return m.nodes_of("DynamicQuantizeLSTM", inputs, outputs, "it", **attrs, **MICROSOFT)


@pytest.mark.parametrize("per", [(), (16,)])
@pytest.mark.parametrize("way", ["forward", "reverse", "bidirectional"])
def test_recurrent_layers(qdq, onnxruntime_outputs, way, per):
    """onnxruntime's sigmoid and tanh are approximations: a hidden value may be quantised one step of 255 apart."""
    for facts in (
        {},
        {"dtype": np.int8 if per else np.uint8, "outputs": ("y", "h", "c"), "first": True},
        {"bias": False, "steps": 1, "activations": ["Sigmoid", "Tanh", "Tanh"] * (2 if way == "bidirectional" else 1)},
    ):
        m = qdq()
        for y in lstm(m, way, per=per, **facts):
            m.output(m.node("Neg", y))
        path, inputs = (
            m.save(),
            {t.name: m.rng.normal(0, 1, [d.dim_value for d in t.type.tensor_type.shape.dim]) for t in m.inputs},
        )
        inputs = {name: values.astype(np.float32) for name, values in inputs.items()}
        mine = reference.run(import_onnx(path), inputs)[0]
        apart = [np.abs(mine[t] - values).reshape(-1) for t, values in onnxruntime_outputs(path, inputs).items()]
        assert np.median(np.concatenate(apart)) < 1e-6 and np.concatenate(apart).max() < 0.005


def test_recurrent_layers_of_other_functions_are_refused(qdq, refusal):
    m = qdq()
    m.output(*lstm(m, activations=["Relu", "Tanh", "Tanh"]))
    assert "DynamicQuantizeLSTM 'it' has inputs or attributes that are not supported" in refusal(m.save())


def host_steps(path):
    steps = compile_for(import_onnx(path), PRESETS["pynq_z1"]).executable.steps
    return [step.op for step in steps if isinstance(step, HostStep)]


def test_what_follows_the_sums_is_one_step_of_the_host(qdq):
    """Beside the product of two scales; what is an output, too, stays a step of its own."""
    m = qdq()
    m.output(ROWS["conv"](m))
    steps = host_steps(m.save())
    assert steps.count("float_binary") == 1 and "scale_sums" in steps
    assert not {"cast", "float_function", "conv2d_accumulators", "subtract_zero_point"} & {*steps}
    m.output(m.nodes[-3].output[0])
    steps = host_steps(m.save())
    assert steps.count("float_binary") == 2 and "scale_sums" in steps and "float_function" in steps


def computed_weights(m, q, zero):
    return m.node("ConvInteger", q, dynamic(m, 3, 4, 1, 1, name="w")[0], zero)


def several_points(m, q, zero):
    return m.node("ConvInteger", q, *weights(m, 3, 4, 1, 1)[0], m.const(np.array([1, 2], np.uint8)))


@pytest.mark.parametrize(
    "make, text",
    [
        (computed_weights, "ConvInteger 'it' has weights or zero points of weights that are not constant"),
        (
            several_points,
            "ConvInteger 'it' has a zero point that neither DynamicQuantizeLinear gives nor is one constant",
        ),
    ],
)
def test_integers_that_are_not_read(qdq, refusal, make, text):
    m = qdq()
    q, _, zero = dynamic(m, 1, 4, 5, 5)
    m.output(m.node("Cast", make(m, q, zero), to=1))
    m.nodes[-2].name = "it"
    assert text in refusal(m.save())
