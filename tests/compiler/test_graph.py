"""Graphs that cannot be are refused, with the operator's name."""

import numpy as np
import pytest

from tilewright.compiler.graph import AveragePool, Graph, MaxPool, QConv2d, QDense, Quantize, Reshape, Tensor
from tilewright.hw.errors import InputError
from tilewright.hw.rounding import quantize_multiplier


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


def pool(cls, y_shape=(1, 2, 3, 3), **changes):
    y = Tensor("y", y_shape, **{key: changes.pop(key) for key in ("scale",) if key in changes})
    return cls("pool", (Tensor("x", (1, 2, 6, 6)),), y, **({"kernel": (2, 2), "strides": (2, 2)} | changes))


def test_macs():
    assert dense().macs == 12
    assert conv().macs == 2 * 5 * 4 * 3 * 3 * 3 * 2
    assert pool(MaxPool).macs == 0
    assert Graph("g", (dense().x,), (dense().output,), (dense(),)).macs == 12


def test_the_input_zero_point_folds_into_the_bias():
    weight = np.array([[1, -2, 3, 4], [0, 0, 0, 0], [-128, -128, -128, -128]], np.int8)
    bias = np.array([10, -7, 2**31 - 1], np.int32)
    op = dense(Tensor("x", (1, 4), zero_point=-5), weight=weight, bias=bias)
    assert op.folded_bias.dtype == np.int32
    assert list(op.folded_bias) == [10 + 5 * 6, -7, 2**31 - 1 - 5 * 512]


def test_multipliers_are_those_of_the_product_of_scales():
    op = dense(y=Tensor("y", (1, 3), scale=0.7), weight_scale=np.array([0.1, 0.2, 0], np.float32))
    expected = [quantize_multiplier(0.25 * float(s) / 0.7) for s in op.weight_scale]
    assert [tuple(map(int, pair)) for pair in zip(*op.multipliers)] == expected


@pytest.mark.parametrize(
    "text, make",
    [
        ("tensor 't': dtype 'int4' must be int8 or float32", lambda: Tensor("t", (1,), "int4")),
        ("tensor 't': shape (1, 0): every dimension must be at least 1", lambda: Tensor("t", (1, 0))),
        ("tensor 't': scale 0.0 must be positive", lambda: Tensor("t", (1,), scale=0.0)),
        ("tensor 't': scale inf must be positive", lambda: Tensor("t", (1,), scale=float("inf"))),
        ("tensor 't': zero point 128 is outside", lambda: Tensor("t", (1,), zero_point=128)),
        ("QDense 'layer': the weights' dtype is float32", lambda: dense(weight=np.ones((3, 4), np.float32))),
        ("QDense 'layer': the biases' shape is (4,), expected (3,)", lambda: dense(bias=np.zeros(4, np.int32))),
        ("QDense 'layer': the scales' shape is (), expected (3,)", lambda: dense(weight_scale=np.float32(1))),
        ("QDense 'layer': the number of input features is 4, expected 5", lambda: dense(Tensor("x", (1, 5)))),
        ("QDense 'layer': the output's shape is (1, 2)", lambda: dense(y=Tensor("y", (1, 2)))),
        ("QDense 'layer': clamp 5..-5 is not within int8", lambda: dense(low=5, high=-5)),
        ("QConv2d 'conv': the output's shape is (2, 5, 4, 4), expected (2, 5, 4, 3)", lambda: conv((2, 5, 4, 4))),
        ("QConv2d 'conv': the number of input channels", lambda: conv(weight=np.ones((5, 2, 3, 2), np.int8))),
        ("MaxPool 'pool': the output's shape", lambda: pool(MaxPool, (1, 2, 6, 6))),
        ("MaxPool 'pool': the output's quantisation", lambda: pool(MaxPool, scale=2.0)),
        ("AveragePool 'pool': the padding", lambda: pool(AveragePool, (1, 2, 4, 4), pads=(1, 1, 1, 1))),
        ("Reshape 'r': the number of elements", lambda: Reshape("r", (Tensor("x", (1, 4)),), Tensor("y", (1, 5)))),
        ("Quantize 'q': the conversion", lambda: Quantize("q", (Tensor("x", (1, 4)),), Tensor("y", (1, 4)))),
    ],
)
def test_impossible_parts(text, make):
    with pytest.raises(InputError) as caught:
        make()
    assert text in str(caught.value)


def test_impossible_graphs():
    op = dense()
    with pytest.raises(InputError, match="'layer' needs 'x' before anything produces it"):
        Graph("g", (Tensor("other", (1, 4)),), (op.output,), (op,))
    with pytest.raises(InputError, match="nothing produces output 'z'"):
        Graph("g", (op.x,), (Tensor("z", (1, 3)),), (op,))
    with pytest.raises(InputError, match="two tensors are called 'y'"):
        Graph("g", (op.x,), (op.output,), (op, op))
    with pytest.raises(InputError, match="two operators have the same name"):
        Graph("g", (op.x,), (op.output,), (op, Reshape("layer", (op.output,), Tensor("z", (3, 1)))))
