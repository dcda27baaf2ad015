"""Operators that compute each value by itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...operators import rescale as rescaled
from ..statements import Value, Writer, real

_EVERY = np.arange(-128, 128).astype(np.int8)  # the int8 values


def quantize(w: Writer, inputs: Sequence[Value], output: Value, attrs: dict) -> None:
    """In float32."""
    (x,), away = inputs, int(attrs.get("ties_away", False))
    scale, zero = real(attrs["scale"]), attrs["zero_point"]
    w.call("tw_quantize", x.pointer, output.pointer, x.size, scale, zero, away, checked=True)


def expect_numbers(w: Writer, inputs: Sequence[Value], output: Value, attrs: dict) -> None:
    """Flags, all of which must be 0."""
    w.call("tw_expect_numbers", inputs[0].pointer, output.pointer, output.size, checked=True)


def dequantize(w: Writer, inputs: Sequence[Value], output: Value, attrs: dict) -> None:
    """In float32."""
    (x,) = inputs
    w.call("tw_dequantize", x.pointer, x.width, output.pointer, x.size, real(attrs["scale"]), attrs["zero_point"])


def recode(w: Writer, inputs: Sequence[Value], output: Value, attrs: dict) -> None:
    """The highest bit of each byte changes."""
    w.call("tw_recode", inputs[0].pointer, output.pointer, output.size)


def lookup(w: Writer, inputs: Sequence[Value], output: Value, attrs: dict) -> None:
    """The table is data."""
    table(w, inputs[0], output, attrs["table"])


def table(w: Writer, x: Value, y: Value, values: np.ndarray) -> None:
    """`values[x + 128]` of int8 x, values int8."""
    w.call("tw_lookup", x.pointer, y.pointer, y.size, w.array("table", values, "int8"))


def rescale(w: Writer, inputs: Sequence[Value], output: Value, attrs: dict) -> None:
    """A table of what the 256 values become."""
    table(w, inputs[0], output, rescaled(_EVERY, **attrs))
