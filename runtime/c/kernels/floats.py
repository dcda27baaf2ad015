"""Layers in float32 whose products are added one after the other."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ....hw.errors import UnsupportedError
from ..statements import Value, Writer
from .attention import around


def _ordered(a: dict, op: str) -> None:
    if not a.get("ordered", False):
        known = "adds products in the order of a library"
        raise UnsupportedError(f"host operator {op!r} {known}, for which there is no C kernel; run it with Python")


def _convolution(w: Writer, function: str, x: Value, y: Value, a: dict) -> None:
    weight = a["weight"]
    numbers = [*x.shape, *y.shape[1:], *weight.shape[1:], *a["strides"], *a["pads"][:2], *a["dilations"], a["groups"]]
    arrays = w.array("weights", weight, "float32"), w.array("biases", a["bias"], "float32")
    w.call(function, x.pointer, y.pointer, *arrays, w.array("numbers", numbers))


def float_conv2d(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """Sums of each output."""
    _ordered(a, "float_conv2d")
    _convolution(w, "tw_float_conv2d", inputs[0], output, a)


def float_conv_transpose2d(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """Sums of each output."""
    _ordered(a, "float_conv_transpose2d")
    _convolution(w, "tw_float_conv_transpose2d", inputs[0], output, a)


def float_matmul(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """A walk through the matrices."""
    _ordered(a, "float_matmul")
    x, y = inputs
    count, (rows, columns) = output.shape[:-2], output.shape[-2:]
    plan = w.walk(count, *(around(v.shape[:-2], count, math.prod(v.shape[-2:])) for v in (x, y)))
    w.call("tw_float_matmul", x.pointer, y.pointer, output.pointer, rows, columns, x.shape[-1], plan)


def _pool(w: Writer, x: Value, y: Value, a: dict, largest: int) -> None:
    n, c, *size = x.shape
    numbers = [n * c, *size, *y.shape[2:], *a["kernel"], *a["strides"], *a["pads"][:2]]
    counts = int(a.get("padding_counts", False))
    w.call("tw_float_pool", x.pointer, y.pointer, largest, counts, w.array("numbers", numbers))


def float_max_pool(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """One function has both pools."""
    _pool(w, inputs[0], output, a, 1)


def float_average_pool(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """As `float_max_pool`."""
    _pool(w, inputs[0], output, a, 0)
