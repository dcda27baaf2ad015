"""Integers that ONNX allows beside int8 of one scale, against onnxruntime: operators on int8 and uint8 values without a
scale, clamps of them, types of four bits and fewer, zero points and scales per channel, channels as the last dimension.
"""

import ml_dtypes
import numpy as np
import onnx
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.frontend.onnx import import_onnx
from tilewright.compiler.graph import reference

SHAPE = [1, 4, 6, 6]
BYTES = pytest.mark.parametrize("dtype", [np.int8, np.uint8])


def real(m, value):
    return m.const(np.array(value, np.float32))


def ints(m, *values):
    return m.const(np.array(values, np.int64))


def zero(dtype, value=0):
    """`value` from the middle of the type's range."""
    return dtype(value + (128 if dtype is np.uint8 else 0))


def parameters(m, dtype, scale=0.02, value=5):
    return real(m, scale), m.const(zero(dtype, value))


def choice(m, x, dtype):
    return m.node("Where", m.const(m.rng.integers(0, 2, (6, 6)).astype(bool)), x, m.const(dtype(7)))


ON_BYTES = {
    "Clip": lambda m, x, t: m.node("Clip", x, m.const(t(30)), m.const(t(90))),
    "Clip twice": lambda m, x, t: m.node("Clip", m.node("Clip", x, "", m.const(t(90))), m.const(t(30))),
    "Clip crossed": lambda m, x, t: m.node("Concat", x, m.node("Clip", x, m.const(t(90)), m.const(t(30))), axis=1),
    "Concat": lambda m, x, t: m.node("Concat", m.const(np.full((1, 2, 6, 6), 9, t)), x, x, axis=1),
    "Expand": lambda m, x, t: m.node("Expand", x, ints(m, 2, 4, 6, 6)),
    "Flatten": lambda m, x, t: m.node("Flatten", m.node("Identity", x)),
    "Gather": lambda m, x, t: m.node("Gather", x, ints(m, 1, -1, 0), axis=1),
    "Max": lambda m, x, t: m.node("Max", x, m.const(t(3))),
    "MaxPool": lambda m, x, t: m.node("MaxPool", x, kernel_shape=[2, 3], pads=[1, 0, 0, 1]),
    "Pad": lambda m, x, t: m.node("Pad", x, ints(m, 0, 0, 1, 1, 0, 0, 1, 2), m.const(t(9))),
    "Pad with 0": lambda m, x, t: m.node("Pad", x, ints(m, 0, 0, 1, 1, 0, 0, 1, 2)),
    "ReduceMax": lambda m, x, t: m.node("ReduceMax", x, axes=[1]),
    "Resize": lambda m, x, t: m.node("Resize", x, "", real(m, [1, 1, 2, 2]), mode="nearest"),
    "Slice and turn": lambda m, x, t: m.node(
        "Transpose", m.node("Slice", x, ints(m, 1), ints(m, 3), ints(m, 1)), perm=[0, 2, 3, 1]
    ),
    "Where": choice,
}


@BYTES
@pytest.mark.parametrize("name", ON_BYTES)
def test_operators_on_bytes(m, compared, name, dtype):
    """Of an input, and of quantised values, before anything dequantises them."""
    kind = "INT8" if dtype is np.int8 else "UINT8"
    sources = m.input("x", SHAPE, kind), m.node("QuantizeLinear", m.input("y", SHAPE), *parameters(m, dtype))
    for x in sources:
        m.output(m.node("Sigmoid", m.node("DequantizeLinear", ON_BYTES[name](m, x, dtype), *parameters(m, dtype))))
    m.output(m.node("Transpose", sources[0]), kind)
    compared(m, 1e-6)


@BYTES
@pytest.mark.parametrize("result", ["FLOAT", "INT32", "INT8", "UINT8"])
def test_casts_are_of_the_integers(m, compared, dtype, result):
    number = {"FLOAT": 1, "UINT8": 2, "INT8": 3, "INT32": 6}[result]
    for x in (
        m.input("x", SHAPE, "INT8" if dtype is np.int8 else "UINT8"),
        m.node("QuantizeLinear", m.input("y", SHAPE), *parameters(m, dtype)),
        m.node("Clip", m.input("z", SHAPE), real(m, 0), real(m, 99)),
    ):
        y = m.node("Cast", x, to=number)
        m.output(y, result)
        if result.endswith("INT8"):
            m.output(m.node("DequantizeLinear", y, *parameters(m, np.uint8 if result == "UINT8" else np.int8)))
    compared(m, 0)


@BYTES
def test_comparisons_of_bytes(m, compared, dtype):
    x = m.input("x", SHAPE, "INT8" if dtype is np.int8 else "UINT8")
    m.output(m.node("Greater", x, m.const(dtype(90))), "BOOL")
    m.output(m.node("ArgMax", x, axis=1), "INT64")
    compared(m, 0)


def test_clamped_integers_are_clamps_of_layers(m, compared):
    """A network as Brevitas writes it: QuantizeLinear, Clip, DequantizeLinear, with 4 bits."""

    def quantised(x, dtype, low, high, scale):
        p = real(m, scale), m.const(dtype(0))
        y = m.node("Clip", m.node("QuantizeLinear", x, *p), m.const(dtype(low)), m.const(dtype(high)))
        return m.node("DequantizeLinear", y, *p)

    def weights(*shape):
        w = m.node(
            "Clip", m.const(m.rng.integers(-9, 10, shape).astype(np.int8)), *(m.const(np.int8(k)) for k in (-7, 7))
        )
        p = m.const(m.rng.uniform(0.01, 0.02, shape[0]).astype(np.float32)), m.const(np.zeros(shape[0], np.int8))
        return m.node("DequantizeLinear", w, *p, axis=0)

    x = quantised(m.input("x", [1, 3, 8, 8]), np.int8, -127, 127, 0.0131)
    x = quantised(m.node("Relu", m.node("Conv", x, weights(6, 3, 3, 3))), np.uint8, 0, 15, 0.0317)
    x = m.node("Flatten", m.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]))
    m.output(quantised(m.node("Gemm", x, weights(10, 54), transB=1), np.int8, -127, 120, 0.0571))
    graph = compared(m, 1.001, 0.02, 0.0571)
    assert [(op.low, op.high) for op in graph.layers] == [(-128, -113), (-127, 120)]
    assert not any(isinstance(op, g.NearestRequantize) for op in graph.ops[2:])


NARROW = {"int4": (-8, 8, 0), "uint4": (0, 16, 8), "int2": (-2, 2, 0), "uint2": (0, 4, 2)}


def narrow_weights(m, name, shape, axis=0, **attrs):
    low, high, middle = NARROW[name]
    dtype, scales = getattr(ml_dtypes, name), shape[axis]
    if "block_size" in attrs:
        scales = [n // attrs["block_size"] if k == axis else n for k, n in enumerate(shape)]
    p = m.const(m.rng.uniform(0.02, 0.2, scales).astype(np.float32)), m.const(np.full(scales, middle, dtype))
    return m.node("DequantizeLinear", m.const(m.rng.integers(low, high, shape).astype(dtype)), *p, axis=axis, **attrs)


def image(m, *shape, scale=0.05):
    return m.quantise(m.input("x", list(shape)), scale)


LAYERS = {
    "Conv": lambda m, w: m.node("Conv", image(m, 1, 6, 8, 8), w((5, 6, 3, 3), 0), pads=[1, 0, 2, 1], strides=[2, 1]),
    "depthwise": lambda m, w: m.node("Conv", image(m, 1, 6, 8, 8), w((6, 1, 3, 3), 0), group=6, dilations=[2, 1]),
    "groups": lambda m, w: m.node("Conv", image(m, 1, 6, 9), w((4, 3, 3), 0), group=2),
    "ConvTranspose": lambda m, w: m.node("ConvTranspose", image(m, 1, 6, 5, 5), w((6, 3, 3, 3), 1), strides=[2, 2]),
    "Gemm": lambda m, w: m.node("Gemm", image(m, 3, 20), w((7, 20), 0), transB=1),
    "MatMul": lambda m, w: m.node("MatMul", image(m, 2, 3, 20), w((20, 7), -1)),
}


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("layer", LAYERS)
def test_weights_of_few_bits_are_int8(m, compared, layer, dtype):
    m.output(m.quantise(LAYERS[layer](m, lambda shape, axis: narrow_weights(m, dtype, shape, axis)), 0.3, 2))
    assert compared(m, 1.001, 0.02, 0.3, opset=21 if "4" in dtype else 25).layers


@pytest.mark.parametrize("opset", [13, 21])
def test_weights_of_few_bits_may_be_quantised_in_the_file(m, compared, opset):
    """As onnxruntime's quantiser writes them with `AddQDQPairToWeight`; it has int4 in every opset."""
    p = real(m, 0.03), m.const(np.array(0, ml_dtypes.int4))
    own = {"domain": "com.microsoft"} if opset < 21 else {}
    w = m.node("QuantizeLinear", m.const(m.rng.normal(0, 0.1, (20, 7)).astype(np.float32)), *p, **own)
    m.output(m.quantise(m.node("MatMul", image(m, 2, 20), m.node("DequantizeLinear", w, *p, **own)), 0.031))
    (layer,) = compared(m, 1.001, 0.02, 0.031, opset=opset).layers
    assert (layer.weight.min(), layer.weight.max()) == (-8, 7)


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("last", [True, False])
def test_scales_of_weights_may_be_negative(m, compared, biased, last):
    """onnxruntime takes them; an activation's must be positive."""
    w, scale = (
        m.rng.integers(-128, 128, (5, 9)).astype(np.int8),
        np.array([0.01, -0.02, 0.013, -0.001, 0.02], np.float32),
    )
    parts = m.const(w), m.const(scale), m.const(np.zeros(5, np.int8))
    inputs = [image(m, 3, 9), m.node("DequantizeLinear", *parts, axis=0)]
    if biased:
        b = m.const(m.rng.integers(-900, 900, 5).astype(np.int32)), m.const(np.float32(0.05) * scale)
        inputs.append(m.node("DequantizeLinear", *b, axis=0))
    y = m.node("Gemm", *inputs, transB=1)
    m.output(y if last else m.quantise(y, 0.037))
    assert len(compared(m, 1e-5 if last else 1.001, 1.0 if last else 0.02, 1.0 if last else 0.037).layers) == (not last)


def test_a_constant_of_negative_scale_is_multiplied(m, compared):
    w = m.const(m.rng.integers(-128, 128, (1, 4, 6)).astype(np.int8)), real(m, -0.01), m.const(np.int8(0))
    m.output(m.quantise(m.node("Mul", image(m, 2, 4, 6), m.node("DequantizeLinear", *w)), 0.023))
    compared(m, 1.001, 0.01, 0.023)


@pytest.mark.parametrize("dtype", NARROW)
def test_real_biases_beside_weights_of_few_bits(m, compared, dtype):
    """Their sums have coarse steps, in which such a bias would be up to half an output step off."""
    w, bias = narrow_weights(m, dtype, (16, 1, 1, 1), 0), m.const(m.rng.normal(0, 1, 16).astype(np.float32))
    m.output(m.quantise(m.node("Conv", image(m, 1, 1, 24, 24), w, bias), 0.01, 2))
    assert compared(m, 1.001, 0.005, 0.01, opset=21 if "4" in dtype else 25).layers


@pytest.mark.parametrize("dtype", ["int4", "uint4"])
def test_weights_with_a_scale_per_block_are_float32(m, compared, dtype):
    w = narrow_weights(m, dtype, (32, 7), 0, block_size=8)
    m.output(m.quantise(m.node("MatMul", image(m, 3, 32), w), 0.3))
    assert not compared(m, 0.001, 1.0, 0.3, opset=21).layers


@pytest.mark.parametrize("dtype", NARROW)
def test_values_of_few_bits(m, compared, dtype):
    middle, kind = NARROW[dtype][-1], getattr(ml_dtypes, dtype)
    for p in ([real(m, 0.4), m.const(np.array(middle, kind))], [m.const(np.array([0.4], np.float32))]):
        number = {"int4": 22, "uint4": 21, "int2": 26, "uint2": 25}[dtype]
        attrs = {} if len(p) > 1 else {"output_dtype": number}
        q = m.node("QuantizeLinear", m.input(f"x{len(p)}", SHAPE), *p, **attrs)
        m.output(m.node("DequantizeLinear", q, *p))
    floats = m.const(m.rng.normal(0, 1, SHAPE).astype(np.float32))
    m.output(
        m.node(
            "Add",
            m.quantise(m.input("y", SHAPE)),
            m.node("DequantizeLinear", m.node("QuantizeLinear", floats, *p, **attrs), *p),
        )
    )
    compared(m, 1e-6, opset=21 if "4" in dtype else 25)


@BYTES
@pytest.mark.parametrize("layer", LAYERS)
def test_zero_points_of_weights_per_channel(m, compared, layer, dtype):
    def weights(shape, axis):
        low, count = np.iinfo(dtype).min, shape[axis]
        p = (
            m.const(m.rng.uniform(0.002, 0.02, count).astype(np.float32)),
            m.const(m.rng.integers(low + 90, low + 160, count).astype(dtype)),
        )
        return m.node("DequantizeLinear", m.const(m.rng.integers(low, low + 256, shape).astype(dtype)), *p, axis=axis)

    m.output(m.quantise(LAYERS[layer](m, weights), 0.3, 2))
    assert compared(m, 1.001, 0.02, 0.3).layers


@BYTES
def test_scales_of_activations_per_channel(m, compared, dtype):
    p = real(m, [0.08, 0.01, 0.02]), m.const(np.array([0, 3, 99], dtype))
    x = m.node("QuantizeLinear", m.input("x", [1, 3, 6, 6]), *p)
    real_values = m.node("DequantizeLinear", m.node("Clip", x, m.const(dtype(2)), m.const(dtype(90))), *p)
    m.output(x, "INT8" if dtype is np.int8 else "UINT8")
    m.output(m.node("Relu", real_values))
    m.output(m.quantise(m.node("Conv", real_values, m.weights(4, 3, 3, 3)[0]), 0.05))
    compared(m, 1e-5)


def test_int32_values_and_weights_are_real_values(m, compared):
    x = m.node("Cast", m.input("x", [3, 9]), to=6)
    m.output(m.node("DequantizeLinear", x, real(m, np.arange(1, 10) / 8), axis=1))
    w = m.const(m.rng.integers(-3000, 3000, (9, 5)).astype(np.int32)), real(m, 0.001)
    m.output(m.node("MatMul", m.node("DequantizeLinear", x, real(m, 0.5)), m.node("DequantizeLinear", *w)))
    compared(m, 1e-4)


PADDED = {
    "between steps": (0.377, lambda m, y: m.quantise(y, 0.011, 0)),
    "beyond the range": (50, lambda m, y: m.quantise(y, 0.6, 0)),
    "real": (0.377, lambda m, y: m.node("Sigmoid", y)),
    "infinite": (-np.inf, lambda m, y: m.quantise(m.node("Sigmoid", y), 1 / 256, -128)),
    "pool": (-np.inf, lambda m, y: m.node("MaxPool", y, kernel_shape=[3, 3], strides=[2, 2])),
    "quantised pool": (-np.inf, lambda m, y: m.quantise(m.node("MaxPool", y, kernel_shape=[3, 3]))),
}


@pytest.mark.parametrize("quantised", [True, False])
@pytest.mark.parametrize("name", PADDED)
def test_values_around_an_image(m, compared, name, quantised):
    value, then = PADDED[name]
    x = image(m, 1, 2, 5, 5) if quantised else m.input("x", [1, 2, 5, 5])
    m.output(then(m, m.node("Pad", x, ints(m, 0, 0, 1, -1, 0, 0, 1, 2), real(m, value))))
    compared(m, 1e-6)


MICROSOFT = {"domain": "com.microsoft"}


def norm(kind, **attrs):
    def make(m):
        vectors = [m.const(m.rng.normal(0, 1, 8).astype(np.float32)) for _ in range(2 if kind.startswith("L") else 1)]
        return m.node(kind, m.quantise(m.input("x", [1, 5, 8])), *vectors, **attrs)

    return make


def rotary(*shape, **attrs):
    def make(m):
        angles = m.rng.uniform(0, 6, (9, 2))
        caches = real(m, np.cos(angles)), real(m, np.sin(angles))
        x, where = m.input("x", list(shape)), m.const(m.rng.integers(0, 9, (1, 5)))
        return m.node("RotaryEmbedding", x, *caches, where, rotary_embedding_dim=4, **attrs)

    return make


def skip(m):
    inputs = m.input("x", [2, 5, 8]), m.input("y", [2, 5, 8]), m.const(m.rng.normal(0, 1, 8).astype(np.float32))
    y, *_, total = m.nodes_of("SkipSimplifiedLayerNormalization", inputs, ["n", "", "", "total"], "skip", **MICROSOFT)
    return m.node("Add", y, total)


@pytest.mark.parametrize(
    "make, opset",
    [
        (norm("LayerNormalization", axis=-1), 12),
        (norm("SimplifiedLayerNormalization", axis=-1), 12),
        (norm("SimplifiedLayerNormalization"), 17),
        (norm("RMSNormalization", axis=1), 23),
        (lambda m: m.node("Swish", m.input("x", [2, 9])), 24),
        (lambda m: m.node("Swish", m.input("x", [2, 9]), alpha=1.3), 24),
        (skip, 17),
        (rotary(1, 2, 5, 8), 23),
        (rotary(1, 5, 16, num_heads=2, interleaved=1), 23),
    ],
)
def test_operators_of_other_opsets(m, compared, make, opset):
    m.output(make(m))
    compared(m, 1e-5, opset=opset)


CHANNELS_LAST = {"channels_last": 1, **MICROSOFT}


def qlinear(op, *shape, out=0.08, point=7, **attrs):
    def make(m, dtype, x, p):
        return m.node(op, x(*shape), *p(), *(parameters(m, dtype, out, point)), **attrs)

    return make


def convolution(m, dtype, x, p):
    """Weights of 7 bits: on processors without VNNI onnxruntime's sums of uint8 and int8 saturate at 16 bits."""
    w = m.const(m.rng.integers(-63, 64, (6, 4, 3, 3)).astype(np.int8)), real(m, m.rng.uniform(0.01, 0.02, 6))
    bias = m.const(m.rng.integers(-500, 500, 6).astype(np.int32))
    inputs = x(1, 5, 5, 4), *p(), *w, m.const(np.zeros(6, np.int8)), *p(), bias
    return m.node("QLinearConv", *inputs, pads=[1, 0, 1, 0], **CHANNELS_LAST)


def chosen(m, dtype, x, p):
    condition = m.const(m.rng.integers(0, 2, (5, 5)).astype(bool))
    return m.node("QLinearWhere", condition, x(1, 4, 5, 5), *p(), x(1, 4, 5, 5), *p(), *p(), **MICROSOFT)


QLINEAR = {
    "convolution": convolution,
    "choice": chosen,
    "mean": qlinear("QLinearGlobalAveragePool", 1, 5, 5, 4, **CHANNELS_LAST),
    "average": qlinear("QLinearAveragePool", 1, 5, 5, 4, kernel_shape=[2, 2], **CHANNELS_LAST),
    "largest": lambda m, dtype, x, p: m.node(
        "NhwcMaxPool", x(1, 6, 6, 4), kernel_shape=[2, 2], strides=[2, 2], **MICROSOFT
    ),
    **{
        f"softmax {axis} {opset}": qlinear(
            "QLinearSoftmax", 3, 4, 5, out=1 / 256, point=-128, axis=axis, opset=opset, **MICROSOFT
        )
        for axis in (-1, 1, 0)
        for opset in (11, 13)
    },
}


@BYTES
@pytest.mark.parametrize("name", QLINEAR)
def test_operators_of_onnxruntime(m, compared, name, dtype):
    kind, scales = ("INT8" if dtype is np.int8 else "UINT8"), iter((0.05, 0.11, 0.07))
    y = QLINEAR[name](
        m,
        dtype,
        lambda *shape: m.input(f"x{len(m.inputs)}", list(shape), kind),
        lambda: parameters(m, dtype, next(scales)),
    )
    m.output(y, kind)
    compared(m, 1.001, 0.05)


@pytest.mark.parametrize("quantised", [True, False])
def test_scalars_are_tensors_of_one_element(m, onnxruntime_outputs, quantised):
    x, y = (m.input(name, [8]) for name in "xy")
    y = m.node("MatMul", m.quantise(x), m.quantise(y))
    m.output(m.quantise(y) if quantised else y)
    path = m.save()
    inputs = {name: m.rng.normal(0, 1, 8).astype(np.float32) for name in "xy"}
    ((name, expected),) = onnxruntime_outputs(path, inputs).items()
    np.testing.assert_allclose(
        reference.run(import_onnx(path), inputs)[0][name], [expected], atol=0.0501 if quantised else 1e-5
    )


@pytest.mark.parametrize("dtype", ["int8", "uint8", "float32"])
def test_an_input_may_be_an_output(m, dtype):
    x = m.input("x", [1, 4], {"float32": "FLOAT"}.get(dtype, dtype.upper()))
    m.output(x, {"float32": "FLOAT"}.get(dtype, dtype.upper()))
    given = np.array([[1, 5, 100, 2]], dtype)
    ((name, values),) = reference.run(import_onnx(m.save()), {"x": given})[0].items()
    assert name == "x'" and values.dtype == dtype and (values == given).all()


REFUSED = {
    "Abs 'it' is not on float32 values": ("INT8", lambda m, x: m.node("Abs", x, name="it")),
    "QuantizeLinear 'it' has scale -0.1; it must be finite and at least 1.17549e-38": (
        "INT8",
        lambda m, x: m.node("QuantizeLinear", m.input("y", [1, 8]), real(m, -0.1), m.const(np.int8(0)), name="it"),
    ),
    "QuantizeLinear 'it' has one scale per block": (
        "INT8",
        lambda m, x: m.node("QuantizeLinear", m.input("y", [1, 8]), real(m, [[0.1, 0.2]]), block_size=4, name="it"),
    ),
    "input 'y' is of type int4; only float32": (
        "FLOAT",
        lambda m, x: m.node("Cast", m.input("y", [1, 8], "INT4"), to=1),
    ),
    "Dropout 'it' is in training mode, in which its results are random": (
        "FLOAT",
        lambda m, x: m.node("Dropout", m.input("y", [1, 8]), "", m.const(np.array(True)), name="it"),
    ),
    "Clip 'it' has bounds that are not constant": (
        "INT8",
        lambda m, x: m.node("Clip", x, m.input("y", [], "INT8"), name="it"),
    ),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_not_read_of_bytes(m, refusal, text):
    dtype, make = REFUSED[text]
    m.output(make(m, m.input("x", [1, 8], "INT8")), dtype)
    model, path = m.proto(), m.folder / "model.onnx"
    model.opset_import[0].version = 21
    onnx.save(model, path)
    assert text in refusal(path)
