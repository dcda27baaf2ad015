"""Quantised operators of ONNX: the graph's values against onnxruntime's, which computes between them in float32.

Where a share of values is stated, these may differ by one step: sums and layers have ties at the scales of these tests.
All others are equal.
"""

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.frontend.onnx import import_onnx
from tilewright.compiler.graph import reference

STEP = 0.04


def kinds(graph: g.Graph):
    return [type(op) for op in graph.ops if not isinstance(op, (g.Quantize, g.Dequantize))]


def image(m, *shape, scale=0.05, zero_point=3):
    return m.quantise(m.input(f"x{len(m.inputs)}", list(shape or (1, 4, 6, 5))), scale, zero_point)


def real(m, value):
    return m.const(np.array(value, np.float32))


def relu(make):
    return lambda m: m.node("Relu", make(m), name="relu")


def product(x, y):
    return lambda m: m.node("MatMul", image(m, *x), image(m, *y, scale=0.031, zero_point=-9), name="it")


def pair(kind, other):
    def make(m):
        if other:
            return m.node(kind, image(m), image(m, *other, scale=0.031, zero_point=-9), name="it")
        data = m.rng.integers(0, 100, (4, 1, 1)).astype(m.type)
        y = m.node("DequantizeLinear", m.const(data), real(m, 0.02), m.const(m.type(9)))
        return m.node(kind, image(m), y, name="it")

    return relu(make)


def affine(m):
    factor = real(m, [[[-1]], [[2]], [[3]], [[0.5]]])
    y = m.node("Sub", real(m, 1), m.node("Add", m.node("Mul", image(m), factor), real(m, 0.5)))
    return m.node("Neg", m.node("Sub", m.node("Div", y, real(m, 2)), real(m, 0.75)))


def prelu(shape, quantised=False):
    def make(m):
        slopes = m.rng.uniform(-0.5, 1.8, (shape[1], *[1] * (len(shape) - 2)))
        slopes = m.weights(*slopes.shape, per_channel=False)[0] if quantised else real(m, slopes)
        return m.node("PRelu", image(m, *shape), slopes, name="it")

    return make


def concat(m):
    return m.node("Concat", image(m), image(m, 1, 2, 6, 5, scale=STEP, zero_point=-7), axis=1, name="it")


def conv(outputs=4, groups=1, bias=True, shape=(1, 4, 6, 5), kernel=(3, 3), **attrs):
    def make(m):
        w, scale = m.weights(outputs, shape[1] // groups, *kernel)
        return m.node("Conv", image(m, *shape), w, *([m.bias(scale)] if bias else []), name="it", group=groups, **attrs)

    return make


def clipped(low, high):
    def make(m):
        bounds = [real(m, v) if v is not None else "" for v in (low, high)]
        return m.node("Clip", conv()(m), *(bounds if high is not None else bounds[:1]))

    return make


def transposed(biased, **attrs):
    def make(m):
        w, scale = m.weights(4, 3, 3, 4, axis=1)
        return m.node("ConvTranspose", image(m), w, *([m.bias(scale)] if biased else []), name="it", **attrs)

    return make


def dense(swapped=False, shape=(2, 3, 8), **weights):
    def make(m):
        x = image(m, *shape)
        w, _ = m.weights(8, 5, axis=1, **weights)
        bias, y = m.const(m.rng.normal(0, 1, 5).astype(np.float32)), m.node("MatMul", x, w, name="it")
        return m.node("Relu", m.node("Add", *((bias, y) if swapped else (y, bias))))

    return make


def shifted_weights(dtype, zero):
    def make(m):
        low = np.iinfo(dtype).min
        weights = m.const(m.rng.integers(low, low + 256, (40, 30)).astype(dtype)), real(m, 0.01), m.const(dtype(zero))
        return m.node("MatMul", image(m, 1, 40), m.node("DequantizeLinear", *weights), name="it")

    return make


def quantised_weights(m):
    """A constant may pass QuantizeLinear itself."""
    p = m.const(np.full(3, 0.01, np.float32)), m.const(np.zeros(3, np.int8))
    w = m.node("QuantizeLinear", m.const(m.rng.normal(0, 0.3, (4, 3)).astype(np.float32)), *p, axis=1)
    return m.node("MatMul", image(m, 1, 4), m.node("DequantizeLinear", w, *p, axis=1), name="it")


def one(op, *shape, **attrs):
    return lambda m: m.node(op, image(m, *shape), name="it", **attrs)


def residual(m):
    x, (w1, s1), (w2, s2) = image(m), m.weights(4, 4, 3, 3), m.weights(4, 4, 1, 1)
    main = m.quantise(m.node("Conv", x, w1, m.bias(s1), name="main", pads=[1, 1, 1, 1]), 0.1, 0)
    side = m.quantise(m.node("Conv", x, w2, m.bias(s2), name="side"), 0.07, 5)
    return m.node("Relu", m.node("Add", side, main, name="it"))


CUT = {"strides": [2, 3], "pads": [1, 0, 2, 1], "output_padding": [1, 2]}
RESCALED = [g.NearestRequantize]
# name -> a quantised expression; the largest share of values that differ; the output's scale; the kinds of operators
FORMS = {
    **{
        f"product {x} {y}{' relu' * last}": (
            relu(product(x, y)) if last else product(x, y),
            0.0,
            0.25,
            [g.BatchMatMul, *RESCALED * last],
        )
        for x, y in (((2, 3, 4, 5), (3, 5, 6)), ((4, 5), (5, 3)), ((1, 2, 1, 40), (1, 2, 40, 7)))
        for last in (True, False)
    },
    **{
        f"{kind} {other}": (pair(kind, other), 0.003 * (kind != "Mul"), 0.1, [getattr(g, kind)])
        for kind in ("Add", "Sub", "Mul")
        for other in ((1, 4, 6, 5), (1, 4, 1, 1), None)
    },
    "concat": (concat, 0.0, STEP, [*RESCALED, g.Concat]),
    "sigmoid": (one("Sigmoid", 2, 300), 0.0, 0.01, [g.Lookup]),
    "tanh": (one("Tanh", 2, 300), 0.0, 0.01, [g.Lookup]),
    "leaky relu": (one("LeakyRelu", 2, 300, alpha=0.1), 0.0, 0.01, [g.Lookup]),
    **{
        f"prelu {shape} {quantised}": (prelu(shape, quantised), 0.0, STEP, None)
        for shape in ((1, 4, 6, 5), (2, 300, 2, 2), (2, 7, 9), (3, 8))
        for quantised in (False, True)
    },
    "affine": (affine, 0.04, STEP, [g.QConv2d]),
    **{f"clip {low} {high}": (clipped(low, high), 0.0, 0.1, None) for low, high in ((0, 6), (0, None), (None, 1))},
    **{
        f"convolution {groups} {outputs}": (
            conv(outputs, groups, pads=[1, 1, 1, 1], strides=[2, 1]),
            *(0.0, STEP, [g.QConv2d]),
        )
        for groups, outputs in ((4, 4), (2, 6), (4, 8))
    },
    **{
        f"convolution {mode}": (
            conv(3, 1, False, (1, 2, 8, 5), (3, 2), auto_pad=mode, strides=[2, 1]),
            *(0.0, 0.3, [g.QConv2d]),
        )
        for mode in ("SAME_UPPER", "SAME_LOWER", "VALID")
    },
    **{
        f"transposed {biased} {len(attrs)}": (transposed(biased, **attrs), 0.0, 0.1, [g.QConvTranspose2d])
        for biased in (True, False)
        for attrs in ({}, CUT)
    },
    "dense": (dense(), 0.0, STEP, [g.Reshape, g.QDense, g.Reshape]),
    "dense swapped": (dense(True, (1, 8), per_channel=False), 0.0, STEP, [g.QDense]),
    **{
        f"dense less {zero} {dtype.__name__}": (shifted_weights(dtype, zero), 0.0, 0.5, None)
        for dtype, zero in ((np.uint8, 120), (np.int8, 5), (np.uint8, 128), (np.uint8, 0))
    },
    "dense quantised by the file": (quantised_weights, 0.0, 0.05, [g.QDense]),
    **{
        f"mean {axes} {keep}": (one("ReduceMean", axes=axes, keepdims=keep), 0.0, 0.0231, None)
        for axes, keep in (([2, 3], 1), ([2, 3], 0), ([1], 0), ([-1], 1))
    },
    "average pool": (one("AveragePool", kernel_shape=[2, 3], strides=[2, 1]), 0.0, 0.0413, [g.AveragePool]),
    "average pool with ties": (
        one("AveragePool", kernel_shape=[2, 3], strides=[2, 1]),
        *(0.0, STEP, [g.FloatAveragePool]),
    ),
    "average pool padded": (
        one("AveragePool", kernel_shape=[3, 2], pads=[1, 0, 1, 1], count_include_pad=1),
        *(0.0, 0.0413, [g.Pad, g.AveragePool]),
    ),
    "residual": (residual, 0.03, 0.1, [g.QConv2d, g.QConv2d, g.Add]),
    **{  # rounded once, ties to even: there are some at all ratios but the last
        f"requantised {scale}": (lambda m, scale=scale: image(m, 4, 500, scale=scale), 0.0, STEP, RESCALED)
        for scale in (0.1, 0.2, 0.04, 0.11)
    },
}


@pytest.mark.parametrize("activations", [np.int8, np.uint8])
@pytest.mark.parametrize("name", FORMS)
def test_expressions_become_integer_operators(qdq, compared, name, activations):
    make, share, scale, expected = FORMS[name]
    m = qdq(activations=activations)
    m.output(m.quantise(make(m), scale, -7))
    graph = compared(m, 1.001 if share else 0.001, share or 1.0, scale)
    assert expected is None or kinds(graph) == expected
    assert name.startswith(("requantised", "affine")) or any(op.name == "it" for op in graph.ops)
    if name.startswith("clip"):
        low, high = (None if text == "None" else int(text) for text in name.split()[1:])
        bounds = -128 if low is None else -7, 127 if high is None else round(high / 0.1) - 7
        assert [(op.low, op.high) for op in graph.layers] == [bounds]
    if name.startswith(("residual", "Add", "Sub", "Mul")):
        (op,) = (op for op in graph.ops if isinstance(op, g.Binary))
        assert op.low == -7 and (name != "residual" or [t.name for t in op.inputs] == ["side", "main"])
    if name.startswith("prelu"):
        assert len(graph.of(g.NearestPrelu)) == 1 and not graph.of(g.FloatOperator)
    if name.startswith("dense less"):
        parts = {"128": 1, "0": 3}.get(name.split()[2], 2)  # of 255 three
        assert graph.layers[0].weight.shape[1] == 40 * parts


@pytest.mark.parametrize("axis, scale", [(-1, 1 / 256), (1, 1 / 200)])
def test_softmax(m, compared, axis, scale):
    m.output(m.quantise(m.node("Softmax", image(m, 3, 8), axis=axis, name="top"), scale, -128))
    assert [op.name for op in compared(m, 0.001, 1.0, scale).ops if "top" in op.name] == ["top"]


def test_a_layer_is_computed_once_for_all_its_readers(m, compared):
    """onnxruntime's quantiser may write a QuantizeLinear for each reader."""
    y = conv()(m)
    m.output(m.quantise(m.node("Mul", m.quantise(y, 0.1), m.node("Sigmoid", m.quantise(y, 0.1))), 0.1))
    assert len(compared(m, 1.001, 0.02, 0.1).layers) == 1


def test_standalone_clamps(m, compared):
    y = m.quantise(m.node("Clip", image(m), real(m, -1), real(m, 2.5), name="clip"), 0.03, 0)
    m.output(m.quantise(m.node("Relu", y, name="relu"), STEP, -100))
    clamps = [op for op in compared(m, 1.001, 0.1, STEP).ops if isinstance(op, g.NearestRequantize)]
    assert [(op.name, op.low, op.high) for op in clamps] == [("clip", -33, 83), ("relu", -100, 127)]


def test_movement_is_exact(m, compared):
    def ints(*values):
        return m.const(np.array(values, np.int64))

    q = {"scale": STEP, "zero_point": -7}
    y = m.node("Pad", image(m, **q), ints(0, 0, 1, 2, 0, 1, 0, 0), real(m, 1.0), name="pad")
    y = m.quantise(m.node("Pad", m.quantise(y, **q), ints(0, 0, 0, 0, 0, 0, 0, 3), name="zeros"), **q)
    y = m.quantise(m.node("Transpose", y, perm=[0, 2, 3, 1], name="turn"), **q)
    y = m.quantise(m.node("Slice", y, ints(1, -1), ints(7, -100), ints(1, 2), ints(2, -3), name="cut"), **q)
    for k, part in enumerate(m.nodes_of("Split", [y, ints(1, 2)], ["one", "two"], "split", axis=1)):
        y = m.quantise(m.node("Unsqueeze", m.quantise(part, **q), ints(0), name=f"more{k}"), **q)
        m.output(m.quantise(m.node("Squeeze", y, ints(0), name=f"less{k}"), **q))
    graph = compared(m)
    assert sum(issubclass(kind, g.StridedSlice) for kind in kinds(graph)) == 3
    assert [op.value for op in graph.ops if isinstance(op, g.Pad)] == [18, -7]


def test_integers_may_be_taken_for_other_numbers(m, compared):
    q = m.node("QuantizeLinear", m.input("x", [1, 9]), real(m, 0.5), m.const(np.int8(0)))
    m.output(m.node("DequantizeLinear", q, real(m, 0.25), m.const(np.int8(7)), name="otherwise"))
    compared(m, 0)


def test_scales_along_the_inputs_leave_a_layer_in_float32(m):
    w, _ = m.weights(4, 4, axis=1)
    m.output(m.quantise(m.node("Gemm", image(m, 1, 4), w, name="layer", transB=1)))
    graph = import_onnx(m.save())
    assert not graph.layers and [op.name for op in graph.ops if isinstance(op, g.FloatMatMul)] == ["layer"]


def test_an_infinite_value_around_an_image_is_the_largest(m):
    m.output(m.quantise(m.node("Pad", image(m, 1, 4), m.const(np.array([0, 1, 0, 1])), real(m, np.inf))))
    (pad,) = (op for op in import_onnx(m.save()).ops if isinstance(op, g.Pad))
    assert pad.value == 127


NOT_NUMBERS = {
    "clamps to nan..1, which are no numbers": lambda m: m.node("Clip", image(m, 1, 4), real(m, np.nan), real(m, 1)),
    "LeakyRelu 'leak' gives no number for an input of -128": lambda m: m.node(
        "LeakyRelu", image(m, 1, 4), name="leak", alpha=float("nan")
    ),
    "Pad 'edge' pads with nan, which is no number": lambda m: m.node(
        "Pad", image(m, 1, 4), m.const(np.array([0, 1, 0, 1])), real(m, np.nan), name="edge"
    ),
}


@pytest.mark.parametrize("text", NOT_NUMBERS)
def test_values_that_are_no_numbers(m, refusal, text):
    m.output(m.quantise(NOT_NUMBERS[text](m)))
    assert text in refusal(m.save())


BEYOND = {
    **{kind: lambda m, kind=kind: m.node(kind, image(m, 1, 9), image(m, 1, 9)) for kind in ("Add", "Sub", "Mul")},
    **{kind: lambda m, kind=kind: m.node(kind, image(m, 1, 9)) for kind in ("Relu", "Identity")},
    "Concat": lambda m: m.node("Concat", image(m, 1, 9), image(m, 1, 4), axis=1),
    "MatMul": lambda m: m.node("MatMul", image(m, 3, 4), m.weights(4, 5, axis=1)[0]),
    "product": lambda m: m.node("MatMul", image(m, 3, 4), image(m, 4, 5)),
    "Conv": conv(3, 1, True, (1, 2, 5, 5)),
    "affine": affine,
    **{kind: one(kind, 1, 8, 3, 3) for kind in ("ReduceMean", "GlobalAveragePool")},
    "AveragePool": one("AveragePool", 1, 2, 4, 4, kernel_shape=[2, 2], pads=[1] * 4),
}


@pytest.mark.parametrize("y_scale", [5e-9, 1e-30])
@pytest.mark.parametrize("name", BEYOND)
def test_results_of_tiny_scales_are_float32(m, compared, name, y_scale):
    """As of layers without any effect: integers would leave int32."""
    m.output(m.quantise(BEYOND[name](m), y_scale))
    compared(m, 0.001, 1.0, y_scale)


BIG = 2**31 - 1
SHIFTED = 0.025 / 2**20.5  # output scale; 4 products of up to 128 are at most 512, which 2**22 shifts beyond int32


@pytest.mark.parametrize(
    "facts, layers",
    [
        *(({"bias": np.array([0, bias, 0], np.float32)}, 1) for bias in (1e9, -1e9, 5e15)),
        ({"bias": np.array([0, 0, BIG], np.int32), "bias_scale": 0.05}, 1),
        (
            {
                "weight_scale": 1e-9,
                "bias": np.array([-BIG - 1, BIG, 3], np.int32),
                "bias_scale": 5e-11,
                "y_scale": 0.01,
            },
            1,
        ),
        ({"weight_scale": 1e-9, "bias": np.array([0.3, -7, 1e-10], np.float32)}, 1),
        ({"weight_scale": 0, "bias": np.array([0.3, -7, 1e-10], np.float32), "y_scale": 0.2}, 1),
        # the input decides how 0.5 is rounded
        ({"weight_scale": 1e-9, "weight": 127, "bias": np.array([0.5, 9, 0], np.float32)}, 0),
        ({"weight_scale": 1e30, "y_scale": 1e-10, "bias": np.array([0, -1e35, 1e35], np.float32)}, 0),
        ({"y_scale": SHIFTED / 2, "bias": np.array([0, -100, 100], np.float32)}, 0),
    ],
)
def test_layers_whose_numbers_leave_int32(qdq, compared, facts, layers):
    """Channels that no input changes stay in the layer; other layers are float32."""
    m = qdq()
    m.dense(**facts)
    assert len(compared(m, 0.001, 1.0, facts.get("y_scale", 1.0)).layers) == layers


REFUSED = [
    *(
        ({"weight_scale": s}, f"DequantizeLinear 'weights' has scale {s:g}; it must be finite")
        for s in (np.inf, np.nan)
    ),
    *(
        ({"scale": s}, f"QuantizeLinear 'first' has scale {s:g}; it must be finite and at least 1.17549e-38")
        for s in (0.0, -0.5, 1e-39, np.inf, np.nan)
    ),
]


@pytest.mark.parametrize("facts, text", REFUSED, ids=[text for _, text in REFUSED])
def test_numbers_of_a_layer_that_are_refused(qdq, refusal, facts, text):
    assert text in refusal(qdq().dense(**facts))


def test_numbers_of_a_layer_at_their_limits(qdq):
    def layer(**facts):
        return import_onnx(qdq().dense(**facts)).layers[0]

    scale = np.float64(np.float32(0.05)) * np.float64(np.float32(0.5))
    bias = np.nextafter(np.float32(BIG * scale), np.float32(0))
    found = layer(bias=np.array([bias, 0, 0], np.float32), weight=0, y_scale=10).bias[0]
    assert found == np.rint(np.float64(bias) / scale) > 2**30
    assert layer(y_scale=SHIFTED).multipliers[1].max() == 21
    assert list(layer(weight_scale=0.0).multipliers[0]) == [0, 0, 0]
    assert layer(weight_scale=1e30, y_scale=1e-10, weight=0)  # sums of nothing


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("weight, zero_point", [(1, -100), (1, 0), (-2, 50), (127, -128)])
def test_the_largest_bias_that_leaves_room_for_the_products(qdq, weight, zero_point, more):
    products = 4 * max(weight * (127 - zero_point), weight * (-128 - zero_point))
    bias = np.array([0, 0, BIG - products + more], np.int32)
    (layer,) = import_onnx(qdq().dense(bias=bias, bias_scale=0.025, zero_point=zero_point, weight=weight)).layers
    assert (layer.weight[2] == (0 if more else weight)).all() and layer.bias[2] == (127 - 3 if more else bias[2])


@pytest.mark.parametrize("features, fits", [(131071, True), (131072, False)])
def test_the_most_products_of_extremes(m, features, fits):
    parameters = [m.const(np.full((1, features), -128, np.int8)), real(m, 0.5), m.const(np.int8(0))]
    w = m.node("DequantizeLinear", *parameters)
    m.output(m.quantise(m.node("Gemm", image(m, 1, features, zero_point=0), w, name="layer", transB=1), 1e6))
    assert bool(import_onnx(m.save()).layers) == fits


def test_what_is_accepted_is_what_wide_integers_give(qdq):
    """At the limit the rounding contract must not wrap: both contracts saturate alike."""
    graph = import_onnx(qdq().dense(y_scale=SHIFTED))
    for sign in (-1, 1):
        x = {"x": np.full((1, 4), 100 * sign, np.float32)}
        for contract in ("single", "double"):
            (y,) = (reference.run(graph, x, contract)[0][t.name] for t in graph.outputs)
            assert (np.sign(y) == sign).all()


@pytest.mark.parametrize("activations", [np.int8, np.uint8])
def test_integers_that_are_resized_lose_their_fractions(qdq, compared, activations):
    m = qdq(activations=activations)
    parameters = real(m, STEP), m.const(activations(9))
    q = m.node("QuantizeLinear", m.input("x", [1, 3, 5, 6]), *parameters)
    resized = m.node("Resize", q, "", real(m, [1, 1, 2, 1.5]), mode="linear")
    m.output(m.node("DequantizeLinear", resized, *parameters))
    assert any(isinstance(op, g.FloatResize) for op in compared(m, 0.001, 1.0, STEP).ops)


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
def test_windows_that_begin_behind_the_image_are_left_out(m, compared, kind):
    attrs = {"kernel_shape": [2, 1], "strides": [2, 2], "ceil_mode": 1}
    m.output(m.quantise(m.node(kind, image(m, 1, 2, 5, 12), **attrs), 0.0513, 3))
    compared(m, 0.001, 1.0, 0.0513)


def test_products_and_means_round_twice_where_that_is_asked_for(m):
    product = m.quantise(m.node("Mul", image(m), image(m)), 0.1)
    m.output(
        m.quantise(m.node("ReduceMean", m.quantise(m.node("MatMul", product, image(m, 5, 3)), 0.2), axes=[1]), 0.1)
    )
    graph = import_onnx(m.save())
    for contract in ("single", "double"):
        ops = [op for op in graph.under(contract).ops if isinstance(op, (g.Mul, g.BatchMatMul, g.Mean))]
        assert {type(op) for op in ops} == {g.Mul, g.BatchMatMul, g.Mean} and {op.contract for op in ops} == {contract}
