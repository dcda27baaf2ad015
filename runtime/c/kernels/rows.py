"""Operators along an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ....hw.errors import UnsupportedError
from ...softmax import exponentials
from ..statements import Value, Writer
from .moves import unpack

MOST_SUMMED = 8191  # exponentials of a softmax: their sum is below 2**32


def along(x: Value, axis: int) -> tuple[int, int, int]:
    """(rows before the axis, elements along it, elements behind it)."""
    return math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :])


def softmax(w: Writer, inputs: Sequence[Value], output: Value, attrs: dict) -> None:
    """The exponentials of the 256 differences are data."""
    (x,) = inputs
    rows, count, inner = along(x, attrs["axis"])
    if count > MOST_SUMMED:
        raise UnsupportedError(f"softmax of {count} values has no C kernel; at most {MOST_SUMMED} are summed")
    known, _ = exponentials(attrs["multiplier"], attrs["exponent"])
    name = w.array("exponentials", known)
    w.call("tw_softmax", x.pointer, output.pointer, rows, count, inner, name, attrs.get("bits", 8))


def unpack_softmax(w: Writer, inputs: Sequence[Value], output: Value, attrs: dict) -> None:
    """`unpack`, then `softmax`, where it fits in the same place."""
    place = w.scratch(output.size) if output.width > 1 else output.pointer
    plain = Value(place, output.shape, "int8")
    unpack(w, inputs, plain, attrs)
    softmax(w, [plain], output, attrs)


def l2_normalize(w: Writer, inputs: Sequence[Value], output: Value, attrs: dict) -> None:
    """By rows."""
    (x,), first = inputs, int(attrs.get("scaled_first", False))
    sizes = along(x, attrs["axis"])
    w.call("tw_l2_normalize", x.pointer, output.pointer, *sizes, attrs["x_zero_point"], first)
