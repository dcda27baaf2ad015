"""Operators of exponentials of float32, in the double precision of the kernels in numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ....hw.errors import UnsupportedError
from ...kernels.numbers import CUBIC, FULL, POWERS, SMALL, STEPS
from ..statements import Value, Writer, real
from .rows import along


def _table(w: Writer) -> str:
    return w.array("exponential", np.array([*POWERS, *CUBIC, STEPS]).view(np.int64), "int64")


def _exp(w: Writer, x: Value, y: Value) -> None:
    w.call("tw_exp", x.pointer, y.pointer, x.size, _table(w))


def _logistic(w: Writer, x: Value, y: Value) -> None:
    w.call("tw_logistic", x.pointer, y.pointer, x.size, real(float(FULL)), real(float(SMALL)), _table(w))


EXPONENTIALS: dict[str, Callable[[Writer, Value, Value], None]] = {"exp": _exp, "logistic": _logistic}


def float_softmax(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """By rows."""
    (x,) = inputs
    if a.get("logarithm", False):
        raise UnsupportedError("host operator 'float_softmax' has no C kernel for logarithms; run it with Python")
    w.call("tw_float_softmax", x.pointer, output.pointer, *along(x, a["axis"]), _table(w))
