"""Operators of Deeploy's dialect: integers alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..statements import Value, Writer, type_of
from .attention import around
from .pairs import pair_walk


def integer_matmul(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """A walk through the matrices."""
    x, y = inputs
    count, (rows, columns), inner = output.shape[:-2], output.shape[-2:], x.shape[-1]
    plan = w.walk(count, *(around(v.shape[:-2], count, math.prod(v.shape[-2:])) for v in (x, y)))
    types = x.pointer, type_of(x), y.pointer, type_of(y)
    w.call("tw_integer_matmul", *types, output.pointer, rows, columns, inner, plan)


def requant_shift(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """A walk through the three inputs."""
    numbers = w.array("numbers", [a["shift"], a["low"], a["high"], a.get("zero_point", 0)])
    pointers, plan = [v.pointer for v in inputs], pair_walk(w, inputs, output)
    w.call("tw_requant_shift", *pointers, output.pointer, type_of(output), plan, numbers)


def integer_softmax(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """By rows."""
    (x,), size = inputs, output.shape[-1]
    numbers = [a[key] for key in ("quadratic", "linear", "constant", "period", "levels", "multiplier", "exponent")]
    numbers = w.array("numbers", [*numbers, a.get("zero_point", 0), a.get("low", -128), a.get("high", 127)])
    w.call("tw_integer_softmax", x.pointer, type_of(x), output.pointer, x.size // size, size, numbers)


def integer_norm(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """By rows, with or without a bias."""
    x, weight, *biases = inputs
    size = x.shape[-1]
    bias = biases[0].pointer if biases else "0"
    numbers = w.array("numbers", [a["shift"], a.get("low", -128), a.get("high", 127), a.get("x_zero_point", 0)])
    arrays = x.pointer, type_of(x), weight.pointer, bias, output.pointer
    w.call("tw_integer_norm", *arrays, x.size // size, size, numbers)
