"""Recurrent layers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..statements import Value, Writer, type_of

_NUMBERS = ("zero_point", "cell_bits", "clip", "multiplier", "exponent")


def lstm(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """All steps in one call; the output holds the state on the way."""
    gates, hidden, cells = inputs
    (count, steps, _), units = gates.shape, hidden.shape[1]
    rows = np.concatenate([a["bias"], a["gate_multiplier"], a["gate_exponent"]])
    w.call(
        *("tw_lstm", gates.pointer, hidden.pointer, cells.pointer, output.pointer),
        *(count, steps, units, int(a.get("coupled", False)), w.array("weights", a["weight"], "int8")),
        *(w.array("rows", rows), w.array("numbers", [a[key] for key in _NUMBERS])),
    )


def lstm_step(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """As a step of `lstm`."""
    gates, own, cells = inputs
    numbers = w.array("numbers", [a[key] for key in _NUMBERS])
    sizes = *cells.shape, int(a.get("coupled", False))
    w.call("tw_lstm_step", gates.pointer, own.pointer, type_of(own), cells.pointer, output.pointer, *sizes, numbers)
