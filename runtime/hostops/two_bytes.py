"""int16 values as two bytes each, and the results of layers from the sums of both."""

from __future__ import annotations

import numpy as np

from ..schema import Array, Kind
from .arrays import Attrs, Float32, Int8, Int16, Int32
from .c_calls import C
from .row import INT16, HostOp, Operand, Operands, need


def split_bytes(x: Int16) -> Int8:
    """int8 (2 * N, ...): the high bytes of int16 `x` (N, ...), then the low bytes, less 128."""
    return np.concatenate([x >> 8, (x & 255) - 128]).astype(np.int8)


def scale_bytes(
    acc: Int32, *, scale: float, zero_point: int, weight_scale: Float32, bias: Float32, sums: Int32
) -> Float32:
    """float32 `(256 * high + low + (128 - zero_point) * sums) * (scale * weight_scale) + bias`, of float64.

    The first half of `acc` (2 * N, C, ...) are the sums of high bytes; the arrays have one value per channel.
    """
    high, low = acc.astype(np.int64).reshape(2, -1, *acc.shape[1:])
    factor, added, own = (part.reshape(-1, *(1,) * (acc.ndim - 2)) for part in (weight_scale, bias, sums))
    whole = 256 * high + low + (128 - zero_point) * own.astype(np.int64)
    real = whole.astype(np.float64) * (np.float64(np.float32(scale)) * factor.astype(np.float64))
    with np.errstate(over="ignore"):
        return (real + added.astype(np.float64)).astype(np.float32)


def _split(inputs: Operands, a: Attrs) -> Operand:
    n, *others = inputs[0].shape
    return Operand((2 * n, *others), "int8")


def _scaled(inputs: Operands, a: Attrs) -> Operand:
    shape = inputs[0].shape
    need(len(shape) > 1, f"sums {shape}: must have at least 2 dimensions")
    both, *others = shape
    need(both % 2 == 0, f"sums {shape}: must be those of two bytes")
    for name in ("weight_scale", "bias", "sums"):
        need(a[name].shape == shape[1:2], f"{name} {a[name].shape}: sums {shape} need {shape[1:2]}")
    return Operand((both // 2, *others), "float32")


_FACTORS: dict[str, Kind] = dict.fromkeys(("weight_scale", "bias"), Array(1, ("float32",)))

ROWS = (
    HostOp(split_bytes, _split, {}, ("int16",), c=C("tw_split_bytes", "x out size")),
    HostOp(
        scale_bytes,
        _scaled,
        {**_FACTORS, "sums": Array(1, ("int32",)), "zero_point": INT16},
        ("int32",),
        c=C("tw_scale_bytes", "x out size out.shape.:2 scale zero_point weight_scale bias sums"),
    ),
)
