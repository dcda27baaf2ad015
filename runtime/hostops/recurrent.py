"""Recurrent layers in the integers of TensorFlow Lite: gates and cells are int16.

`R` is the rounding of hw/rounding.py, contract double. Arguments of a gate's function have 12 fractional bits, its
results 15.
"""

from __future__ import annotations

import numpy as np

from ...hw.rounding import divide_by_power, rescale
from ..schema import Array, Int, Kind
from .arrays import AnyArray, Attrs, Int8, Int16, Int32, Int64
from .c_calls import C
from .fixed_point import exp, half_reciprocal, reciprocal, shifted
from .layers import dense_accumulators
from .row import PER_CHANNEL, HostOp, Operand, Operands, need

BITS = 15  # bits of an int16 value, besides the sign
GATE_INTEGER_BITS = 3  # integer bits of the arguments of gates
_ONE = (1 << BITS) - 1


def logistic(x: Int16, integer_bits: int = GATE_INTEGER_BITS) -> Int64:
    """1 / (1 + exp(-x)) in Q0.15, int64, of int16 values with `integer_bits`."""
    wide = x.astype(np.int64)
    right = reciprocal(exp(-np.abs(wide), integer_bits, BITS), BITS)
    return np.where(x == 0, 1 << BITS - 1, np.where(x > 0, right, _ONE - right))


def tanh(x: Int16, integer_bits: int = GATE_INTEGER_BITS) -> Int64:
    """tanh(x) in Q0.15, int64, of int16 values with `integer_bits`: 2 / (1 + exp(-2 * x)) - 1."""
    wide = x.astype(np.int64)
    twice = half_reciprocal(exp(-np.abs(wide), integer_bits + 1, BITS), BITS)  # one more integer bit doubles x
    right = shifted(twice - (1 << BITS - 2), 2, BITS)
    return np.where(x == 0, 0, np.where(x > 0, right, -right))


def _int16(x: AnyArray) -> AnyArray:
    return np.clip(x, -(1 << BITS), _ONE).astype(np.int16)


def _wrapped(x: AnyArray) -> AnyArray:
    return x.astype(np.int16).astype(np.int64)


def lstm(
    gates: Int16,
    hidden: Int8,
    cells: Int16,
    *,
    weight: Int8,
    bias: Int32,
    gate_multiplier: AnyArray,
    gate_exponent: AnyArray,
    zero_point: int,
    cell_bits: int,
    clip: int,
    multiplier: int,
    exponent: int,
    coupled: bool = False,
) -> Int16:
    """int16 (N, T + 1, C): the hidden values of an LSTM after each of T steps, and its cells after the last.

    `gates`, int16 (N, T, 4 * C), are the inputs' part of the sums of input, forget, cell and output gate; `weight`
    (4 * C, C), `bias`, `gate_multiplier` and `gate_exponent` give the part of the hidden values, int8 (N, C). A
    `coupled` layer has no input gate: 1 less the forget gate takes its place. `cells`, int16 (N, C), have `cell_bits`
    integer bits and are clamped to +-`clip` where that is not 0; `multiplier` and `exponent` take products of 30
    fractional bits to hidden values.
    """
    found = np.empty((gates.shape[0], gates.shape[1] + 1, cells.shape[1]), np.int16)
    after = {"cell_bits": cell_bits, "clip": clip, "multiplier": multiplier, "exponent": exponent}
    for t in range(gates.shape[1]):
        sums = dense_accumulators(hidden, weight=weight, bias=bias, x_zero_point=0)
        own = rescale(sums, gate_multiplier, gate_exponent)
        found[:, t : t + 2] = lstm_step(
            gates[:, t : t + 1], own, cells, zero_point=zero_point, coupled=coupled, **after
        )
        hidden, cells = found[:, t].astype(np.int8), found[:, t + 1]
    return found


def lstm_step(
    gates: Int16,
    own: AnyArray,
    cells: Int16,
    *,
    zero_point: int,
    cell_bits: int,
    clip: int,
    multiplier: int,
    exponent: int,
    coupled: bool = False,
) -> Int16:
    """int16 (N, 2, C): the hidden values and the cells of an LSTM after one step.

    `gates`, int16 (N, 1, 4 * C), are the inputs' part of the sums, `own`, (N, 4 * C), the part of the hidden values;
    `lstm` describes the other arguments.
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


def _lstm_result(inputs: Operands, a: Attrs) -> Operand:
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


def _step_result(inputs: Operands, a: Attrs) -> Operand:
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


_STEP: dict[str, Kind] = {"cell_bits": Int(0, 6), "clip": Int(0, (1 << 15) - 1)}
_LSTM = {**_STEP, "weight": Array(2, ("int8",)), **{f"gate_{name}": kind for name, kind in PER_CHANNEL.items()}}
_NUMBERS = "zero_point cell_bits clip multiplier exponent"

ROWS = (
    HostOp(
        lstm,
        _lstm_result,
        _LSTM,
        ("int8", "int16"),
        (2, 3),
        3,
        C(
            "tw_lstm",
            "inputs out x.shape.:2 out.shape.2 coupled weight bias+gate_multiplier+gate_exponent numbers",
            _NUMBERS,
        ),
    ),
    HostOp(
        lstm_step,
        _step_result,
        _STEP,
        ("int16", "int32"),
        (2, 3),
        3,
        C("tw_lstm_step", "x x1 x1_type x2 out x2.shape coupled numbers", _NUMBERS),
    ),
)
