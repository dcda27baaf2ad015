"""Dynamic quantisation: the scale and the zero point of uint8 values are computed from the values of each run.

uint8 values are int8 here, 128 less; their zero point stays uint8 (1,), their scale is float32 (1,). The arithmetic is
that of DynamicQuantizeLinear, ConvInteger and MatMulInteger in onnxruntime.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...hw.errors import InputError
from ..schema import Array, Kind
from .arrays import AnyArray, Attrs, Float32, Int8, Int32
from .c_calls import C, Value, Writer, along
from .row import HostOp, Operand, Operands, Rule, along_axis, need

_F = np.float32
_LEVELS = _F(255)  # steps of uint8


def value_range(x: Float32) -> Float32:
    """float32 (2,): the least and the largest of 0 and the values of `x`. Raises `InputError` for infinity and NaN."""
    if not np.isfinite(x).all():
        raise InputError("the input holds infinity or NaN, and its quantisation has the scale of its largest value")
    return np.array([min(x.min(), _F(0)), max(x.max(), _F(0))], _F)


def range_scale(ends: Float32) -> Float32:
    """float32 (1,): the size of a step, of 255 between the two `ends`; 1 where both are 0.

    Raises `InputError` for values so small that float32 has no such step.
    """
    if ends[0] == ends[1]:
        return np.ones(1, _F)
    with np.errstate(over="ignore", under="ignore"):
        scale: Float32 = np.divide(ends[1:] - ends[:1], _LEVELS)
    if not scale[0]:
        raise InputError(f"the values of the input end at {ends[0]:g} and {ends[1]:g}; a 255th of that is 0 in float32")
    return scale


def range_zero_point(ends: Float32, scale: Float32) -> AnyArray:
    """uint8 (1,): the number of steps from the least value to 0, ties to even."""
    return np.rint(np.clip(_F(0) - ends[:1] / scale.reshape(1), _F(0), _LEVELS)).astype(np.uint8)


def quantize_by(x: Float32, scale: Float32, zero_point: AnyArray) -> Int8:
    """int8 `clamp(round(x / scale) + zero_point, 0, 255) - 128` of finite values, ties to even."""
    steps = np.rint(x / scale.reshape(())) + zero_point.reshape(()).astype(_F)
    return (np.clip(steps, _F(0), _LEVELS) - _F(128)).astype(np.int8)


def subtract_zero_point(acc: Int32, zero_point: AnyArray, *, sums: Int32, axis: int) -> Int32:
    """int32 `acc - (zero_point - 128) * sums`, wrapping; `sums` has one number for each index of `axis`."""
    moved = int(zero_point.reshape(-1)[0]) - 128
    return (acc - moved * _column(sums.astype(np.int64), acc, axis)).astype(np.int32)


def scale_sums(
    acc: Int32, zero_point: AnyArray, *factors: Float32, sums: Int32, axis: int, relu: bool = False
) -> Float32:
    """float32 `subtract_zero_point(acc) * scale + bias`, each step of it rounded, and at least 0 with `relu`.

    `factors` are the scale and the bias, which may be left out: one number, or one for each index of `axis`.
    """
    y = subtract_zero_point(acc, zero_point, sums=sums, axis=axis).astype(_F)
    scale, *bias = (_column(factor, acc, axis) for factor in factors)
    with np.errstate(over="ignore", invalid="ignore"):
        y = y * scale + bias[0] if bias else y * scale
    return np.maximum(y, _F(0)) if relu else y


def _column(values: AnyArray, acc: Int32, axis: int) -> AnyArray:
    """`values` along `axis`."""
    return values.reshape(-1, *(1,) * (acc.ndim - axis - 1))


def _expect(inputs: Operands, *dtypes: str) -> None:
    given = [x.dtype for x in inputs]
    need(given == [*dtypes], f"inputs are {', '.join(given)}: must be {', '.join(dtypes)}")


def _single(what: str, *operands: Operand) -> None:
    for x in operands:
        need(math.prod(x.shape) == 1, f"{what} has shape {x.shape}: must be one number")


def _ends(inputs: Operands, a: Attrs) -> Operand:
    return Operand((2,), "float32")


def _of_ends(dtype: str) -> Rule:
    """A number of `dtype` from two ends, and perhaps a scale."""

    def rule(inputs: Operands, a: Attrs) -> Operand:
        need(inputs[0].shape == (2,), f"the ends have shape {inputs[0].shape}: must be (2,)")
        _single("the scale", *inputs[1:])
        return Operand((1,), dtype)

    return rule


def _quantised(inputs: Operands, a: Attrs) -> Operand:
    _expect(inputs, "float32", "float32", "uint8")
    _single("the scale or zero point", *inputs[1:])
    return Operand(inputs[0].shape, "int8")


def _without_zero_point(inputs: Operands, a: Attrs) -> Operand:
    _expect(inputs[:2], "int32", "uint8")
    _single("the zero point", inputs[1])
    acc = along_axis(inputs, a)
    sums: Int32 = a["sums"]
    axis: int = a["axis"]
    need(sums.size == acc.shape[axis], f"sums {sums.shape}: axis {axis} has others, {acc.shape}")
    return Operand(acc.shape, "int32")


def _scaled(inputs: Operands, a: Attrs) -> Operand:
    need(len(inputs) in (3, 4), f"{len(inputs)} inputs: must be 3 or 4")
    _expect(inputs, "int32", "uint8", *["float32"] * (len(inputs) - 2))
    acc = _without_zero_point(inputs, a)
    for x in inputs[2:]:
        need(math.prod(x.shape) in (1, a["sums"].size), f"a factor has shape {x.shape}: axis {a['axis']} has others")
    return Operand(acc.shape, "float32")


def _scale_sums_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> None:
    """The steps of a factor from one channel to the next are 0 or 1."""
    acc, zero_point, scale, *bias = inputs
    sums = w.array("sums", a["sums"])
    factors = [(x.pointer, int(x.size > 1)) for x in (scale, *bias)]
    pointers, without = (acc.pointer, zero_point.pointer, output.pointer), ("0", 0)
    factors = [*factors, without][:2]
    numbers = [*along(acc, a["axis"]), sums, *factors[0], *factors[1], int(a["relu"])]
    w.call("tw_scale_sums", *pointers, *numbers)


_SUMS: dict[str, Kind] = {"sums": Array(1, ("int32",))}
_FLOAT = ("float32",)

ROWS = (
    HostOp(value_range, _ends, {}, _FLOAT, c=C("tw_value_range", "x out rows", checked=True)),
    HostOp(range_scale, _of_ends("float32"), {}, _FLOAT, c=C("tw_range_scale", "x out", checked=True)),
    HostOp(range_zero_point, _of_ends("uint8"), {}, _FLOAT, count=2, c=C("tw_range_zero_point", "inputs out")),
    HostOp(quantize_by, _quantised, {}, ("float32", "uint8"), count=3, c=C("tw_quantize_by", "inputs out size")),
    HostOp(
        subtract_zero_point,
        _without_zero_point,
        _SUMS,
        ("int32", "uint8"),
        count=2,
        c=C("tw_subtract_zero_point", "inputs out along sums"),
    ),
    HostOp(scale_sums, _scaled, _SUMS, ("int32", "uint8", "float32"), count=0, c=_scale_sums_in_c),
)
