"""Operators along axes: means, extremes and where they are, softmax, rows of unit length."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...hw import rounding
from ...hw.errors import UnsupportedError
from ...hw.rounding import divide_by_power, doubling_high_multiply
from ..schema import SIZE, Int, OneOf, Real
from .arrays import AnyArray, Attrs, Int8, Ints
from .c_calls import C, Value, Writer, along
from .fixed_point import ACCUMULATION_BITS, BITS, exponentials, high_product, inverse_root, numerators, reciprocal
from .movement import unpack, unpack_in_c, unpacked
from .row import KINDS, NUMBERS, WIDE, HostOp, Operand, Operands, along_axis, need, reduced

_F = np.float32
MOST_PLACES = 16  # of a softmax: fractional bits of the result
MOST_SUMMED = 8191  # values of a softmax in C, so that the sum of exponentials is below 2**32


def mean(
    x: AnyArray,
    *,
    axes: Ints,
    shape: Ints,
    x_zero_point: int,
    zero_point: int,
    multiplier: int,
    exponent: int,
    contract: str = "double",
) -> AnyArray:
    """`clamp(zero_point + R(sum(x - x_zero_point)))` over `axes`, of `x`'s dtype and of `shape`."""
    total = (x.astype(np.int64) - x_zero_point).sum(tuple(axes))
    scaled, info = rounding.rescale(total, multiplier, exponent, contract) + zero_point, np.iinfo(x.dtype)
    return np.clip(scaled, info.min, info.max).astype(x.dtype).reshape(shape)


def reduce_max(x: AnyArray, *, axes: Ints, shape: Ints) -> AnyArray:
    """The largest value over `axes`; the result has `shape`."""
    return x.max(tuple(axes)).reshape(shape)


def reduce_min(x: AnyArray, *, axes: Ints, shape: Ints) -> AnyArray:
    """The smallest value over `axes`; the result has `shape`."""
    return x.min(tuple(axes)).reshape(shape)


def arg_max(x: AnyArray, *, axis: int, shape: Ints, dtype: str, smallest: bool = False) -> AnyArray:
    """Position along `axis` of the largest (or `smallest`) value, the first of equal values; of `dtype` and `shape`."""
    found = x.argmin(axis) if smallest else x.argmax(axis)
    return found.astype(dtype).reshape(shape)


def top_k(x: AnyArray, *, count: int, positions: bool) -> AnyArray:
    """The `count` largest values of each row, or their int32 `positions`, descending; equal values keep their order."""
    # a stable sort keeps the order of equal values in ascending order, so that rows are sorted from their ends
    backwards = np.argsort(x[..., ::-1], -1, kind="stable")[..., ::-1][..., :count]
    found = x.shape[-1] - 1 - backwards
    return found.astype(np.int32) if positions else np.take_along_axis(x, found, -1)


def log_softmax(x: Int8, *, axis: int, scale: float, output_scale: float, zero_point: int) -> Int8:
    """int8 `log(exp(x) / sum(exp(x)))` along `axis` in float32, by a table of exponentials and a sum in order.

    `scale` belongs to `x`, `output_scale` and `zero_point` to the result.
    """
    rows, step, unit = np.moveaxis(x, axis, -1).astype(np.int64), _F(scale), _F(output_scale)
    largest = rows.max(-1, keepdims=True)
    with np.errstate(all="ignore"):
        table = np.exp((-step * np.arange(256, dtype=_F)).astype(np.float64)).astype(_F)
        total = np.cumsum(table[largest - rows], axis=-1, dtype=_F)[..., -1:]
        first = (step * largest.astype(_F) + np.log(total.astype(np.float64)).astype(_F)) / unit
        steps = np.nan_to_num(np.rint(step / unit * rows.astype(_F) - first)) + _F(zero_point)
    return np.ascontiguousarray(np.moveaxis(np.clip(steps, -128, 127).astype(np.int8), -1, axis))


def softmax(
    x: Int8, *, axis: int, multiplier: int, exponent: int, bits: int = 8, steps: float = 0, zero_point: int = -128
) -> AnyArray:
    """Softmax of int8 `x` along `axis`: int8 or int16 by `bits`, scale 2**-bits, the least value as zero point.

    With `steps` the scale of int8 results is 1 / steps, and they have the zero point. Exponentials come from tables
    made once per scale: per value a difference, a sum and a product remain, and per row a reciprocal.
    """
    least, most, dtype = -(1 << bits - 1), (1 << bits - 1) - 1, np.int16 if bits > 8 else np.int8
    known, places = numerators(multiplier, exponent, steps or 2.0**bits)
    _, summands = exponentials(multiplier, exponent)
    zero = zero_point if steps else least
    rows = np.moveaxis(x, axis, -1)
    difference = rows.max(-1, keepdims=True).astype(np.int64) - rows
    e, total = known[difference], summands[difference].sum(-1, keepdims=True)
    headroom = 32 - np.frexp(total.astype(np.float64))[1].astype(np.int64)
    inverse = reciprocal((total << headroom) - (1 << BITS))
    # the sum has ACCUMULATION_BITS integer bits, the result `places` bits after the point
    q = divide_by_power(high_product(inverse, e), ACCUMULATION_BITS + BITS - places - headroom)
    result = np.where(e >= 0, np.clip(q + zero, least, most), zero).astype(dtype)
    return np.ascontiguousarray(np.moveaxis(result, -1, axis))


def unpack_softmax(
    packed: Int8,
    *,
    n: int,
    c: int,
    shape: Ints,
    axis: int,
    multiplier: int,
    exponent: int,
    bits: int = 8,
    steps: float = 0,
    zero_point: int = -128,
) -> AnyArray:
    """`softmax` of the result of `unpack`."""
    facts = {"axis": axis, "multiplier": multiplier, "exponent": exponent}
    return softmax(unpack(packed, n=n, c=c, shape=shape), **facts, bits=bits, steps=steps, zero_point=zero_point)


def l2_normalize(x: Int8, *, axis: int, x_zero_point: int, scaled_first: bool = False) -> Int8:
    """int8 `(x - z) / sqrt(sum((x - z) ** 2))` along `axis`, with scale 1/128 and zero point 0.

    The 7 bits of the output's scale are in the exponent by which the quotient is rescaled; with `scaled_first`, as in
    uint8 files, they multiply the difference.
    """
    d = x.astype(np.int64) - x_zero_point
    multiplier, exponent = inverse_root((d * d).sum(axis, keepdims=True))
    if scaled_first:
        quotient = divide_by_power(doubling_high_multiply(d << 7, multiplier), -exponent)
    else:
        quotient = rounding.rescale(d, multiplier, exponent + 7)
    return np.clip(quotient, -128, 127).astype(np.int8)


def _topmost(inputs: Operands, a: Attrs) -> Operand:
    (*around, size), dtype, _ = inputs[0]
    need(a["count"] <= size, f"count = {a['count']}: rows have {size} elements")
    return Operand((*around, a["count"]), "int32" if a["positions"] else dtype)


def _chosen(inputs: Operands, a: Attrs) -> Operand:
    return Operand(reduced(inputs, a | {"axes": [a["axis"]]}).shape, a["dtype"])


def _softmaxed(inputs: Operands, a: Attrs) -> Operand:
    return Operand(along_axis(inputs, a).shape, f"int{a['bits']}")


def _unpacked_softmaxed(inputs: Operands, a: Attrs) -> Operand:
    return _softmaxed([unpacked(inputs, a)], a)


def _softmax_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> None:
    (x,), (rows, count, inner) = inputs, along(inputs[0], a["axis"])
    if count > MOST_SUMMED:
        raise UnsupportedError(f"softmax of {count} values has no C kernel; at most {MOST_SUMMED} are summed")
    scale, bits, steps = (a["multiplier"], a["exponent"]), a["bits"], a["steps"]
    known, places = numerators(*scale, steps or 2.0**bits)
    tables = w.array("numerators", known), w.array("summands", exponentials(*scale)[1])
    zero = a["zero_point"] if steps else -(1 << bits - 1)
    w.call("tw_softmax", x.pointer, output.pointer, rows, count, inner, *tables, places, bits, zero)


def _unpack_softmax_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> None:
    place = w.scratch(output.size) if output.width > 1 else output.pointer
    plain = Value(place, output.shape, "int8")
    unpack_in_c(w, inputs[0], plain, a)
    _softmax_in_c(w, [plain], output, a)


_COUNTED = ("int8", *NUMBERS)
_SOFTMAX = {"exponent": Int(0, BITS), "bits": OneOf((8, 16)), "steps": Real(0, 2.0**MOST_PLACES)}
_POSITION = {"dtype": OneOf(("int32", "int64"))}

ROWS = (
    HostOp(
        mean,
        reduced,
        {},
        WIDE,
        c=C("tw_mean", "x out kept gone numbers", "x_zero_point zero_point multiplier exponent once"),
        narrow=True,
    ),
    HostOp(
        reduce_max, reduced, {}, WIDE, c=C("tw_reduce", "x out x_type kept gone gone_count TW_REDUCE_MAX"), narrow=True
    ),
    HostOp(
        reduce_min, reduced, {}, WIDE, c=C("tw_reduce", "x out x_type kept gone gone_count TW_REDUCE_MIN"), narrow=True
    ),
    HostOp(arg_max, _chosen, _POSITION, _COUNTED, c=C("tw_arg_max", "x x_type out out_type along smallest")),
    HostOp(top_k, _topmost, {"count": SIZE}, _COUNTED, c=C("tw_top_k", "x x_type out rows count positions")),
    HostOp(softmax, _softmaxed, _SOFTMAX, c=_softmax_in_c),
    HostOp(unpack_softmax, _unpacked_softmaxed, _SOFTMAX, ranks=(4, 6), c=_unpack_softmax_in_c),
    HostOp(log_softmax, along_axis, {"output_scale": KINDS["scale"]}),
    HostOp(l2_normalize, along_axis, c=C("tw_l2_normalize", "x out along x_zero_point scaled_first")),
)
