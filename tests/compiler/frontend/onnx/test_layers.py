"""compiler/frontend/onnx/layers.py: integers that would leave int32, and scales that cannot be."""

import numpy as np
import pytest

from tilewright.compiler.frontend.onnx import import_onnx
from tilewright.compiler.graph import FloatMatMul, reference
from tilewright.hw.errors import UnsupportedError

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
