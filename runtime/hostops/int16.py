"""Activations of 16 bits in the arithmetic of TensorFlow Lite's reference kernels: requantisation, softmax, tables."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeVar

import numpy as np

from ...hw import rounding
from ..schema import Array
from .arrays import AnyArray, Attrs, Float32, Int16, Int64
from .layers import need_per_channel
from .row import CLAMP, KINDS, PER_CHANNEL, HostOp, Operand, Operands, along_axis, limited

Real = TypeVar("Real", np.float32, np.float64)
LOW, HIGH = np.iinfo(np.int16).min, np.iinfo(np.int16).max
STEPS = 512  # of a table with interpolation
_STEP_BITS = 7  # bits of an int16 value within a step
SHORT_BITS = 15  # of the multiplier of 64-bit sums
_RANGE = 10.0  # below -_RANGE the exponential of a softmax is 0


def short_rescale(acc: AnyArray, multiplier: AnyArray | int, exponent: AnyArray | int) -> Int64:
    """int64 `acc` times a scale, whose multiplier is rounded to 15 bits: ties go up. Sums are within 48 bits."""
    reduced = np.minimum((np.asarray(multiplier, np.int64) + (1 << 15)) >> 16, (1 << SHORT_BITS) - 1)
    right = SHORT_BITS - np.asarray(exponent, np.int64)
    return (acc.astype(np.int64) * reduced + np.left_shift(np.int64(1), right - 1)) >> right


def round_half_away(x: AnyArray) -> AnyArray:
    """Real `x` to the nearest whole number of its type, ties away from zero, without an error of a sum `x + 0.5`."""
    whole = np.trunc(x)
    return whole + np.where(np.abs(x - whole) >= 0.5, np.copysign(x.dtype.type(1), x), x.dtype.type(0))


def _column(values: AnyArray, acc: AnyArray) -> AnyArray:
    """One value for each index of dimension 1 of `acc`."""
    return values.reshape(-1, *(1,) * (acc.ndim - 2))


def requantise_int16(acc: AnyArray, *, multiplier: AnyArray, exponent: AnyArray, low: int, high: int) -> Int16:
    """int16 `clamp(R(acc), low, high)` in fixed point, multiplier and exponent per channel (dimension 1).

    R of int32 sums is contract double, of int64 sums `short_rescale`.
    """
    scale = (_column(part, acc) for part in (multiplier, exponent))
    scaled = (rounding.rescale if acc.dtype == np.int32 else short_rescale)(acc, *scale)
    return np.clip(scaled, low, high).astype(np.int16)


def requantise_real(
    acc: AnyArray, *, x_scale: float, weight_scale: Float32, output_scale: float, low: int, high: int
) -> Int16:
    """int16 `clamp(round(acc * (x_scale * weight_scale / output_scale)), low, high)` in double precision.

    The weights' scale is per channel (dimension 1); ties go away from zero.
    """
    factor = np.float64(x_scale) * _column(weight_scale.astype(np.float64), acc) / np.float64(output_scale)
    return np.clip(round_half_away(acc.astype(np.float64) * factor), low, high).astype(np.int16)


def interpolation_table(
    function: Callable[[AnyArray], AnyArray], x_ends: tuple[Real, Real], y_ends: tuple[Real, Real]
) -> Int16:
    """int16 (513,): `function` at the ends of 512 steps from the first to the second of `x_ends`, in their float type.

    `y_ends` are the real values of the least and the largest int16. An entry is moved by half the error that linear
    interpolation has in the middle of the step behind it.
    """
    real = type(x_ends[0])
    step = (x_ends[1] - x_ends[0]) / real(STEPS)
    unit = real(1 << 16) / (y_ends[1] - y_ends[0])
    start = x_ends[0] + np.arange(STEPS, dtype=real) * step
    value, middle = (function(x) * unit for x in (start, start + step / real(2)))
    following = function(x_ends[0] + np.arange(1, STEPS + 1, dtype=real) * step) * unit
    sample = round_half_away(value)
    error = round_half_away((following + sample) / real(2)) - round_half_away(middle)
    last = round_half_away(function(np.array([x_ends[1]], real)) * unit)
    entries = np.concatenate([sample - round_half_away(error / real(2)), last])
    return np.clip(entries, LOW, HIGH).astype(np.int16)


def interpolated(x: AnyArray, table: Int16) -> Int64:
    """int64: the values of an `interpolation_table` at int16 values, in int16 arithmetic."""
    values = x.astype(np.int64)
    index, offset = (values >> _STEP_BITS) + STEPS // 2, values & (1 << _STEP_BITS) - 1
    base = table[index].astype(np.int64)
    slope = (table[index + 1] - base).astype(np.int16).astype(np.int64)
    return (base + ((slope * offset + (1 << _STEP_BITS - 1)) >> _STEP_BITS)).astype(np.int16).astype(np.int64)


@cache
def _softmax_tables() -> tuple[Int16, Int16]:
    """Tables of exp(x) from -10 to 0 and of 1 / (1 + x) from 0 to 1, both as steps of 2 / 65535."""
    unit = 2.0 / (HIGH - LOW)
    y_ends = np.float64(unit * LOW), np.float64(unit * HIGH)
    step = _RANGE / (HIGH - LOW)
    exponential = interpolation_table(np.exp, (np.float64(step * (LOW - HIGH)), np.float64(0.0)), y_ends)
    step = 1.0 / (HIGH - LOW)
    inverse = interpolation_table(lambda x: 1.0 / (1.0 + x), (np.float64(0.0), np.float64(step * (HIGH - LOW))), y_ends)
    return exponential, inverse


def softmax_int16(x: Int16, *, axis: int, multiplier: int, exponent: int) -> Int16:
    """int16 softmax of int16 `x` along `axis`, in steps of 2**-15, by tables of exponentials and reciprocals.

    (multiplier, exponent) take differences of `x` to steps of 10 / 65535, contract double.
    """
    rows = np.moveaxis(x, axis, -1).astype(np.int64)
    exponential, inverse = _softmax_tables()
    scaled = rounding.rescale(rows - rows.max(-1, keepdims=True), multiplier, exponent)
    e = interpolated(np.clip(scaled + HIGH, LOW, HIGH), exponential)
    total = e.sum(-1, keepdims=True)
    bits = np.frexp(total.astype(np.float64))[1].astype(np.int64)
    # the sum in 1..2 with 16 bits after the point, less 1, from the least int16 on
    shifted = ((total << (31 - bits)) + (1 << 13)) >> 14
    reciprocal = interpolated(np.clip(shifted - ((1 << 15) + (1 << 16)), LOW, HIGH), inverse)
    right = bits - 1
    result = (e * reciprocal + np.left_shift(np.int64(1), right - 1)) >> right
    return np.ascontiguousarray(np.moveaxis(np.clip(result, 0, HIGH).astype(np.int16), -1, axis))


def _scaled(inputs: Operands, a: Attrs) -> Operand:
    need_per_channel(inputs[0], a, *(name for name in ("multiplier", "exponent", "weight_scale") if name in a))
    return Operand(inputs[0].shape, "int16")


_SCALES = {"weight_scale": Array(1, ("float32",)), "x_scale": KINDS["scale"], "output_scale": KINDS["scale"]}
_SUMS = ("int32", "int64")
_EXPONENT = {"exponent": Array(1, ("int8", "int16", "int32", "int64"), -32, SHORT_BITS - 1)}

ROWS = (
    HostOp(requantise_int16, limited(_scaled), {**PER_CHANNEL, **_EXPONENT, **CLAMP}, _SUMS, (2, 3, 4)),
    HostOp(requantise_real, limited(_scaled), {**_SCALES, **CLAMP}, _SUMS, (2, 3, 4)),
    HostOp(softmax_int16, along_axis, {}, ("int16",)),
)
