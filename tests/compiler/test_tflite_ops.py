"""Every operator of a .tflite file, alone: the reference gives the bytes of LiteRT's reference kernels.

Dense layers are the exception: LiteRT 2.3 rounds them in float64, which differs by one step at times.
"""

import numpy as np
import pytest

from tilewright.compiler import reference
from tilewright.compiler.tflite import import_tflite

SAME, VALID = 0, 1
NONE, RELU, RELU_N1_TO_1, RELU6, TANH = 0, 1, 2, 3, 4


def both(m, litert_outputs, runs=3):
    """(ours, LiteRT's) outputs of the saved model for random inputs, all runs stacked."""
    path = m.save()
    graph = import_tflite(path)
    ours, theirs = [], []
    for _ in range(runs):
        inputs = []
        for t in graph.inputs:
            low = 0 if t.dtype == "uint8" else -128
            x = m.rng.integers(low, low + 256, t.shape).astype("int8" if low else "uint8")
            inputs.append(m.rng.normal(0, 4, t.shape).astype(np.float32) if t.dtype == "float32" else x)
        values, _ = reference.run(graph, dict(zip((t.name for t in graph.inputs), inputs)))
        ours.append([values[t.name] for t in graph.outputs])
        theirs.append(litert_outputs(path, *inputs))
    return [[np.stack(column) for column in zip(*side)] for side in (ours, theirs)]


def assert_equal(m, litert_outputs):
    for mine, expected in zip(*both(m, litert_outputs)):
        assert (mine.dtype, mine.shape) == (expected.dtype, expected.shape)
        assert len(np.unique(mine)) > 1
        assert np.array_equal(mine, expected)


def image_sizes(n, k, s, d, padding):
    reach = (k - 1) * d + 1
    return -(-n // s) if padding == SAME else -(-(n - reach + 1) // s)


# input (h, w, c), kernel, strides, dilations, groups or channel multiplier, padding, activation
CONVOLUTIONS = [
    ((7, 6, 3), (3, 3), (1, 1), (1, 1), 1, SAME, NONE),
    ((9, 8, 4), (3, 2), (2, 1), (1, 1), 2, SAME, RELU_N1_TO_1),
    ((11, 10, 2), (3, 3), (1, 2), (2, 3), 1, SAME, RELU6),
    ((9, 7, 3), (4, 3), (2, 3), (1, 1), 1, VALID, RELU),
    ((5, 4, 8), (1, 1), (2, 2), (1, 1), 4, VALID, NONE),
]


def conv_options(strides, dilations, padding, activation):
    return {
        "padding": padding,
        "strideH": strides[0],
        "strideW": strides[1],
        "dilationHFactor": dilations[0],
        "dilationWFactor": dilations[1],
        "fusedActivationFunction": activation,
    }


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
@pytest.mark.parametrize("per_channel", [True, False])
def test_convolution(tflite, litert_outputs, case, per_channel):
    (h, w, c), kernel, strides, dilations, groups, padding, activation = case
    m = tflite()
    weights = m.weights((6 if groups < 4 else 8, *kernel, c // groups), per_channel=per_channel)
    size = [image_sizes(n, k, s, d, padding) for n, k, s, d in zip((h, w), kernel, strides, dilations)]
    shape = (1, *size, 6 if groups < 4 else 8)
    x = m.input((1, h, w, c))
    m.output(m.op("CONV_2D", [x, *weights], shape, **conv_options(strides, dilations, padding, activation)))
    assert_equal(m, litert_outputs)


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_depthwise_convolution(tflite, litert_outputs, case):
    (h, w, c), kernel, strides, dilations, multiplier, padding, activation = case
    m = tflite()
    weights = m.weights((1, *kernel, c * multiplier), axis=3)
    size = [image_sizes(n, k, s, d, padding) for n, k, s, d in zip((h, w), kernel, strides, dilations)]
    options = conv_options(strides, dilations, padding, activation) | {"depthMultiplier": multiplier}
    m.output(m.op("DEPTHWISE_CONV_2D", [m.input((1, h, w, c)), *weights], (1, *size, c * multiplier), **options))
    assert_equal(m, litert_outputs)


@pytest.mark.parametrize(
    "size, grown, kernel, strides, padding",
    [
        ((4, 3), (8, 6), (3, 3), (2, 2), SAME),
        ((4, 3), (8, 6), (5, 4), (2, 2), SAME),
        ((4, 3), (9, 7), (3, 3), (2, 2), VALID),
        ((3, 4), (3, 8), (2, 2), (1, 2), SAME),
        ((3, 3), (6, 9), (1, 2), (2, 3), SAME),  # rows that only the bias reaches
    ],
)
def test_transposed_convolution(tflite, litert_outputs, size, grown, kernel, strides, padding):
    m = tflite()
    weights, bias = m.weights((5, *kernel, 3))
    shape = (1, *grown, 5)
    x = m.input((1, *size, 3))
    inputs = [m.const(np.array(shape, np.int32)), weights, x, bias]
    m.output(m.op("TRANSPOSE_CONV", inputs, shape, padding=padding, strideH=strides[0], strideW=strides[1]))
    assert_equal(m, litert_outputs)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("per_channel", [False, True])
def test_dense_layer(tflite, litert_outputs, keep, per_channel):
    m = tflite()
    x = m.input((1, 2, 3, 8) if keep else (2, 24))
    weights = m.weights((10, 8 if keep else 24), per_channel=per_channel)
    shape = (1, 2, 3, 10) if keep else (2, 10)
    m.output(m.op("FULLY_CONNECTED", [x, *weights], shape, fusedActivationFunction=RELU, keepNumDims=keep))
    (mine,), (expected,) = both(m, litert_outputs)
    difference = np.abs(mine.astype(int) - expected)
    assert difference.max() <= 1 and (difference > 0).mean() < 0.05
    assert len(np.unique(mine)) > 4


def test_a_dense_layer_flattens_an_image_in_the_order_of_the_file(tflite, litert_outputs):
    m = tflite()
    weights = m.weights((7, 24), per_channel=True)
    m.output(m.op("FULLY_CONNECTED", [m.input((1, 2, 3, 4)), *weights], (1, 7)))
    assert_equal(m, litert_outputs)


@pytest.mark.parametrize("kind", ["ADD", "SUB", "MUL"])
@pytest.mark.parametrize(
    "shapes, constant",
    [
        (((1, 3, 4, 5), (1, 3, 4, 5)), False),
        (((1, 3, 4, 5), (5,)), True),
        (((1, 3, 4, 5), (1, 1, 1, 5)), True),
        (((1, 3, 4, 5), (4, 5)), False),
        (((2, 7), (2, 7)), False),
        (((2, 7), (1,)), False),
    ],
)
def test_sums_differences_and_products(tflite, litert_outputs, kind, shapes, constant):
    for scales in ((0.05, 0.031), (0.02, 0.07)):
        m = tflite()
        x = m.input(shapes[0], scales[0], 11)
        other = m.rng.integers(-128, 128, shapes[1]).astype(np.int8)
        y = m.const(other, scales[1], -20) if constant else m.input(shapes[1], scales[1], -20)
        m.output(m.op(kind, [x, y], shapes[0], 0.06, -7, fusedActivationFunction=RELU6 if constant else NONE))
        assert_equal(m, litert_outputs)


@pytest.mark.parametrize("kind", ["MAX_POOL_2D", "AVERAGE_POOL_2D"])
@pytest.mark.parametrize("case", CONVOLUTIONS[:4], ids=str)
def test_pooling(tflite, litert_outputs, kind, case):
    (h, w, c), kernel, strides, _, _, padding, activation = case
    m = tflite()
    size = [image_sizes(n, k, s, 1, padding) for n, k, s in zip((h, w), kernel, strides)]
    options = {"padding": padding, "strideH": strides[0], "strideW": strides[1], "fusedActivationFunction": activation}
    x = m.input((1, h, w, c))
    y = m.op(kind, [x], (1, *size, c), 0.05, -3, filterHeight=kernel[0], filterWidth=kernel[1], **options)
    m.output(y)
    assert_equal(m, litert_outputs)


@pytest.mark.parametrize(
    "shape, axes, keep",
    [
        ((1, 5, 7, 4), (1, 2), True),
        ((1, 5, 7, 4), (1, 2), False),
        ((1, 5, 7, 4), (3,), True),
        ((1, 5, 7, 4), (1,), False),
        ((1, 5, 7, 4), (-1,), False),
        ((2, 9), (1,), True),
        ((2, 3, 4), (0, 2), False),
    ],
)
@pytest.mark.parametrize("rescaled", [True, False])
def test_means(tflite, litert_outputs, shape, axes, keep, rescaled):
    m = tflite()
    positive = {a % len(shape) for a in axes}
    result = [1 if k in positive else n for k, n in enumerate(shape) if keep or k not in positive]
    scale = (0.013, 6) if rescaled else (0.05, -3)
    x = m.input(shape)
    m.output(m.op("MEAN", [x, m.const(np.array(axes, np.int32))], result, *scale, keepDims=keep))
    assert_equal(m, litert_outputs)


@pytest.mark.parametrize("axis", [1, 2, -1])
def test_concatenation(tflite, litert_outputs, axis):
    m = tflite()
    shapes = [[1, 3, 4, 5], [1, 3, 4, 5]]
    shapes[1][axis] = 2
    total = list(shapes[0])
    total[axis] += 2
    x, y = (m.input(shape, 0.08, 4) for shape in shapes)
    k = m.const(m.rng.integers(-128, 128, shapes[1]).astype(np.int8), 0.08, 4)
    total[axis] += 2
    m.output(m.op("CONCATENATION", [x, y, k], total, axis=axis))
    assert_equal(m, litert_outputs)


def test_movement(tflite, litert_outputs):
    """Padding, transposition, slices and shapes, of images and of others."""
    m = tflite()
    q = {"scale": 0.05, "zero_point": -3}
    x = m.input((1, 4, 6, 5))
    pads = m.const(np.array([[0, 0], [1, 2], [0, 3], [2, 0]], np.int32))
    y = m.op("PAD", [x, pads], (1, 7, 9, 7), **q)
    y = m.op("TRANSPOSE", [y, m.const(np.array([0, 2, 3, 1], np.int32))], (1, 9, 7, 7), **q)
    cut = [m.const(np.array(v, np.int32)) for v in ([0, 8, 1, 0], [1, 0, 6, 7], [1, -3, 2, 1])]
    y = m.op("STRIDED_SLICE", [y, *cut], (1, 3, 3, 7), endMask=8, **q)
    y = m.op(
        "SLICE",
        [y, m.const(np.array([0, 1, 0, 2], np.int32)), m.const(np.array([1, 2, 3, 4], np.int32))],
        (1, 2, 3, 4),
        **q,
    )
    m.output(y)
    y = m.op("RESHAPE", [y, m.const(np.array([6, 4], np.int32))], (6, 4), **q)
    m.output(m.op("TRANSPOSE", [y, m.const(np.array([1, 0], np.int32))], (4, 6), **q))
    y = m.op("RESHAPE", [y, m.const(np.array([1, 4, 3, 2], np.int32))], (1, 4, 3, 2), **q)
    value = m.const(np.array([77], np.int8), 0.05, -3)
    m.output(
        m.op("PADV2", [y, m.const(np.array([[0, 0], [0, 1], [2, 0], [0, 0]], np.int32)), value], (1, 5, 5, 2), **q)
    )
    cut = [m.const(np.array(v, np.int32)) for v in ([0, -2, 0, 1], [1, 0, 3, 2], [1, 1, 2, 1])]
    m.output(m.op("STRIDED_SLICE", [y, *cut], (1, 2), shrinkAxisMask=0b1010, **q))
    assert_equal(m, litert_outputs)


@pytest.mark.parametrize("scale, beta", [(0.05, 1.0), (0.7, 1.0), (0.1, 2.5)])
@pytest.mark.parametrize("shape", [(4, 12), (1, 3, 3, 7)])
def test_softmax(tflite, litert_outputs, scale, beta, shape):
    m = tflite()
    m.output(m.op("SOFTMAX", [m.input(shape, scale)], shape, 1 / 256, -128, beta=beta))
    assert_equal(m, litert_outputs)


@pytest.mark.parametrize(
    "kind, scale, zero_point, options",
    [
        ("LOGISTIC", 1 / 256, -128, {}),
        ("TANH", 1 / 128, 0, {}),
        ("LEAKY_RELU", 0.07, 5, {"alpha": 0.3}),
        ("RELU", 0.03, -100, {}),
        ("RELU6", 0.03, -100, {}),
        ("RELU_N1_TO_1", 0.03, 10, {}),
        ("QUANTIZE", 0.031, 17, {}),
        ("QUANTIZE", 0.11, -9, {}),
    ],
)
@pytest.mark.parametrize("x_scale", [0.05, 0.03])
def test_functions_of_one_value(tflite, litert_outputs, kind, scale, zero_point, options, x_scale):
    m = tflite()
    m.output(m.op(kind, [m.input((2, 200), x_scale, 3)], (2, 200), scale, zero_point, **options))
    assert_equal(m, litert_outputs)


def test_float_ends(tflite, litert_outputs):
    m = tflite()
    x = m.input((1, 4, 3, 50), None, dtype="FLOAT32")
    y = m.op("QUANTIZE", [x], (1, 4, 3, 50), 0.25, 7)
    z = m.tensor((1, 4, 3, 50), dtype="FLOAT32")
    m.output(m.node("DEQUANTIZE", [y], [z]))
    m.output(y)
    assert_equal(m, litert_outputs)


def test_a_generator_of_images(tflite, litert_outputs):
    """As DCGAN's: noise, transposed convolutions with ReLUs between them, tanh."""
    m = tflite()
    y, size, channels = m.input((1, 1, 1, 32), 0.05, 0), 1, 32
    for grown, filters, strides, padding in ((4, 24, 1, VALID), (8, 12, 2, SAME), (16, 3, 2, SAME)):
        weights, bias = m.weights((filters, 4, 4, channels))
        shape = (1, grown, grown, filters)
        inputs = [m.const(np.array(shape, np.int32)), weights, y, bias]
        y = m.op("TRANSPOSE_CONV", inputs, shape, 0.11, 0, padding=padding, strideH=strides, strideW=strides)
        if filters > 3:
            y = m.op("RELU", [y], shape, 0.05, -128)
        size, channels = grown, filters
    m.output(m.op("TANH", [y], (1, size, size, 3), 1 / 128, 0))
    assert_equal(m, litert_outputs)


@pytest.mark.parametrize("scale, zero_point", [(0.05, 3), (0.031, 3), (0.05, 4)])
def test_uint8_ends(tflite, litert_outputs, scale, zero_point):
    m = tflite()
    x = m.input((1, 4, 3, 50), 0.05, 131, dtype="UINT8")
    y = m.op("QUANTIZE", [x], (1, 4, 3, 50), scale, zero_point)
    y = m.op("RELU", [y], (1, 4, 3, 50), scale, zero_point)
    m.output(m.node("QUANTIZE", [y], [m.tensor((1, 4, 3, 50), 0.05, 131, dtype="UINT8")]))
    m.output(y)
    assert_equal(m, litert_outputs)


@pytest.mark.parametrize("axis", [1, 3, -2])
def test_splits(tflite, litert_outputs, axis):
    m = tflite()
    shape = [1, 4, 6, 8]
    x = m.input(shape)
    shape[axis] //= 2
    parts = [m.tensor(shape, 0.05, -3) for _ in range(2)]
    m.node("SPLIT", [m.const(np.array(axis, np.int32)), x], parts, numSplits=2)
    for part in parts:
        m.output(m.op("RELU", [part], shape, 0.05, -3))
    assert_equal(m, litert_outputs)


@pytest.mark.parametrize("shape, axis", [((1, 4, 6), 3), ((1, 4, 6), 1), ((5, 2), 0)])
def test_stacks(tflite, litert_outputs, shape, axis):
    m = tflite()
    whole = (*shape[:axis], 2, *shape[axis:])
    y = m.op("PACK", [m.input(shape), m.input(shape)], whole, 0.05, -3, axis=axis, valuesCount=2)
    y = m.op("RELU", [y], whole, 0.05, -100)
    parts = [m.tensor(shape, 0.05, -100) for _ in range(2)]
    m.node("UNPACK", [y], parts, num=2, axis=axis)
    for part in parts:
        m.output(part)
    assert_equal(m, litert_outputs)
