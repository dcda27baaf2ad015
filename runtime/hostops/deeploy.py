"""Operators of Deeploy's dialect of ONNX: integers alone, no scales.

Sums and products beyond int8 are int32 and wrap; intermediate results of an operator are exact. Divisions of integers
round down unless a docstring says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...hw.rounding import requantise
from ..schema import SIZE, Int, OneOf
from .arrays import AnyArray, Attrs, Int8, Int32, Int64
from .c_calls import C, Value, Writer
from .row import INT32, HostOp, Operand, Operands, giving, multiplied, need, together

MOST_SHIFT = 31  # most halvings of an exponential in `integer_softmax`
_TWO_INTEGERS = ("int8", "int32")


def integer_matmul(x: AnyArray, y: AnyArray) -> Int32:
    """int32 sums of products: rows of `x` by columns of `y`; dimensions before the last two broadcast."""
    if x.dtype == y.dtype == np.int8:  # float64 holds their sums exactly, and is faster
        return (x.astype(np.float64) @ y.astype(np.float64)).astype(np.int64).astype(np.int32)
    return (x.astype(np.int64) @ y.astype(np.int64)).astype(np.int32)


def requant_shift(
    x: Int32,
    factor: Int32,
    offset: Int32,
    *,
    shift: int,
    low: int,
    high: int,
    zero_point: int = 0,
    dtype: str = "int8",
) -> AnyArray:
    """`clamp((x * factor + offset + half) >> shift, low, high) + zero_point`, half of `1 << shift`."""
    half = (1 << shift) >> 1
    values = (x.astype(np.int64) * factor + offset + half) >> shift
    return (np.clip(values, low, high) + zero_point).astype(dtype)


def integer_softmax(
    x: AnyArray,
    *,
    quadratic: int,
    linear: int,
    constant: int,
    period: int,
    levels: int,
    multiplier: int,
    exponent: int,
    zero_point: int = 0,
    low: int = -128,
    high: int = 127,
) -> Int8:
    """int8 `clamp(zero_point + R(e * (levels - 1) // sum(e)), low, high)` along the last axis.

    e are the `exponentials` of x minus the largest x. Rows whose exponentials are all 0 give 0.
    """
    values = x.astype(np.int64)
    found = exponentials(values - values.max(-1, keepdims=True), quadratic, linear, constant, period)
    total = found.sum(-1, keepdims=True)
    shares = np.where(total == 0, 0, found * (levels - 1) // np.where(total == 0, 1, total))
    return requantise(shares, multiplier, exponent, zero_point, low, high)


def exponentials(below: Int64, quadratic: int, linear: int, constant: int, period: int) -> AnyArray:
    """int64 exponentials of `below`, 0 or less: a parabola, halved for every period.

    With z = -below // period, at most 31, they are
    `(quadratic * (below + z * period + linear) ** 2 + constant) >> z`.
    """
    halvings = np.clip(-below // period, 0, MOST_SHIFT)
    return (quadratic * (below + halvings * period + linear) ** 2 + constant) >> halvings


def integer_norm(
    x: AnyArray,
    weight: Int32,
    *biases: Int32,
    shift: int,
    low: int = -128,
    high: int = 127,
    x_zero_point: int = 0,
) -> Int8:
    """int8 `clamp((c * weight / root + bias) >> shift, low, high)` along the last axis of n elements.

    root is the integer square root of `sum(c * c) // n + 1`. Without a bias c is `x - x_zero_point`; with one its mean
    is subtracted, and the mean and the quotient are truncated toward zero.
    """
    centred = x.astype(np.int64) - x_zero_point
    count = x.shape[-1]
    if biases:
        centred = centred - _truncated(centred.sum(-1, keepdims=True), np.int64(count))
    root = _root((centred * centred).sum(-1, keepdims=True) // count + 1)
    quotient = _truncated(centred * weight.astype(np.int64), root)
    for bias in biases:
        quotient = quotient + bias
    return np.clip(quotient >> shift, low, high).astype(np.int8)


def _truncated(x: AnyArray, divisor: AnyArray | np.int64) -> AnyArray:
    """`x / divisor` for a divisor above 0, truncated toward zero."""
    return np.sign(x) * (np.abs(x) // divisor)


def _root(x: AnyArray) -> AnyArray:
    """The largest integers whose squares are at most `x`, below 2**52."""
    found = np.sqrt(x.astype(np.float64)).astype(np.int64)
    found -= found * found > x
    return found + ((found + 1) * (found + 1) <= x)


def _shifted(inputs: Operands, a: Attrs) -> Operand:
    shape = together(inputs, a).shape
    bounds, dtype = [a["low"] + a["zero_point"], a["high"] + a["zero_point"]], a["dtype"]
    need(
        dtype == "int32" or -128 <= min(bounds) and max(bounds) <= 127,
        f"low, high = {bounds} with the zero_point: not within int8, the dtype",
    )
    return Operand(shape, dtype)


def _normed(inputs: Operands, a: Attrs) -> Operand:
    x, *rest = inputs
    need(len(rest) in (1, 2), f"{len(inputs)} inputs: must be 2 or 3")
    for t in rest:
        need((t.shape, t.dtype) == (x.shape[-1:], "int32"), f"weights {t.dtype} {t.shape}: its input is {x.shape}")
    return Operand(x.shape, "int8")


def _integer_norm_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> None:
    bias = "x2" if len(inputs) > 2 else "0"
    C("tw_integer_norm", f"x x_type x1 {bias} out rows numbers", "shift low high x_zero_point")(w, inputs, output, a)


_EXPONENTIALS = dict.fromkeys(("quadratic", "linear", "constant"), INT32)
_SHIFT = {"shift": Int(0, 31)}

ROWS = (
    HostOp(
        integer_matmul,
        giving("int32", multiplied),
        {},
        _TWO_INTEGERS,
        count=2,
        c=C("tw_integer_matmul", "typed out out.shape.-2: x.shape.-1 matrices"),
    ),
    HostOp(
        requant_shift,
        _shifted,
        {**_SHIFT, "low": INT32, "high": INT32, "dtype": OneOf(_TWO_INTEGERS)},
        ("int32",),
        count=3,
        c=C("tw_requant_shift", "inputs out out_type walk numbers", "shift low high zero_point"),
    ),
    HostOp(
        integer_softmax,
        giving("int8"),
        {**_EXPONENTIALS, "period": SIZE, "levels": Int(1, 1 << 16)},
        _TWO_INTEGERS,
        c=C(
            "tw_integer_softmax",
            "x x_type out rows numbers",
            "quadratic linear constant period levels multiplier exponent zero_point low high",
        ),
    ),
    HostOp(integer_norm, _normed, _SHIFT, _TWO_INTEGERS, count=0, c=_integer_norm_in_c),
)
