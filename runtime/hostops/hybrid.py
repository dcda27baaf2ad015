"""Hybrid layers of TensorFlow Lite: float32 activations, int8 weights; activations are quantised in each run, by rows.

The arithmetic is that of TensorFlow Lite's reference kernels: sums of products of int8, scaled in float32.
"""

from __future__ import annotations

import numpy as np

from ...hw.errors import InputError
from ..schema import Array, Kind
from .arrays import AnyArray, Attrs, Float32, Int8, Ints
from .int16 import round_half_away
from .layers import conv2d_accumulators, convolved
from .row import HostOp, Operand, Operands, need

_F = np.float32
_STEPS, _LARGEST = 255, 127  # of int8: between its ends, and from 0


def _symmetric(x: AnyArray) -> tuple[AnyArray, AnyArray]:
    """(integers from -127 to 127, scale of each row) of the rows of `x`; the scale of zeros is 1."""
    ends = np.abs(x).max(1, keepdims=True)
    used = np.where(ends > 0, ends, _F(_LARGEST))
    steps = np.clip(round_half_away(x * (_F(_LARGEST) / used)), -_LARGEST, _LARGEST)
    return steps.astype(np.int64), (used / _F(_LARGEST))[:, 0]


def _asymmetric(x: AnyArray) -> tuple[AnyArray, AnyArray]:
    """(int8 values less their zero point, scale of each row) of the rows of `x`; the scale of zeros is 1."""
    low: AnyArray = np.minimum(x.min(1, keepdims=True), _F(0))
    high: AnyArray = np.maximum(x.max(1, keepdims=True), _F(0))
    high = np.where(high > low, high, low + _F(_STEPS))
    least, most = low.astype(np.float64), high.astype(np.float64)
    step = (most - least) / _STEPS
    from_low, from_high = -128 - least / step, _LARGEST - most / step
    nearer = 128 + np.abs(least / step) < _LARGEST + np.abs(most / step)
    zero = np.clip(round_half_away(np.where(nearer, from_low, from_high)), -128, _LARGEST)
    scale = (high - low) / _F(_STEPS)
    steps = np.clip(round_half_away(zero.astype(_F) + x * (_F(1) / scale)), -128, _LARGEST)
    return (steps - zero).astype(np.int64), scale[:, 0]


def _expect_finite(x: Float32) -> None:
    if not np.isfinite(x).all():
        raise InputError("the input holds infinity or NaN, and its quantisation has the scale of its largest value")


def hybrid_dense(
    x: Float32, *, weight: Int8, weight_scale: Float32, bias: Float32, asymmetric: bool = False
) -> AnyArray:
    """float32 `bias + sums * (scale * weight_scale)` of rows (N, I), quantised each by itself, and weights (O, I)."""
    _expect_finite(x)
    values, scale = (_asymmetric if asymmetric else _symmetric)(x)
    return bias + (values @ weight.T.astype(np.int64)).astype(_F) * (scale[:, None] * weight_scale)


def hybrid_conv2d(
    x: Float32,
    *,
    weight: Int8,
    weight_scale: Float32,
    bias: Float32,
    strides: Ints,
    pads: Ints,
    dilations: Ints,
    groups: int,
) -> AnyArray:
    """float32 convolution of images NCHW, quantised each by itself, by weights (O, C / groups, KH, KW).

    `sums * weight_scale * scale + bias`; of a depthwise convolution, a group per channel, the scales are multiplied
    first.
    """
    _expect_finite(x)
    values, scale = _asymmetric(x.reshape(len(x), -1))
    image, none = values.reshape(x.shape).astype(np.int16), np.zeros(len(weight), np.int32)
    sums = conv2d_accumulators(
        image,
        weight=weight,
        bias=none,
        x_zero_point=0,
        strides=strides,
        pads=pads,
        dilations=dilations,
        groups=groups,
    ).astype(_F)
    channel, row = weight_scale[:, None, None], scale[:, None, None, None]
    scaled = sums * (channel * row) if weight.shape[1] == 1 < groups else sums * channel * row
    return scaled + bias[:, None, None]


def _need_scales(a: Attrs) -> None:
    weight = a["weight"].shape
    for name in ("weight_scale", "bias"):
        need(a[name].shape == weight[:1], f"{name} {a[name].shape}: weight {weight} needs one per channel")


def _dense(inputs: Operands, a: Attrs) -> Operand:
    (n, features), weight = inputs[0].shape, a["weight"].shape
    _need_scales(a)
    need(weight[1] == features, f"weight {weight} needs {weight[1]} features, not {features}")
    return Operand((n, weight[0]), "float32")


def _convolved(inputs: Operands, a: Attrs) -> Operand:
    _need_scales(a)
    return convolved(inputs, a)._replace(dtype="float32")


def _constants(rank: int) -> dict[str, Kind]:
    real = Array(1, ("float32",))
    return {"weight": Array(rank, ("int8",)), "weight_scale": real, "bias": real}


ROWS = (
    HostOp(hybrid_dense, _dense, _constants(2), ("float32",), (2,)),
    HostOp(hybrid_conv2d, _convolved, _constants(4), ("float32",), (4,)),
)
