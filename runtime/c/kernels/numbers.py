"""Operators on numbers of any type, and by position."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..statements import Value, Writer, strides, type_of
from .rows import along


def arg_max(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """A scan of each row."""
    (x,), smallest = inputs, int(a.get("smallest", False))
    w.call("tw_arg_max", x.pointer, type_of(x), output.pointer, type_of(output), *along(x, a["axis"]), smallest)


def top_k(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """A scan of each row for each value."""
    (x,) = inputs
    rows, size = math.prod(x.shape[:-1]), x.shape[-1]
    w.call("tw_top_k", x.pointer, type_of(x), output.pointer, rows, size, a["count"], int(a["positions"]))


def gather(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """Pieces behind the axis, for each part before it."""
    x, where = inputs
    axis = a["axis"]
    step = strides(x.shape, x.width)[axis]
    outer = math.prod(x.shape[:axis])
    _gather(w, x, where, output, (outer, step * x.shape[axis]), where.size, step, [x.shape[axis], step])


def _gather(
    w: Writer, x: Value, where: Value, y: Value, outer: tuple[int, int], count: int, run: int, sizes: Sequence[int]
) -> None:
    plan = w.array("gather", [len(sizes) // 2, *sizes])
    w.call("tw_gather", x.pointer, where.pointer, type_of(where), y.pointer, *outer, count, run, plan, checked=True)


def gather_nd(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """Pieces behind the dimensions of the positions."""
    x, where = inputs
    depth, steps = where.shape[-1], strides(x.shape, x.width)
    run = math.prod(x.shape[depth:]) * x.width
    sizes = [v for pair in zip(x.shape[:depth], steps) for v in pair]
    _gather(w, x, where, output, (1, 0), math.prod(where.shape[:-1]), run, sizes)


def cast(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """One by one."""
    (x,) = inputs
    w.call("tw_cast", x.pointer, type_of(x), output.pointer, type_of(output), x.size)


def narrow(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """One by one."""
    (x,) = inputs
    w.call("tw_narrow", x.pointer, type_of(x), output.pointer, x.size)


def rescale_integers(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """One by one."""
    (x,) = inputs
    numbers = [a[key] for key in ("x_zero_point", "zero_point", "multiplier", "exponent")]
    numbers = [int32_constant(n) for n in numbers]
    w.call("tw_rescale_integers", x.pointer, type_of(x), output.pointer, type_of(output), x.size, *numbers)


def int32_constant(value: int) -> str:
    """C has no constant of the smallest integer, only the negative of one beyond the largest."""
    return str(value) if value > np.iinfo(np.int32).min else "INT32_MIN"
