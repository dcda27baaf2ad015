"""Layers of weights, which are data, that a program leaves to the host."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..statements import Value, Writer, type_of


def _weights(w: Writer, a: dict) -> tuple[str, str, str]:
    """(weights, their type, biases)."""
    weight = a["weight"]
    kind = type_of(Value("", weight.shape, str(weight.dtype)))
    return w.array("weights", weight, str(weight.dtype)), kind, w.array("biases", a["bias"])


def _convolution(w: Writer, function: str, x: Value, y: Value, a: dict) -> None:
    pads, dilations = a["pads"][:2], a.get("dilations", (1, 1))
    numbers = [*x.shape, *y.shape[1:], *a["weight"].shape[1:], *a["strides"], *pads, *dilations, a.get("groups", 1)]
    name = w.array("numbers", [*numbers, a["x_zero_point"]])
    w.call(function, x.pointer, y.pointer, *_weights(w, a), name)


def conv2d_accumulators(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """Sums of each output."""
    _convolution(w, "tw_conv2d", inputs[0], output, a)


def conv_transpose2d_accumulators(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """Sums of each output."""
    _convolution(w, "tw_conv_transpose2d", inputs[0], output, a)


def _scales(w: Writer, a: dict) -> str:
    return w.array("scales", np.concatenate([a["multiplier"], a["exponent"]]))


def _dense(w: Writer, x: Value, y: Value, a: dict, scales: str) -> None:
    (units, features), zero = a["weight"].shape, a["x_zero_point"]
    sizes = x.shape[0], features, units
    w.call("tw_dense", x.pointer, y.pointer, type_of(y), *sizes, *_weights(w, a), zero, scales)


def dense_accumulators(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """Sums alone."""
    _dense(w, inputs[0], output, a, "0")


def dense_int16(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """Sums, rescaled."""
    _dense(w, inputs[0], output, a, _scales(w, a))


def requantise(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """Per channel."""
    (x,), once = inputs, int(a.get("contract", "double") == "single")
    sizes, clamp = (*x.shape[:2], math.prod(x.shape[2:])), (a.get("low", -128), a.get("high", 127))
    w.call("tw_requantise_channels", x.pointer, output.pointer, *sizes, _scales(w, a), once, a["zero_point"], *clamp)


def filter_int16(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """Sums of the filters of each unit."""
    (x,) = inputs
    numbers = [*x.shape, output.shape[1], a["zero_point"], a["multiplier"], a["exponent"]]
    weights, bias = w.array("weights", a["weight"], "int16"), w.array("biases", a["bias"])
    w.call("tw_filter", x.pointer, output.pointer, weights, bias, w.array("numbers", numbers))
