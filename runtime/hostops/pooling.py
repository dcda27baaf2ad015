"""Pools: operators on the windows of images NCHW, int8, of some operators also int16."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...hw import rounding
from .arrays import AnyArray, Attrs, Int8, Int64, Ints
from .c_calls import C, Value, Writer
from .layers import pad_image, window_places, windows
from .row import CLAMP, WIDE, HostOp, Operand, Operands, limited, need


def max_pool(x: AnyArray, *, kernel: Ints, strides: Ints, pads: Ints, low: int = -128, high: int = 127) -> AnyArray:
    """The largest element of each window of NCHW `x`, clamped to `low`..`high`."""
    largest = windows(pad_image(x, pads, np.iinfo(x.dtype).min), kernel, strides).max((4, 5))
    return np.clip(largest, low, high).astype(x.dtype)


def average_pool(
    x: Int8,
    *,
    kernel: Ints,
    strides: Ints,
    x_zero_point: int,
    zero_point: int,
    multiplier: int,
    exponent: int,
    low: int = -128,
    high: int = 127,
    contract: str = "double",
) -> Int8:
    """int8 `clamp(zero_point + R(sum(x - x_zero_point)), low, high)` over each window of NCHW `x`."""
    acc = windows(x, kernel, strides).sum((4, 5), dtype=np.int64) - kernel[0] * kernel[1] * x_zero_point
    return rounding.requantise(acc, multiplier, exponent, zero_point, low, high, contract)


def exact_average_pool(
    x: AnyArray, *, kernel: Ints, strides: Ints, pads: Ints, low: int = -128, high: int = 127, ties_up: bool = False
) -> AnyArray:
    """`sum(x) / n`, of `x`'s dtype, over each window of NCHW `x`, ties away from zero or up; padding does not count."""
    total, count = (
        windows(pad_image(t, pads, 0), kernel, strides).sum((4, 5), dtype=np.int64)
        for t in (x, np.ones_like(x[:1, :1]))
    )
    upwards: Int64 = (total + count // 2) // count
    rounded = np.where((total > 0) | ties_up, upwards, -((count // 2 - total) // count))
    return np.clip(rounded, low, high).astype(x.dtype)


def pooled(inputs: Operands, a: Attrs) -> Operand:
    """An element per window; the padded image is scratch."""
    n, c, *size = inputs[0].shape
    out, area = window_places(size, a["kernel"], a["strides"], a.get("pads", (0, 0, 0, 0)))
    return Operand((n, c, *out), inputs[0].dtype, n * c * area)


def averaged(inputs: Operands, a: Attrs) -> Operand:
    """An element per window; each window must hold a pixel, as padding has no mean."""
    found, pads = pooled(inputs, a), a["pads"]
    for k, (size, n) in enumerate(zip(inputs[0].shape[2:], found.shape[2:])):
        inside = pads[k] < a["kernel"][k] and (n - 1) * a["strides"][k] - pads[k] < size
        need(inside, f"pads = {pads}: windows of {a['kernel']} that hold padding alone have no mean")
    return found


POOL = "planes x.shape.2: out.shape.2: kernel strides"  # integers that functions of pools read in C


def _average_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> None:
    once = "ONCE" if a["contract"] == "single" else "TWICE"
    numbers = f"{POOL} 0 0 low high x_zero_point zero_point multiplier exponent"
    C("tw_pool", f"x out TW_RESCALED_{once} numbers", numbers)(w, inputs, output, a)


def _exact_average_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> None:
    ties = "UP" if a["ties_up"] else "AWAY"
    C("tw_pool", f"x out TW_MEAN_{ties} numbers", f"{POOL} pads.:2 low high 0 0 0 0")(w, inputs, output, a)


ROWS = (
    HostOp(
        max_pool,
        limited(pooled),
        CLAMP,
        WIDE,
        (4,),
        c=C("tw_pool", "x out TW_LARGEST numbers", f"{POOL} pads.:2 low high 0 0 0 0"),
        narrow=True,
    ),
    HostOp(average_pool, pooled, ranks=(4,), c=_average_in_c),
    HostOp(exact_average_pool, limited(averaged), CLAMP, WIDE, (4,), c=_exact_average_in_c, narrow=True),
)
