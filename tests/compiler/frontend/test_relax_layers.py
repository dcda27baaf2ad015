"""compiler/frontend/relax_layers.py: integers that would leave int32, and scales that cannot be."""

import numpy as np
import pytest

from tilewright.compiler import reference
from tilewright.compiler.frontend.onnx import import_onnx
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
    (op,) = import_onnx(qdq().dense(bias=np.array([bias, 0, 0], np.float32), y_scale=10)).layers
    assert op.bias[0] == np.rint(np.float64(bias) / scale) > 2**30


@pytest.mark.parametrize("weight, fits", [(1, True), (2, False)])
def test_a_bias_that_the_zero_point_pushes_out_of_int32(qdq, weight, fits, refusal):
    path = qdq().dense(bias=np.array([0, 0, BIG - 400], np.int32), bias_scale=0.025, zero_point=-100, weight=weight)
    if fits:
        assert import_onnx(path).layers[0].corrected_bias[2] == BIG
    else:
        text = refusal(path)
        assert (
            f"Gemm 'layer' has bias {BIG - 400} for output channel 2: {BIG + 400} with the input's zero point" in text
        )
        assert f"-100 included, outside {-BIG - 1}..{BIG}" in text


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


def test_scales_along_the_wrong_axis_are_named(qdq, refusal):
    m = qdq()
    x = m.quantise(m.input("x", [1, 4]))
    w, _ = m.weights(4, 4, axis=1)
    m.output(m.quantise(m.node("Gemm", x, w, name="layer", transB=1)))
    assert "Gemm 'layer' has weights with one scale per index of axis 1, not per output channel" in refusal(m.save())
