"""Quantised operators of ONNX: the graph's values against onnxruntime's, which computes between them in float32.

onnxruntime rounds once what integer kernels round twice: values may differ by one step of the output, and the largest
share of values that do is stated. Operators that move values, or look them up, are exact.
"""

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.frontend.onnx import import_onnx
from tilewright.compiler.graph import FloatMatMul, reference
from tilewright.hw.errors import UnsupportedError

STEP = 0.04


def compare(m, runs, y=None, share=0.0, scale=STEP, activation=None):
    """Quantise, import, and compare the steps of the output; the graph."""
    if y is not None:
        y = m.node("Relu", y, name="relu") if activation == "relu" else y
        m.output(m.quantise(y, scale, -7))
    path = m.save()
    graph = import_onnx(path)
    differ = []
    for _ in range(3):
        inputs = {t.name: m.rng.normal(0, 3, t.shape).astype(np.float32) for t in graph.inputs}
        expected = runs(path, inputs)
        mine, _ = reference.run(graph, inputs)
        for name, value in expected.items():
            assert mine[name].shape == value.shape
            steps = np.rint((mine[name].astype(np.float64) - value) / scale)
            assert len(np.unique(mine[name])) > 1
            differ.append(np.abs(steps).reshape(-1))
    differ = np.concatenate(differ)
    assert differ.max() <= (1 if share else 0) and (differ > 0).mean() <= share
    return graph


def kinds(graph: g.Graph):
    return [type(op) for op in graph.ops if not isinstance(op, (g.Quantize, g.Dequantize))]


def image(m, *shape, scale=0.05, zero_point=3):
    return m.quantise(m.input(f"x{len(m.inputs)}", list(shape or (1, 4, 6, 5))), scale, zero_point)


@pytest.mark.parametrize("activation", [None, "relu"])
@pytest.mark.parametrize(
    ("x", "y"), [((2, 3, 4, 5), (3, 5, 6)), ((4, 5), (5, 3)), ((1, 2, 1, 40), (1, 2, 40, 7))], ids=str
)
def test_products_of_two_tensors(m, onnxruntime_outputs, x, y, activation):
    product = m.node("MatMul", image(m, *x), image(m, *y, scale=0.031, zero_point=-9), name="product")
    graph = compare(m, onnxruntime_outputs, product, 0.06, 0.25, activation)
    assert kinds(graph) == [g.BatchMatMul, *([g.NearestRequantize] if activation else [])]


def ints(m, *values):
    return m.const(np.array(values, np.int64))


ACTIVATIONS = pytest.mark.parametrize("activations", [np.int8, np.uint8])


@ACTIVATIONS
@pytest.mark.parametrize("kind", ["Add", "Sub", "Mul"])
@pytest.mark.parametrize("other", [(1, 4, 6, 5), (1, 4, 1, 1), None], ids=str)
def test_sums_differences_and_products(qdq, onnxruntime_outputs, kind, other, activations):
    m = qdq(activations=activations)
    x = image(m)
    if other:
        y = image(m, *other, scale=0.031, zero_point=-9)
    else:
        data = m.rng.integers(0, 100, (4, 1, 1)).astype(activations)
        y = m.node("DequantizeLinear", m.const(data), m.const(np.float32(0.02)), m.const(activations(9)))
    graph = compare(m, onnxruntime_outputs, m.node(kind, x, y, name="both"), 0.06, 0.1, "relu")
    (op,) = (op for op in graph.ops if isinstance(op, g.Binary))
    assert (op.name, op.low) == ("both", -7)


@ACTIVATIONS
def test_concatenation_of_different_scales(qdq, onnxruntime_outputs, activations):
    m = qdq(activations=activations)
    y = m.node("Concat", image(m), image(m, 1, 2, 6, 5, scale=STEP, zero_point=-7), axis=1, name="joint")
    graph = compare(m, onnxruntime_outputs, y)
    assert kinds(graph) == [g.NearestRequantize, g.Concat] and graph.ops[-2].name == "joint"


@pytest.mark.parametrize("function", ["Sigmoid", "Tanh", "LeakyRelu"])
@ACTIVATIONS
def test_functions_are_tables(qdq, onnxruntime_outputs, function, activations):
    m = qdq(activations=activations)
    y = m.node(function, image(m, 2, 300), name="f", **({"alpha": 0.1} if function == "LeakyRelu" else {}))
    graph = compare(m, onnxruntime_outputs, y, scale=0.01)
    assert kinds(graph) == [g.Lookup]


def test_affine_functions_of_a_tensor_are_one_operator(m, onnxruntime_outputs):
    factor, half, two = (m.const(np.array(v, np.float32)) for v in ([[[-1]], [[2]], [[3]], [[0.5]]], 0.5, 2))
    y = m.node("Sub", m.const(np.float32(1)), m.node("Add", m.node("Mul", image(m), factor), half))
    y = m.node("Neg", m.node("Sub", m.node("Div", y, two), m.const(np.float32(0.75))))
    assert kinds(compare(m, onnxruntime_outputs, y, 0.1)) == [g.QConv2d]


@pytest.mark.parametrize("axis, scale", [(-1, 1 / 256), (1, 1 / 200)])
def test_softmax(m, onnxruntime_outputs, axis, scale):
    m.output(m.quantise(m.node("Softmax", image(m, 3, 8), axis=axis, name="top"), scale, -128))
    graph = compare(m, onnxruntime_outputs, share=0.2, scale=scale)
    assert [op.name for op in graph.ops if "top" in op.name] == (
        ["top"] if scale == 1 / 256 else ["top", "top.rescale"]
    )


def test_standalone_clamps(m, onnxruntime_outputs):
    y = m.quantise(m.node("Clip", image(m), m.const(np.float32(-1)), m.const(np.float32(2.5)), name="clip"), 0.03, 0)
    m.output(m.quantise(m.node("Relu", y, name="relu"), STEP, -100))
    graph = compare(m, onnxruntime_outputs, share=0.1)
    assert [(op.name, op.low, op.high) for op in graph.ops if isinstance(op, g.NearestRequantize)] == [
        ("clip", -33, 83),
        ("relu", -100, 127),
    ]


@pytest.mark.parametrize("bounds", [(0.0, 6.0), (0.0, None), (None, 1.0)])
def test_clip_after_a_convolution(m, onnxruntime_outputs, bounds):
    w, scale = m.weights(4, 4, 3, 3)
    y = m.node("Conv", image(m), w, m.bias(scale), name="conv")
    low, high = (m.const(np.float32(v)) if v is not None else "" for v in bounds)
    graph = compare(m, onnxruntime_outputs, m.node("Clip", y, low, *([high] if high else [])), 0.03, 0.1)
    (op,) = graph.layers
    expected = [int(np.rint(v / 0.1)) - 7 if v is not None else default for v, default in zip(bounds, (-128, 127))]
    assert [op.low, op.high] == expected


@pytest.mark.parametrize("groups, outputs", [(4, 4), (2, 6), (4, 8)])
def test_grouped_convolutions(m, onnxruntime_outputs, groups, outputs):
    w, scale = m.weights(outputs, 4 // groups, 3, 3)
    y = m.node("Conv", image(m), w, m.bias(scale), name="conv", group=groups, pads=[1, 1, 1, 1], strides=[2, 1])
    graph = compare(m, onnxruntime_outputs, y, 0.03)
    (op,) = graph.layers
    assert isinstance(op, g.QConv2d) and op.groups == groups


@pytest.mark.parametrize("attrs", [{}, {"strides": [2, 3], "pads": [1, 0, 2, 1], "output_padding": [1, 2]}])
@pytest.mark.parametrize("biased", [True, False])
def test_transposed_convolution(m, onnxruntime_outputs, attrs, biased):
    w, scale = m.weights(4, 3, 3, 4, axis=1)
    y = m.node("ConvTranspose", image(m), w, *([m.bias(scale)] if biased else []), name="up", **attrs)
    graph = compare(m, onnxruntime_outputs, y, 0.03, 0.1)
    (op,) = graph.layers
    assert isinstance(op, g.QConvTranspose2d) and op.name == "up" and op.weight.shape == (3, 4, 3, 4)


def test_dense_layers_on_more_than_two_dimensions(m, onnxruntime_outputs):
    w, scale = m.weights(8, 5, axis=1)
    y = m.node("Add", m.node("MatMul", image(m, 2, 3, 8), w, name="product"), m.const(np.ones(5, np.float32)))
    graph = compare(m, onnxruntime_outputs, y, 0.05)
    (op,) = graph.layers
    assert isinstance(op, g.QDense) and op.x.shape == (6, 8)


@pytest.mark.parametrize("axes, keep", [([2, 3], 1), ([2, 3], 0), ([1], 0), ([-1], 1)])
def test_means(m, onnxruntime_outputs, axes, keep):
    y = m.node("ReduceMean", image(m), axes=axes, keepdims=keep, name="mean")
    compare(m, onnxruntime_outputs, y, 0.2, scale=0.0231)


def test_average_pooling_with_padding_that_counts(m, onnxruntime_outputs):
    y = m.node("AveragePool", image(m), kernel_shape=[3, 2], pads=[1, 0, 1, 1], count_include_pad=1, name="pool")
    compare(m, onnxruntime_outputs, y, 0.3)


def test_movement_is_exact(m, onnxruntime_outputs):
    q = {"scale": STEP, "zero_point": -7}
    x = image(m, **q)
    y = m.node("Pad", x, ints(m, 0, 0, 1, 2, 0, 1, 0, 0), m.const(np.float32(1.0)), name="pad")
    y = m.quantise(m.node("Pad", m.quantise(y, **q), ints(m, 0, 0, 0, 0, 0, 0, 0, 3), name="zeros"), **q)
    y = m.quantise(m.node("Transpose", y, perm=[0, 2, 3, 1], name="turn"), **q)
    y = m.node("Slice", y, ints(m, 1, -1), ints(m, 7, -100), ints(m, 1, 2), ints(m, 2, -3), name="cut")
    y = m.quantise(y, **q)
    for k, part in enumerate(m.nodes_of("Split", [y, ints(m, 1, 2)], ["one", "two"], "split", axis=1)):
        y = m.quantise(m.node("Unsqueeze", m.quantise(part, **q), ints(m, 0), name=f"more{k}"), **q)
        m.output(m.quantise(m.node("Squeeze", y, ints(m, 0), name=f"less{k}"), **q))
    graph = compare(m, onnxruntime_outputs)
    assert sum(issubclass(kind, g.StridedSlice) for kind in kinds(graph)) == 3
    assert [op.value for op in graph.ops if isinstance(op, g.Pad)] == [18, -7]


def test_a_residual_block_keeps_its_names(m, onnxruntime_outputs):
    x = image(m)
    w1, s1 = m.weights(4, 4, 3, 3)
    w2, s2 = m.weights(4, 4, 1, 1)
    main = m.quantise(m.node("Conv", x, w1, m.bias(s1), name="main", pads=[1, 1, 1, 1]), 0.1, 0)
    side = m.quantise(m.node("Conv", x, w2, m.bias(s2), name="side"), 0.07, 5)
    graph = compare(m, onnxruntime_outputs, m.node("Add", side, main, name="sum"), 0.06, 0.1, "relu")
    assert {op.name: op.weight.shape[2] for op in graph.layers} == {"main": 3, "side": 1}
    (op,) = (op for op in graph.ops if isinstance(op, g.Add))
    assert [t.name for t in op.inputs] == ["side", "main"]


@pytest.mark.parametrize("scale", [0.1, 0.2, 0.04, 0.11])
def test_requantisation(m, onnxruntime_outputs, scale):
    """Rounded once, ties to even: there are some at all ratios but the last."""
    assert kinds(compare(m, onnxruntime_outputs, image(m, 4, 500, scale=scale))) == [g.NearestRequantize]


def test_tensors_compare_without_their_data():
    data = np.ones(3, np.int8)
    assert g.Tensor("k", (3,), data=data) == g.Tensor("k", (3,))


@pytest.mark.parametrize(
    "kind, y_scale, text",
    [
        ("Add", 5e-9, "Add 'it' scales accumulators of up to 137363456 by 2**"),
        ("Sub", 5e-9, "Sub 'it' scales accumulators of up to 133693440 by 2**"),
        ("Mul", 1e-9, "Mul 'it' scales accumulators of up to 17161 by 2**21 or more to output scale 1e-09"),
        ("Mul", 1e-30, "Mul 'it' scales accumulators by 2.5e+27 to output scale 1e-30; the factor must be"),
        ("Relu", 1e-30, "Relu 'it' scales accumulators by 5e+28 to output scale 1e-30"),
        ("Relu", 1e-9, "Relu 'it' scales accumulators of up to 131 by 2**25 or more"),
        ("ReduceMean", 1e-9, "ReduceMean 'it' scales accumulators of up to 524 by 2**"),
        ("Concat", 1e-9, "Concat 'it' scales accumulators of up to 131 by 2**25 or more"),
    ],
)
def test_scales_that_take_integers_out_of_int32(m, refusal, kind, y_scale, text):
    x = m.quantise(m.input("x", [1, 4]))
    attrs = {"Concat": {"axis": 1}, "ReduceMean": {"axes": [1]}}.get(kind, {})
    operands = (x,) if kind in ("Relu", "ReduceMean") else (x, x)
    m.output(m.quantise(m.node(kind, *operands, name="it", **attrs), y_scale))
    assert text in refusal(m.save())


def test_values_that_are_no_numbers(qdq, refusal):
    m = qdq()
    bounds = m.const(np.float32(np.nan)), m.const(np.float32(1))
    m.output(m.quantise(m.node("Clip", m.quantise(m.input("x", [1, 4])), *bounds, name="clip")))
    assert "clamps to nan..1, which are no numbers" in refusal(m.save())
    m = qdq()
    y = m.node("LeakyRelu", m.quantise(m.input("x", [1, 4])), name="leak", alpha=float("nan"))
    m.output(m.quantise(y))
    assert "LeakyRelu 'leak' gives no number for an input of -128" in refusal(m.save())
    m = qdq()
    pads = [m.const(np.array([0, 1, 0, 1])), m.const(np.float32(np.nan))]
    m.output(m.quantise(m.node("Pad", m.quantise(m.input("x", [1, 4])), *pads, name="edge")))
    assert "Pad 'edge' pads with nan, which is no number" in refusal(m.save())


def test_an_infinite_value_around_an_image_is_the_largest(m):
    pads = [m.const(np.array([0, 1, 0, 1])), m.const(np.float32(np.inf))]
    m.output(m.quantise(m.node("Pad", m.quantise(m.input("x", [1, 4])), *pads)))
    (pad,) = (op for op in import_onnx(m.save()).ops if isinstance(op, g.Pad))
    assert pad.value == 127


BIG = 2**31 - 1


@pytest.mark.parametrize("bias", [1e9, -1e9, 5e15])
def test_a_float_bias_beyond_int32(qdq, bias):
    path = qdq().dense(bias=np.array([0, bias, 0], np.float32))
    text = rf"Gemm 'layer' has bias {bias:g} for output channel 1: .* times the accumulator's scale 0.025, outside"
    with pytest.raises(UnsupportedError, match=text.replace("+", r"\+")):
        import_onnx(path)


def test_a_quantised_bias_of_another_scale_beyond_int32(qdq, refusal):
    path = qdq().dense(bias=np.array([0, 0, BIG], np.int32), bias_scale=0.05)
    assert "Gemm 'layer' has bias 1.07374e+08 for output channel 2" in refusal(path)


def test_the_largest_float_bias_that_fits(qdq):
    scale = np.float64(np.float32(0.05)) * np.float64(np.float32(0.5))
    bias = np.nextafter(np.float32(BIG * scale), np.float32(0))
    (op,) = import_onnx(qdq().dense(bias=np.array([bias, 0, 0], np.float32), weight=0, y_scale=10)).layers
    assert op.bias[0] == np.rint(np.float64(bias) / scale) > 2**30


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("weight, zero_point", [(1, -100), (1, 0), (-2, 50), (127, -128)])
def test_the_largest_bias_that_leaves_room_for_the_products(qdq, weight, zero_point, more, refusal):
    products = 4 * max(weight * (127 - zero_point), weight * (-128 - zero_point))
    bias = np.array([0, 0, BIG - products + more], np.int32)
    path = qdq().dense(bias=bias, bias_scale=0.025, zero_point=zero_point, weight=weight)
    if not more:
        assert import_onnx(path).layers[0].bias[2] == bias[2]
        return
    text = refusal(path)
    assert "Gemm 'layer' has accumulators from " in text
    assert f"to {BIG + 1} for output channel 2 (bias {bias[2]}), outside {-BIG - 1}..{BIG}, where they wrap" in text


@pytest.mark.parametrize("features, fits", [(131071, True), (131072, False)])
def test_the_most_products_of_extremes(m, features, fits, refusal):
    x = m.quantise(m.input("x", [1, features]), 0.05, 0)
    parameters = [m.const(np.full((1, features), -128, np.int8)), m.const(np.float32(0.5)), m.const(np.int8(0))]
    y = m.node("Gemm", x, m.node("DequantizeLinear", *parameters), name="layer", transB=1)
    m.output(m.quantise(y, 1e6))
    path = m.save()
    if fits:
        assert import_onnx(path).layers
    else:
        assert f"to {BIG + 1} for output channel 0 (bias 0), outside" in refusal(path)


def test_a_scale_beyond_every_multiplier(qdq, refusal):
    text = refusal(qdq().dense(weight_scale=1e30, y_scale=1e-10))
    assert "Gemm 'layer' scales accumulators by 5e+38 for output channel 0 (bias 0) to output scale 1e-10" in text
    assert "the factor must be at least 0 and below 2**30" in text
    assert import_onnx(qdq().dense(weight_scale=1e30, y_scale=1e-10, weight=0)).layers  # sums of nothing


def test_accumulators_that_the_scale_shifts_out_of_int32(qdq, refusal):
    # 4 products of up to 128: at most 512, and the first exponent that shifts it beyond int32 is 22
    assert import_onnx(qdq().dense(y_scale=0.025 / 2**20.5)).layers[0].multipliers[1].max() == 21
    text = refusal(qdq().dense(y_scale=0.025 / 2**21.5))
    assert "Gemm 'layer' scales accumulators of up to 512 by 2**21 or more to output scale 8.42937e-09" in text
    assert "at most 511 are allowed; give the output a larger scale" in text


def test_what_is_accepted_is_what_wide_integers_give(qdq):
    """At the limit the rounding contract must not wrap: both contracts saturate alike."""
    graph = import_onnx(qdq().dense(y_scale=0.025 / 2**20.5))
    for sign in (-1, 1):
        x = {"x": np.full((1, 4), 100 * sign, np.float32)}
        for contract in ("single", "double"):
            (y,) = (reference.run(graph, x, contract)[0][t.name] for t in graph.outputs)
            assert (np.sign(y) == sign).all()


def test_means_that_the_scale_shifts_out_of_int32(qdq, refusal):
    def mean(y_scale):
        m = qdq()
        x = m.quantise(m.input("x", [1, 2, 4, 4]), 1.0, 0)
        m.output(m.quantise(m.node("GlobalAveragePool", x, name="mean"), y_scale))
        return m.save()

    assert import_onnx(mean(2**-22.5))  # 16 pixels of up to 128, and the exponent 19
    assert "GlobalAveragePool 'mean' scales accumulators of up to 2048 by 2**" in refusal(mean(2**-23.5))


@pytest.mark.parametrize("scale", [-0.5, np.inf, np.nan])
def test_scales_of_weights_are_not_negative(qdq, scale, refusal):
    text = refusal(qdq().dense(weight_scale=scale))
    assert f"DequantizeLinear 'weights' has scale {scale:g}; it must be finite and not negative" in text


def test_a_channel_of_scale_zero_is_one(qdq):
    assert list(import_onnx(qdq().dense(weight_scale=0.0)).layers[0].multipliers[0]) == [0, 0, 0]


def test_scales_along_the_inputs_leave_a_layer_in_float32(m):
    x = m.quantise(m.input("x", [1, 4]))
    w, _ = m.weights(4, 4, axis=1)
    m.output(m.quantise(m.node("Gemm", x, w, name="layer", transB=1)))
    graph = import_onnx(m.save())
    assert not graph.layers and [op.name for op in graph.ops if isinstance(op, FloatMatMul)] == ["layer"]
