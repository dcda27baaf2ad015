"""Quantised operators that compute each value, or each pair of values, by itself.

Activations are int8, of some operators also int16; arrays of any shape. `R` is the rounding of hw/rounding.py with
(multiplier, exponent), contract double unless `contract` is given.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...hw import rounding
from ...hw.errors import InputError
from ...hw.rounding import divide_by_power, doubling_high_multiply
from ..schema import Array, Int, OneOf
from .arrays import AnyArray, Attrs, Float32, Int8, Int64, Ints
from .c_calls import C, Value, Writer
from .fixed_point import bit_count, reciprocal
from .row import (
    CLAMP,
    INT16,
    INT32,
    INTEGERS,
    TWO_SCALES,
    WIDE,
    HostOp,
    Operand,
    Operands,
    cast_to,
    giving,
    limited,
    need,
    need_values,
    one_type,
    together,
)

_EVERY = np.arange(-128, 128).astype(np.int8)
# The float32 before 0.5: a tie and this make a whole number, as float32 rounds their sum, but this and this do not.
_BELOW_HALF = np.nextafter(np.float32(0.5), np.float32(0))


def quantize(
    x: Float32,
    *,
    scale: float,
    zero_point: int,
    ties_away: bool = False,
    dtype: str = "int8",
    reciprocal: bool = False,
) -> AnyArray:
    """`clamp(round(x / scale) + zero_point)` as `dtype`, int8 or int16, divided in float32.

    Ties go to the even value, as in ONNX, or away from zero. With `reciprocal` x is multiplied by float32 `1 / scale`.
    Raises `InputError` for values that are not numbers.
    """
    if np.isnan(x).any():
        raise InputError(f"the input holds NaN, which has no {dtype} value")
    with np.errstate(over="ignore"):  # the largest numbers are clamped like those that are not finite
        real, divisor = np.asarray(x, np.float32), np.float32(scale)
        q = real * np.float32(1 / np.float64(divisor)) if reciprocal else real / divisor
    q = np.trunc(q + np.copysign(_BELOW_HALF, q)) if ties_away else np.rint(q)
    return _clamped(q + zero_point, dtype)


def _clamped(values: AnyArray, dtype: Any, low: int | None = None, high: int | None = None) -> AnyArray:
    """`values` clamped to `low`..`high`, by default to all values of `dtype`, as `dtype`."""
    info = np.iinfo(dtype)
    return np.clip(values, info.min if low is None else low, info.max if high is None else high).astype(dtype)


def expect_numbers(flags: Int8) -> Int8:
    """`flags` that a launch gives beside quantised values. Raises `InputError` for one that is not 0, set by NaN."""
    if flags.any():
        raise InputError("the input holds NaN, which has no int8 value")
    return flags


def dequantize(q: AnyArray, *, scale: float, zero_point: int) -> Float32:
    """float32 `(q - zero_point) * scale`."""
    return (q.astype(np.int32) - zero_point).astype(np.float32) * np.float32(scale)


def recode(x: AnyArray) -> AnyArray:
    """uint8 `x` as int8, 128 subtracted; int8 `x` as uint8, 128 added."""
    return (x.view(np.uint8) ^ np.uint8(128)).view(np.int8 if x.dtype == np.uint8 else np.uint8)


def rescale(
    x: Int8, *, x_zero_point: int, zero_point: int, multiplier: int, exponent: int, low: int = -128, high: int = 127
) -> Int8:
    """int8 `clamp(zero_point + R(x - x_zero_point), low, high)` of int8 `x`, contract double."""
    return rounding.requantise(x.astype(np.int64) - x_zero_point, multiplier, exponent, zero_point, low, high)


def narrow(x: AnyArray) -> Int8:
    """Integers clamped to int8."""
    return np.clip(x, -128, 127).astype(np.int8)


def rescale_integers(
    x: AnyArray, *, x_zero_point: int, zero_point: int, multiplier: int, exponent: int, dtype: str
) -> AnyArray:
    """`clamp(zero_point + R(x - x_zero_point))` as `dtype`, int8, int16 or int32, of integers `x`."""
    return _clamped(rounding.rescale(x.astype(np.int64) - x_zero_point, multiplier, exponent) + zero_point, dtype)


def lookup(x: AnyArray, *, table: AnyArray) -> AnyArray:
    """`table[x + 128]` of int8 by 256 entries, `table[x + 2**15]` of int16 by 65,536."""
    return table[x.astype(np.int64) - np.iinfo(x.dtype).min]


def lookup_channels(x: Int8, *, table: Int8) -> Int8:
    """int8 `table[c, x + 128]` of int8, where c is the index along dimension 1; table (channels, 256)."""
    channels = np.arange(len(table)).reshape(-1, *[1] * (x.ndim - 2))
    return table[channels, x.astype(np.int64) + 128]


def aligned(
    x: AnyArray, y: AnyArray, zero_points: Ints, multipliers: Ints, exponents: Ints, shift: int
) -> tuple[Int64, Int64]:
    """`R((t - z) << shift)` of both operands, each with its own zero point and scale."""
    first, second = (
        rounding.rescale((t.astype(np.int64) - zero_points[k]) << shift, multipliers[k], exponents[k])
        for k, t in enumerate((x, y))
    )
    return first, second


def add(
    x: AnyArray,
    y: AnyArray,
    *,
    zero_points: Ints,
    multipliers: Ints,
    exponents: Ints,
    sign: int,
    shift: int,
    low: int = -128,
    high: int = 127,
) -> AnyArray:
    """`clamp(z + R2(R0((x - zx) << shift) + sign * R1((y - zy) << shift)), low, high)`, contract double.

    `zero_points`, `multipliers` and `exponents` belong to x, y and the output in this order. All have one dtype.
    """
    first, second = aligned(x, y, zero_points, multipliers, exponents, shift)
    scaled = rounding.rescale(first + sign * second, multipliers[2], exponents[2])
    return _clamped(scaled + zero_points[2], x.dtype, low, high)


def multiply(
    x: AnyArray,
    y: AnyArray,
    *,
    zero_points: Ints,
    multiplier: int,
    exponent: int,
    low: int = -128,
    high: int = 127,
    contract: str = "double",
) -> AnyArray:
    """`clamp(z + R((x - zx) * (y - zy)), low, high)` of `x`'s dtype; zero points of x, y and the output."""
    product = (x.astype(np.int64) - zero_points[0]) * (y.astype(np.int64) - zero_points[1])
    scaled = rounding.rescale(product, multiplier, exponent, contract) + zero_points[2]
    return _clamped(scaled, x.dtype, low, high)


def divide(
    x: Int8, y: Int8, *, zero_points: Ints, multiplier: int, exponent: int, low: int = -128, high: int = 127
) -> Int8:
    """int8 `clamp(z + R((x - zx) / (y - zy)), low, high)`: a reciprocal in Q0.31, the quotient to 31 bits, then R.

    A quotient by 0 is the largest number of its sign.
    """
    a, b = np.broadcast_arrays(*(t.astype(np.int64) - zero_points[k] for k, t in enumerate((x, y))))
    a, b = np.where(b < 0, -a, a), np.abs(b)
    divisor = np.maximum(b, 1)
    headroom = 32 - bit_count(divisor)
    inverse = reciprocal((divisor << headroom) - (1 << 31))
    spare = np.where(a >= 0, 31 - bit_count(np.maximum(a, 0)), 31 - bit_count(2 * np.maximum(-a, 1) - 1 >> 1))
    quotient = doubling_high_multiply(a << spare, inverse)
    shift = (31 - headroom) + spare - exponent
    scaled = divide_by_power(doubling_high_multiply(quotient, multiplier), np.clip(shift, 0, 62))
    scaled = np.where(b == 0, np.sign(a) << 16, scaled)
    return np.clip(scaled + zero_points[2], low, high).astype(np.int8)


def maximum(x: AnyArray, y: AnyArray) -> AnyArray:
    """The larger value of each pair."""
    return np.maximum(x, y)


def minimum(x: AnyArray, y: AnyArray) -> AnyArray:
    """The smaller value of each pair."""
    return np.minimum(x, y)


def lookup_pair(x: AnyArray, y: AnyArray, *, table: Int8) -> Int8:
    """int8 `table[i, j]`, table (256, 256); `i` and `j` count from the smallest values of the dtypes of x and y."""
    i, j = (v.astype(np.int64) + (128 if v.dtype == np.int8 else 0) for v in (x, y))
    return table[i, j]


def prelu(x: Int8, alpha: Int8, *, zero_points: Ints, multipliers: Ints, exponents: Ints) -> Int8:
    """int8 `clamp(z + R0(x - zx))` where x >= zx, else `clamp(z + R1((x - zx) * (alpha - za)))`, contract double.

    `zero_points` belong to x, alpha and the output in this order.
    """
    d = x.astype(np.int64) - zero_points[0]
    product = d * (alpha.astype(np.int64) - zero_points[1])
    above, below = (rounding.rescale(v, multipliers[k], exponents[k]) for k, v in enumerate((d + 0 * product, product)))
    return np.clip(np.where(d >= 0, above, below) + zero_points[2], -128, 127).astype(np.int8)


def squared_difference(x: Int8, y: Int8, *, zero_points: Ints, multipliers: Ints, exponents: Ints, shift: int) -> Int8:
    """int8 `clamp(z + R2((R0((x - zx) << shift) - R1((y - zy) << shift)) ** 2))`, contract double."""
    first, second = aligned(x, y, zero_points, multipliers, exponents, shift)
    return rounding.requantise((first - second) ** 2, multipliers[2], exponents[2], zero_points[2])


def _recoded(inputs: Operands, a: Attrs) -> Operand:
    return Operand(inputs[0].shape, "int8" if inputs[0].dtype == "uint8" else "uint8")


def _looked_up(inputs: Operands, a: Attrs) -> Operand:
    (shape, dtype, _), table = inputs[0], a["table"]
    entries = 1 << np.iinfo(dtype).bits
    need(table.shape == (entries,), f"table {table.shape}: must have {entries} entries")
    need(str(table.dtype) == dtype, f"the table is {table.dtype}: must be {dtype} as the input")
    return Operand(shape, dtype)


def _looked_up_channels(inputs: Operands, a: Attrs) -> Operand:
    shape, table = inputs[0].shape, a["table"].shape
    need(table == (*shape[1:2], 256), f"table {table}: its input {shape} needs {(*shape[1:2], 256)}")
    return Operand(shape, "int8")


def _lookup_channels_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> None:
    arguments = f"x out x.shape.:2 {math.prod(output.shape[2:])} table"
    C("tw_lookup_channels", arguments)(w, inputs, output, a)


def _quantised(inputs: Operands, a: Attrs) -> Operand:
    need_values(a["dtype"], a["zero_point"])
    return cast_to(inputs, a)


def _looked_up_pairs(inputs: Operands, a: Attrs) -> Operand:
    need(a["table"].shape == (256, 256), f"table {a['table'].shape}: must be (256, 256)")
    return together(inputs, a)


def _rescale_by_table(w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> None:
    C("tw_lookup", "x out size table")(w, inputs, output, {"table": rescale(_EVERY, **a)})


ROWS = (
    HostOp(
        quantize,
        _quantised,
        {"zero_point": INT16, "dtype": OneOf(WIDE)},
        ("float32",),
        c=C("tw_quantize", "x out out_type size scale zero_point ties_away reciprocal", checked=True),
    ),
    HostOp(expect_numbers, giving("int8"), c=C("tw_expect_numbers", "x out size", checked=True)),
    HostOp(
        dequantize,
        giving("float32"),
        {"zero_point": INT16},
        ("int8", "int16"),
        c=C("tw_dequantize", "x x_width out size scale zero_point"),
    ),
    HostOp(recode, _recoded, {}, ("int8", "uint8"), c=C("tw_recode", "x out size")),
    HostOp(rescale, giving("int8"), c=_rescale_by_table),
    HostOp(narrow, giving("int8"), {}, ("int16", "int32"), c=C("tw_narrow", "x x_type out size")),
    HostOp(
        rescale_integers,
        cast_to,
        {"x_zero_point": INT32, "zero_point": INT32, "dtype": OneOf(INTEGERS)},
        INTEGERS,
        c=C("tw_rescale_integers", "x x_type out out_type size x_zero_point zero_point multiplier exponent"),
    ),
    HostOp(lookup, _looked_up, {"table": Array(1, WIDE)}, WIDE, c=C("tw_lookup", "x out size table"), narrow=True),
    HostOp(lookup_channels, _looked_up_channels, {"table": Array(2, ("int8",))}, c=_lookup_channels_in_c),
    HostOp(
        add,
        limited(one_type),
        {"sign": OneOf((-1, 1)), "shift": Int(0, 22), **CLAMP},
        WIDE,
        count=2,
        c=C("tw_add", "inputs out walk numbers", "zero_points multipliers exponents sign shift low high"),
        narrow=True,
    ),
    HostOp(
        multiply,
        limited(one_type),
        CLAMP,
        WIDE,
        count=2,
        c=C("tw_multiply", "inputs out walk numbers", "zero_points multiplier exponent low high once"),
        narrow=True,
    ),
    HostOp(
        divide,
        together,
        count=2,
        c=C("tw_divide", "inputs out walk numbers", "zero_points multiplier exponent low high"),
    ),
    HostOp(maximum, one_type, {}, WIDE, count=2, c=C("tw_extreme", "inputs out walk 1"), narrow=True),
    HostOp(minimum, one_type, {}, WIDE, count=2, c=C("tw_extreme", "inputs out walk -1"), narrow=True),
    HostOp(
        lookup_pair,
        _looked_up_pairs,
        {"table": Array(2, ("int8",))},
        ("int8", "uint8"),
        count=2,
        c=C("tw_lookup_pair", "typed out walk table"),
    ),
    HostOp(
        prelu,
        together,
        TWO_SCALES,
        count=2,
        c=C("tw_prelu", "inputs out walk numbers", "zero_points multipliers exponents"),
    ),
    HostOp(
        squared_difference,
        together,
        {"shift": Int(0, 7)},
        count=2,
        c=C("tw_squared_difference", "inputs out walk numbers", "zero_points multipliers exponents shift"),
    ),
)
