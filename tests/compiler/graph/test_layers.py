"""Layers with weights and graphs: what follows from their parameters, and which cannot be."""

import numpy as np
import pytest

from tilewright.compiler.graph import Add, Graph, Names, QConv2d, QConvTranspose2d, QDense, Reshape, Tensor
from tilewright.hw.errors import InputError
from tilewright.hw.rounding import quantize_multiplier

PER_CHANNEL = {"weight_scale": np.ones(6, np.float32), "bias": np.zeros(6, np.int32)}


def dense(x=None, y=None, **changes):
    parameters = {
        "weight": np.ones((3, 4), np.int8),
        "weight_scale": np.full(3, 0.5, np.float32),
        "bias": np.zeros(3, np.int32),
    } | changes
    return QDense("layer", (x or Tensor("x", (1, 4), scale=0.25),), y or Tensor("y", (1, 3)), **parameters)


def conv(y_shape=(2, 5, 4, 3), **changes):
    parameters = {
        "weight": np.ones((5, 3, 3, 2), np.int8),
        "weight_scale": np.ones(5, np.float32),
        "bias": np.zeros(5, np.int32),
        "strides": (2, 2),
        "pads": (1, 0, 1, 1),
        "dilations": (1, 2),
    } | changes
    return QConv2d("conv", (Tensor("x", (2, 3, 8, 6)),), Tensor("y", y_shape), **parameters)


def transposed(y_shape=(1, 2, 9, 6), pads=(0, 1, 0, 1), strides=(2, 2)):
    weight, ones = np.ones((2, 3, 3, 4), np.int8), np.ones(2, np.float32)
    x, y = Tensor("x", (1, 3, 4, 3)), Tensor("y", y_shape)
    return QConvTranspose2d("up", (x,), y, weight, ones, np.zeros(2, np.int32), strides=strides, pads=pads)


def test_macs():
    assert dense().macs == 12
    assert conv().macs == 2 * 5 * 4 * 3 * 3 * 3 * 2
    assert (
        conv(
            weight=np.ones((6, 1, 3, 2), np.int8),
            groups=3,
            weight_scale=np.ones(6, np.float32),
            bias=np.zeros(6, np.int32),
            y_shape=(2, 6, 4, 3),
        ).macs
        == 2 * 6 * 4 * 3 * 3 * 2
    )
    assert transposed().macs == 4 * 3 * 3 * 2 * 3 * 4


def test_depthwise_is_one_group_per_channel():
    def grouped(channels, groups):
        weight, x = np.ones((channels, channels // groups, 1, 1), np.int8), Tensor("x", (1, channels, 2, 2))
        ones, y = np.ones(channels, np.float32), Tensor("y", (1, channels, 2, 2))
        return QConv2d("g", (x,), y, weight, ones, np.zeros(channels, np.int32), groups=groups)

    assert grouped(4, 4).depthwise
    assert not grouped(4, 2).depthwise and not grouped(1, 1).depthwise


def test_the_last_channels_may_be_ternary():
    weight = np.array([[5] * 4, [0, 0, 1, -1], [1, 1, -1, 0]], np.int8)
    assert [dense(weight=weight, ternary=k).ternary for k in range(3)] == [0, 1, 2]
    assert conv(ternary=5).ternary == 5 and conv().ternary == 0


def test_the_input_zero_point_folds_into_the_bias():
    weight = np.array([[1, -2, 3, 4], [0, 0, 0, 0], [-128, -128, -128, -128]], np.int8)
    bias = np.array([10, -7, 2**31 - 1], np.int32)
    op = dense(Tensor("x", (1, 4), zero_point=-5), weight=weight, bias=bias)
    assert op.corrected_bias.dtype == np.int32
    assert list(op.corrected_bias) == [10 + 5 * 6, -7, 2**31 - 1 - 5 * 512]


def test_multipliers_are_those_of_the_product_of_scales():
    op = dense(y=Tensor("y", (1, 3), scale=0.7), weight_scale=np.array([0.1, 0.2, 0], np.float32))
    expected = [quantize_multiplier(0.25 * float(s) / 0.7) for s in op.weight_scale]
    assert [tuple(map(int, pair)) for pair in zip(*op.multipliers)] == expected


def test_a_product_of_scales_in_float32():
    x, scale = Tensor("x", (1, 4), scale=float(np.float32(0.1))), np.full(3, 0.3, np.float32)
    exact, rounded = (dense(x, weight_scale=scale, float32_scale=flag).scales[0] for flag in (False, True))
    assert rounded == np.float64(np.float32(np.float64(np.float32(0.1)) * np.float64(np.float32(0.3)))) != exact


@pytest.mark.parametrize(
    "text, make",
    [
        ("QDense 'layer': the weights' dtype is float32", lambda: dense(weight=np.ones((3, 4), np.float32))),
        ("QDense 'layer': whether the weights are -255..255", lambda: dense(weight=np.full((3, 4), 256, np.int16))),
        ("QDense 'layer': whether the contract is known", lambda: dense(contract="triple")),
        ("QDense 'layer': the biases' shape is (4,), expected (3,)", lambda: dense(bias=np.zeros(4, np.int32))),
        ("QDense 'layer': the scales' shape is (), expected (3,)", lambda: dense(weight_scale=np.float32(1))),
        ("QDense 'layer': the number of input features is 4, expected 5", lambda: dense(Tensor("x", (1, 5)))),
        ("QDense 'layer': the output's shape is (1, 2)", lambda: dense(y=Tensor("y", (1, 2)))),
        ("QDense 'layer': clamp 5..-5 is not within int8", lambda: dense(low=5, high=-5)),
        ("QDense 'layer': the number of ternary channels is 4, expected 3", lambda: dense(ternary=4)),
        ("QDense 'layer': the number of ternary channels is -1, expected 0", lambda: dense(ternary=-1)),
        (
            "QDense 'layer': what begins the list of ternary weights beyond -1, 0 and 1 is [-9, 2], expected []",
            lambda: dense(weight=np.array([[5] * 4, [0, 2, 1, -1], [2, 1, -9, 0]], np.int8), ternary=2),
        ),
        (
            "QDense 'layer': the dtype of the weights with ternary channels is int16, expected int8",
            lambda: dense(weight=np.ones((3, 4), np.int16), ternary=1),
        ),
        (
            "QConv2d 'conv': the number of groups with ternary channels is 3, expected 1",
            lambda: conv((2, 6, 4, 3), weight=np.ones((6, 1, 3, 2), np.int8), groups=3, ternary=1, **PER_CHANNEL),
        ),
        ("QConv2d 'conv': the output's shape is (2, 5, 4, 4), expected (2, 5, 4, 3)", lambda: conv((2, 5, 4, 4))),
        ("QConv2d 'conv': the number of input channels", lambda: conv(weight=np.ones((5, 2, 3, 2), np.int8))),
        (
            "QConv2d 'conv': the number of output channels modulo the groups is 2",
            lambda: conv(weight=np.ones((5, 1, 3, 2), np.int8), groups=3),
        ),
        ("QConvTranspose2d 'up': the output's shape is (1, 2, 9, 7)", lambda: transposed((1, 2, 9, 7))),
        ("QConvTranspose2d 'up': the smallest padding", lambda: transposed((1, 2, 10, 6), (-1, 1, 0, 1))),
    ],
)
def test_impossible_layers(text, make):
    with pytest.raises(InputError) as caught:
        make()
    assert text in str(caught.value)


def test_macs_and_layers():
    op = dense()
    graph = Graph("g", (op.x,), (op.output,), (op,))
    assert graph.macs == 12 and graph.layers == (op,)


def test_constants_need_no_producer_and_count_once():
    x, k = Tensor("x", (1, 4)), Tensor("k", (4,), data=np.ones(4, np.int8))
    first = Add("a", (x, k), Tensor("y", (1, 4)))
    second = Add("b", (first.output, k), Tensor("z", (1, 4)))
    assert Graph("g", (x,), (second.output,), (first, second)).constants == (k,)


def test_names_are_given_once():
    names = Names(["a", "a'"])
    assert [names.unused(name) for name in "abab"] == ["a'2", "b", "a'3", "b'"]


def test_readers_are_there_once_per_operand():
    x, y = Tensor("x", (1, 4)), Tensor("y", (1, 4))
    twice = Add("a", (x, x), y)
    once = Add("b", (x, y), Tensor("z", (1, 4)))
    graph = Graph("g", (x,), (once.output,), (twice, once))
    assert graph.readers == {"x": [twice, twice, once], "y": [once]}


def test_impossible_graphs():
    op = dense()
    with pytest.raises(InputError, match="'layer' reads 'x' before an operator produces it"):
        Graph("g", (Tensor("other", (1, 4)),), (op.output,), (op,))
    with pytest.raises(InputError, match="no operator produces output 'z'"):
        Graph("g", (op.x,), (Tensor("z", (1, 3)),), (op,))
    with pytest.raises(InputError, match="two tensors are named 'y'"):
        Graph("g", (op.x,), (op.output,), (op, op))
    with pytest.raises(InputError, match="two operators have the same name"):
        Graph("g", (op.x,), (op.output,), (op, Reshape("layer", (op.output,), Tensor("z", (3, 1)))))
