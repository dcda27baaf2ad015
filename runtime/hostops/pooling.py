"""Pools: int8 operators on the windows of images NCHW."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...hw import rounding
from .c_calls import Value, Writer
from .layers import pad_image, window_places, windows
from .row import HostOp, Operand, need


def max_pool(
    x: np.ndarray,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    low: int = -128,
    high: int = 127,
) -> np.ndarray:
    """The largest element of each window of NCHW `x`, clamped to `low`..`high`, int8."""
    largest = windows(pad_image(x, pads, -128), kernel, strides).max((4, 5))
    return np.clip(largest, low, high).astype(np.int8)


def average_pool(
    x: np.ndarray,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    x_zero_point: int,
    zero_point: int,
    multiplier: int,
    exponent: int,
    low: int = -128,
    high: int = 127,
    contract: str = "double",
) -> np.ndarray:
    """int8 `clamp(zero_point + R(sum(x - x_zero_point)), low, high)` over each window of NCHW `x`."""
    acc = windows(x, kernel, strides).sum((4, 5), dtype=np.int64) - kernel[0] * kernel[1] * x_zero_point
    return rounding.requantise(acc, multiplier, exponent, zero_point, low, high, contract)


def exact_average_pool(
    x: np.ndarray,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    low: int = -128,
    high: int = 127,
    ties_up: bool = False,
) -> np.ndarray:
    """int8 `sum(x) / n` over each window of NCHW `x`, ties away from zero or up; padding does not count."""
    total, count = (
        windows(pad_image(t, pads, 0), kernel, strides).sum((4, 5), dtype=np.int64)
        for t in (x, np.ones_like(x[:1, :1]))
    )
    rounded = np.where((total > 0) | ties_up, (total + count // 2) // count, -((count // 2 - total) // count))
    return np.clip(rounded, low, high).astype(np.int8)


def pooled(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """int8, one per window."""
    n, c, *size = inputs[0].shape
    out, area = window_places(size, a["kernel"], a["strides"], a.get("pads", (0, 0, 0, 0)))
    return Operand((n, c, *out), "int8", n * c * area)


def averaged(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """int8, one per window, each of which holds a pixel."""
    found, pads = pooled(inputs, a), a["pads"]
    for k, (size, n) in enumerate(zip(inputs[0].shape[2:], found.shape[2:])):
        inside = pads[k] < a["kernel"][k] and (n - 1) * a["strides"][k] - pads[k] < size
        need(inside, f"pads = {pads}: windows of {a['kernel']} that hold padding alone have no mean")
    return found


def _pool_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """One function has all pools of int8 values."""
    if "ties_up" in a:
        function = "TW_MEAN_UP" if a["ties_up"] else "TW_MEAN_AWAY"
    elif "contract" in a:
        function = "TW_RESCALED_ONCE" if a["contract"] == "single" else "TW_RESCALED_TWICE"
    else:
        function = "TW_LARGEST"
    (x,) = inputs
    n, c, *size = x.shape
    numbers = [n * c, *size, *output.shape[2:], *a["kernel"], *a["strides"], *a.get("pads", (0, 0))[:2]]
    numbers += [
        a["low"],
        a["high"],
        *(a.get(key, 0) for key in ("x_zero_point", "zero_point", "multiplier", "exponent")),
    ]
    w.call("tw_pool", x.pointer, output.pointer, function, w.array("numbers", numbers))


ROWS = (
    HostOp(max_pool, pooled, ranks=(4,), c=_pool_in_c),
    HostOp(average_pool, pooled, ranks=(4,), c=_pool_in_c),
    HostOp(exact_average_pool, averaged, ranks=(4,), c=_pool_in_c),
)
