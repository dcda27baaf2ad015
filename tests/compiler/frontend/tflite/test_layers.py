"""Layers of .tflite files, one at a time: the reference gives the bytes of LiteRT's reference kernels.

Dense layers are the exception: LiteRT 2.3 rounds them in float64, which differs by one step at times.
"""

import numpy as np
import pytest

from tilewright.compiler.frontend.tflite import import_tflite
from tilewright.hw.errors import UnsupportedError

SAME, VALID = 0, 1
NONE, RELU, RELU_N1_TO_1, RELU6 = 0, 1, 2, 3


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
def test_convolution(m, equals_litert, case, per_channel):
    (h, w, c), kernel, strides, dilations, groups, padding, activation = case
    weights = m.weights((6 if groups < 4 else 8, *kernel, c // groups), per_channel=per_channel)
    size = [image_sizes(n, k, s, d, padding) for n, k, s, d in zip((h, w), kernel, strides, dilations)]
    shape = (1, *size, 6 if groups < 4 else 8)
    x = m.input((1, h, w, c))
    equals_litert(m, m.op("CONV_2D", [x, *weights], shape, **conv_options(strides, dilations, padding, activation)))


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_depthwise_convolution(m, equals_litert, case):
    (h, w, c), kernel, strides, dilations, multiplier, padding, activation = case
    weights = m.weights((1, *kernel, c * multiplier), axis=3)
    size = [image_sizes(n, k, s, d, padding) for n, k, s, d in zip((h, w), kernel, strides, dilations)]
    options = conv_options(strides, dilations, padding, activation) | {"depthMultiplier": multiplier}
    m.output(m.op("DEPTHWISE_CONV_2D", [m.input((1, h, w, c)), *weights], (1, *size, c * multiplier), **options))
    equals_litert(m)


@pytest.mark.parametrize(
    "size, grown, kernel, strides, padding",
    [
        ((4, 3), (8, 6), (3, 3), (2, 2), SAME),
        ((4, 3), (8, 6), (5, 4), (2, 2), SAME),
        ((4, 3), (8, 6), (5, 2), (2, 2), SAME),  # cut off by other amounts above than at the left
        ((4, 3), (9, 7), (3, 3), (2, 2), VALID),
        ((3, 4), (3, 8), (2, 2), (1, 2), SAME),
        ((3, 3), (6, 9), (1, 2), (2, 3), SAME),  # rows that only the bias reaches
    ],
)
def test_transposed_convolution(m, equals_litert, size, grown, kernel, strides, padding):
    weights, bias = m.weights((5, *kernel, 3))
    shape = (1, *grown, 5)
    x = m.input((1, *size, 3))
    inputs = [m.const(np.array(shape, np.int32)), weights, x, bias]
    equals_litert(m, m.op("TRANSPOSE_CONV", inputs, shape, padding=padding, strideH=strides[0], strideW=strides[1]))


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("per_channel", [False, True])
def test_dense_layer(m, against_litert, keep, per_channel):
    x = m.input((1, 2, 3, 8) if keep else (2, 24))
    weights = m.weights((10, 8 if keep else 24), per_channel=per_channel)
    shape = (1, 2, 3, 10) if keep else (2, 10)
    m.output(m.op("FULLY_CONNECTED", [x, *weights], shape, fusedActivationFunction=RELU, keepNumDims=keep))
    (mine,), (expected,) = against_litert(m)
    difference = np.abs(mine.astype(int) - expected)
    assert difference.max() <= 1 and (difference > 0).mean() < 0.05
    assert len(np.unique(mine)) > 4


def test_a_dense_layer_flattens_an_image_in_the_order_of_the_file(m, equals_litert):
    weights = m.weights((7, 24), per_channel=True)
    equals_litert(m, m.op("FULLY_CONNECTED", [m.input((1, 2, 3, 4)), *weights], (1, 7)))


def test_a_generator_of_images(m, equals_litert):
    """As DCGAN's: noise, transposed convolutions with ReLUs between them, tanh."""
    y, size, channels = m.input((1, 1, 1, 32), 0.05, 0), 1, 32
    for grown, filters, strides, padding in ((4, 24, 1, VALID), (8, 12, 2, SAME), (16, 3, 2, SAME)):
        weights, bias = m.weights((filters, 4, 4, channels))
        shape = (1, grown, grown, filters)
        inputs = [m.const(np.array(shape, np.int32)), weights, y, bias]
        y = m.op("TRANSPOSE_CONV", inputs, shape, 0.11, 0, padding=padding, strideH=strides, strideW=strides)
        if filters > 3:
            y = m.op("RELU", [y], shape, 0.05, -128)
        size, channels = grown, filters
    equals_litert(m, m.op("TANH", [y], (1, size, size, 3), 1 / 128, 0))


def dense(m, *, weight=1, features=4, weight_scale=0.5, bias=None, bias_scale=None, bias_zero=0, y_scale=1.0):
    """A file of one dense layer of two channels whose input has scale 0.05 and zero point 0."""
    x = m.input((1, features), 0.05, 0)
    inputs = [x, m.const(np.full((2, features), weight, np.int8), np.full(2, weight_scale, np.float32))]
    if bias is not None:
        inputs.append(m.const(np.array(bias, np.int32), bias_scale, bias_zero))
    m.output(m.op("FULLY_CONNECTED", inputs, (1, 2), y_scale, 0))
    return m.save()


def refused(path):
    with pytest.raises(UnsupportedError) as caught:
        import_tflite(path)
    return str(caught.value)


UNIT = np.float32(0.05) * np.float32(0.5)


@pytest.mark.parametrize("scale", [None, UNIT, np.full(2, UNIT), UNIT * np.float32(1 + 3e-6)])
def test_biases_in_the_unit_of_the_accumulators(tflite, scale):
    assert list(import_tflite(dense(tflite(), bias=[100_000, -7], bias_scale=scale)).layers[0].bias) == [100_000, -7]


@pytest.mark.parametrize("scale", [0.05, UNIT * 1.001, 1e20, np.nan, np.inf, 0.0, -UNIT])
def test_biases_in_another_unit(tflite, scale):
    text = refused(dense(tflite(), bias=[3, 1000], bias_scale=np.array([UNIT, scale], np.float32)))
    assert f"FULLY_CONNECTED 'fully_connected_0' (output 't3') has bias 't2' of scale {np.float32(scale):g} for" in text
    assert (
        "output channel 1; it must be input scale times weight scale, 0.025, in which the kernels read biases" in text
    )


def test_a_unit_that_changes_no_bias(tflite):
    """Scales of channels without a bias do not matter, nor does an error below half a step."""
    path = dense(tflite(), bias=[0, 100], bias_scale=np.array([7.0, UNIT * 1.001], np.float32))
    assert list(import_tflite(path).layers[0].bias) == [0, 100]


BIG = 2**31 - 1
MOST = BIG - 4 * 127  # the largest bias that leaves room for the products


@pytest.mark.parametrize(
    "layer, text",
    [
        ({"bias": [0, MOST], "bias_scale": UNIT}, ""),
        ({"bias": [0, MOST + 1], "bias_scale": UNIT}, f"to {BIG + 1} for output channel 1 (bias {BIG - 507}), outside"),
        ({"weight": -128, "features": 131071, "y_scale": 1e6}, ""),
        ({"weight": -128, "features": 131072, "y_scale": 1e6}, f"to {BIG + 1} for output channel 0 (bias 0), outside"),
        ({"y_scale": 1e-22}, "scales accumulators by 2.5e+20 for output channel 0 (bias 0) to output scale 1e-22"),
        ({"weight_scale": 3e38, "y_scale": 1e-30}, "scales accumulators by 1.5e+67 for output channel 0"),
        ({"y_scale": 1e-9}, "scales accumulators of up to 512 by 2**24 or more to output scale 1e-09; at most 63"),
        ({"y_scale": 0.0}, "scale 0.0 must be positive and finite"),
        ({"y_scale": -1.0}, "scale -1.0 must be positive and finite"),
        ({"y_scale": np.nan}, "scale nan must be positive and finite"),
        ({"weight_scale": np.inf}, "with a scale that is negative or not finite"),
        ({"bias": [1, 2], "bias_scale": UNIT, "bias_zero": 1}, "has bias 't2' with a zero point other than 0"),
        ({"bias": [1, 2], "bias_scale": np.full(3, UNIT)}, "has bias 't2' with 3 scales; expected one, or 2"),
    ],
)
def test_numbers_beyond_the_accumulators(tflite, layer, text):
    path = dense(tflite(), **layer)
    if text:
        assert text in refused(path)
    else:
        assert import_tflite(path).layers


def test_a_product_of_scales_that_is_infinite(m):
    x = m.input((1, 4), 1e30, 0)
    w = m.const(np.ones((2, 4), np.int8), np.float32(1e30))
    m.output(m.op("FULLY_CONNECTED", [x, w], (1, 2), 1.0, 0))
    assert "scales accumulators by inf for output channel 0 (bias 0)" in refused(m.save())
