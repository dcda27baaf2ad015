"""Recurrent layers in the integers of TensorFlow Lite: gates and cells are int16.

`R` is the rounding of hw/rounding.py, contract double. Numbers before a gate's function have 12 fractional bits, those
behind it 15.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...hw.rounding import divide_by_power, rescale
from ..schema import Array, Int, Kind
from .c_calls import Value, Writer, type_of
from .fixed_point import exp, half_reciprocal, reciprocal, shifted
from .layers import dense_accumulators
from .row import PER_CHANNEL, HostOp, Operand, need

BITS = 15  # of an int16 value, besides the sign
GATE_INTEGER_BITS = 3  # of the sums that gates take
_ONE = (1 << BITS) - 1


def logistic(x: np.ndarray, integer_bits: int = GATE_INTEGER_BITS) -> np.ndarray:
    """1 / (1 + exp(-x)) in Q0.15, int64, of int16 values with `integer_bits`."""
    x = x.astype(np.int64)
    right = reciprocal(exp(-np.abs(x), integer_bits, BITS), BITS)
    return np.where(x == 0, 1 << BITS - 1, np.where(x > 0, right, _ONE - right))


def tanh(x: np.ndarray, integer_bits: int = GATE_INTEGER_BITS) -> np.ndarray:
    """tanh(x) in Q0.15, int64, of int16 values with `integer_bits`: 2 / (1 + exp(-2 * x)) - 1."""
    x = x.astype(np.int64)
    twice = half_reciprocal(exp(-np.abs(x), integer_bits + 1, BITS), BITS)  # one more integer bit doubles x
    right = shifted(twice - (1 << BITS - 2), 2, BITS)
    return np.where(x == 0, 0, np.where(x > 0, right, -right))


def _int16(x: np.ndarray) -> np.ndarray:
    return np.clip(x, -(1 << BITS), _ONE).astype(np.int16)


def _wrapped(x: np.ndarray) -> np.ndarray:
    return x.astype(np.int16).astype(np.int64)


def lstm(
    gates: np.ndarray,
    hidden: np.ndarray,
    cells: np.ndarray,
    *,
    weight: np.ndarray,
    bias: np.ndarray,
    gate_multiplier: np.ndarray,
    gate_exponent: np.ndarray,
    zero_point: int,
    cell_bits: int,
    clip: int,
    multiplier: int,
    exponent: int,
    coupled: bool = False,
) -> np.ndarray:
    """int16 (N, T + 1, C): what the hidden values of an LSTM are after each of T steps, and the cells after the last.

    `gates`, int16 (N, T, 4 * C), are the inputs' part of the sums: input, forget, cell and output gate; `weight`
    (4 * C, C), `bias`, `gate_multiplier` and `gate_exponent` make the part of the hidden values, int8 (N, C). If it is
    `coupled`, it has no input gate: 1 less the forget gate takes its place. `cells`, int16 (N, C), have `cell_bits`
    integer bits and are clamped to +-`clip` where that is not 0; `multiplier` and `exponent` take products of 30
    fractional bits to hidden values.
    """
    found = np.empty((gates.shape[0], gates.shape[1] + 1, cells.shape[1]), np.int16)
    after = {"cell_bits": cell_bits, "clip": clip, "multiplier": multiplier, "exponent": exponent, "coupled": coupled}
    for t in range(gates.shape[1]):
        sums = dense_accumulators(hidden, weight=weight, bias=bias, x_zero_point=0)
        own = rescale(sums, gate_multiplier, gate_exponent)
        found[:, t : t + 2] = lstm_step(gates[:, t : t + 1], own, cells, zero_point=zero_point, **after)
        hidden, cells = found[:, t].astype(np.int8), found[:, t + 1]
    return found


def lstm_step(
    gates: np.ndarray,
    own: np.ndarray,
    cells: np.ndarray,
    *,
    zero_point: int,
    cell_bits: int,
    clip: int,
    multiplier: int,
    exponent: int,
    coupled: bool = False,
) -> np.ndarray:
    """int16 (N, 2, C): the hidden values and the cells of an LSTM after one step.

    `gates`, int16 (N, 1, 4 * C), are the inputs' part of the sums, `own`, (N, 4 * C), that of the hidden values. The
    other arguments are those of `lstm`.
    """
    sums = _int16(gates[:, 0].astype(np.int64) + own)
    *first, forget, new, out = np.split(sums, 3 if coupled else 4, axis=1)
    forget = logistic(forget)
    allow = logistic(first[0]) if first else _ONE - forget
    product = divide_by_power(allow * tanh(new), 2 * BITS - (BITS - cell_bits))
    c = _int16(_wrapped(divide_by_power(forget * cells, BITS)) + _wrapped(product))
    c = np.clip(c, -clip, clip) if clip else c
    y = rescale(logistic(out) * tanh(c, cell_bits), multiplier, exponent) + zero_point
    return np.stack([np.clip(y, -128, 127).astype(np.int16), c], axis=1)


def lstm_steps(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """int16, a row per step and one for the cells."""
    gates, hidden, cells = inputs
    dtypes = [x.dtype for x in inputs]
    need(
        dtypes == ["int16", "int8", "int16"], f"gates, hidden values and cells are {dtypes}: must be int16, int8, int16"
    )
    need(len(gates.shape) == 3, f"gates {gates.shape}: must have 3 dimensions")
    n, steps, rows = gates.shape
    kinds = 3 if a["coupled"] else 4
    size = rows // kinds
    need(rows % kinds == 0, f"gates {gates.shape}: {rows} do not divide into {kinds} gates")
    for what, x in (("hidden values", hidden), ("cells", cells)):
        need(x.shape == (n, size), f"{what} {x.shape}: gates {gates.shape} need {(n, size)}")
    need(a["weight"].shape == (rows, size), f"weight {a['weight'].shape}: gates {gates.shape} need {(rows, size)}")
    for name in ("bias", "gate_multiplier", "gate_exponent"):
        need(a[name].shape == (rows,), f"{name} {a[name].shape}: gates {gates.shape} need {(rows,)}")
    return Operand((n, steps + 1, size), "int16", n * rows)


def lstm_stepped(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """int16 rows of hidden values and cells."""
    gates, own, cells = inputs
    dtypes = gates.dtype, cells.dtype
    need(dtypes == ("int16", "int16"), f"gates and cells are {dtypes}: must be int16")
    need(len(gates.shape) == 3 and gates.shape[1] == 1, f"gates {gates.shape}: must have 3 dimensions, of one step")
    n, _, rows = gates.shape
    kinds = 3 if a["coupled"] else 4
    need(rows % kinds == 0, f"gates {gates.shape}: {rows} do not divide into {kinds} gates")
    for what, x, needed in (("own sums", own, (n, rows)), ("cells", cells, (n, rows // kinds))):
        need(x.shape == needed, f"{what} {x.shape}: gates {gates.shape} need {needed}")
    return Operand((n, 2, rows // kinds), "int16", n * rows)


def _numbers(w: Writer, a: dict) -> str:
    return w.array("numbers", [a[key] for key in ("zero_point", "cell_bits", "clip", "multiplier", "exponent")])


def _lstm_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """All steps in one call; the output holds the state on the way."""
    pointers, sizes = [v.pointer for v in (*inputs, output)], (*inputs[0].shape[:2], inputs[1].shape[1])
    rows = np.concatenate([a["bias"], a["gate_multiplier"], a["gate_exponent"]])
    arrays = w.array("weights", a["weight"], "int8"), w.array("rows", rows), _numbers(w, a)
    w.call("tw_lstm", *pointers, *sizes, int(a["coupled"]), *arrays)


def _lstm_step_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    gates, own, cells = inputs
    pointers = gates.pointer, own.pointer, type_of(own), cells.pointer, output.pointer
    w.call("tw_lstm_step", *pointers, *cells.shape, int(a["coupled"]), _numbers(w, a))


_STEP: dict[str, Kind] = {"cell_bits": Int(0, 6), "clip": Int(0, (1 << 15) - 1)}
_LSTM = {**_STEP, "weight": Array(2, ("int8",)), **{f"gate_{name}": kind for name, kind in PER_CHANNEL.items()}}

ROWS = (
    HostOp(lstm, lstm_steps, _LSTM, ("int8", "int16"), (2, 3), 3, _lstm_in_c),
    HostOp(lstm_step, lstm_stepped, _STEP, ("int16", "int32"), (2, 3), 3, _lstm_step_in_c),
)
