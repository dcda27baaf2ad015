"""Operators on windows of images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...kernels.resize import integer_positions, real_positions
from ..statements import Value, Writer, type_of
from .arithmetic import walks

_SUM = ("x_zero_point", "zero_point", "multiplier", "exponent")


def _pool(w: Writer, x: Value, y: Value, a: dict, function: str) -> None:
    n, c, *size = x.shape
    numbers = [n * c, *size, *y.shape[2:], *a["kernel"], *a["strides"], *a.get("pads", (0, 0))[:2]]
    numbers += [a.get("low", -128), a.get("high", 127), *(a.get(key, 0) for key in _SUM)]
    w.call("tw_pool", x.pointer, y.pointer, function, w.array("numbers", numbers))


def max_pool(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """One function has all pools."""
    _pool(w, inputs[0], output, a, "TW_LARGEST")


def average_pool(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """As `max_pool`."""
    once = a.get("contract", "double") == "single"
    _pool(w, inputs[0], output, a, "TW_RESCALED_ONCE" if once else "TW_RESCALED_TWICE")


def exact_average_pool(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """As `max_pool`."""
    _pool(w, inputs[0], output, a, "TW_MEAN_UP" if a.get("ties_up", False) else "TW_MEAN_AWAY")


def mean(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """A walk in a walk."""
    (x,) = inputs
    kept, reduced, _ = walks(w, x, a["axes"])
    w.call("tw_mean", x.pointer, output.pointer, kept, reduced, w.array("numbers", [a[key] for key in _SUM]))


def resize_bilinear(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """Neighbours and their weights, per row and per column, are data."""
    (x,), offset = inputs, a.get("offset")
    n, c, *size = x.shape
    numbers = w.array("numbers", [n * c, *size, *a["size"]])
    how = a.get("align_corners", False), a.get("half_pixel_centers", False)
    real = x.dtype == "float32" or offset is not None
    place = real_positions if real else integer_positions
    rows, columns = (place(size[k], a["size"][k], *how) for k in (0, 1))
    if not real:
        tables = (w.array("neighbours", np.stack(found, 1)) for found in (rows, columns))
        w.call("tw_resize", x.pointer, output.pointer, numbers, *tables)
        return
    tables = []
    for low, high, weight in (rows, columns):
        tables += [w.array("neighbours", np.stack([low, high], 1)), w.array("weights", weight, "float32")]
    w.call("tw_resize_real", x.pointer, output.pointer, type_of(x), offset or 0, numbers, *tables)
