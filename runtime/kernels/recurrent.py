"""Recurrent layers on numpy arrays, in the integers of TensorFlow Lite: gates and cells are int16.

Arrays are positional arguments, attributes keyword arguments; `R` is the rounding of hw/rounding.py, contract double.
Numbers before a gate's function have 12 fractional bits, those behind it 15.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...hw.rounding import divide_by_power, rescale
from ..operators import dense_accumulators
from ..softmax import exp, half_reciprocal, reciprocal, shifted

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


def dense_int16(
    x: np.ndarray,
    *,
    weight: np.ndarray,
    bias: np.ndarray,
    multiplier: np.ndarray,
    exponent: np.ndarray,
    x_zero_point: int,
    dtype: str = "int16",
) -> np.ndarray:
    """`clamp(R(bias + (x - x_zero_point) @ weight.T))` of int8 rows as `dtype`; R is per row of the weights."""
    acc = dense_accumulators(x, weight=weight, bias=bias, x_zero_point=x_zero_point)
    info = np.iinfo(dtype)
    return np.clip(rescale(acc, multiplier, exponent), info.min, info.max).astype(dtype)


def filter_int16(
    window: np.ndarray, *, weight: np.ndarray, bias: np.ndarray, multiplier: int, exponent: int, zero_point: int
) -> np.ndarray:
    """int8 (N, U) `clamp(zero_point + R(bias + sum(window * weight)))` of int16 windows (N, F, M), weights (F, M).

    Unit u sums the F / U filters from `u * F / U` on; the sum wraps at 32 bits.
    """
    sums = (window.astype(np.int64) * weight).sum(2).reshape(len(window), len(bias), -1).sum(2) + bias
    result = rescale(sums.astype(np.int32), multiplier, exponent) + zero_point
    return np.clip(result, -128, 127).astype(np.int8)


def narrow(x: np.ndarray) -> np.ndarray:
    """int8 of integers that are its values; others are clamped."""
    return np.clip(x, -128, 127).astype(np.int8)


def rescale_integers(
    x: np.ndarray, *, x_zero_point: int, zero_point: int, multiplier: int, exponent: int, dtype: str
) -> np.ndarray:
    """`clamp(zero_point + R(x - x_zero_point))` as `dtype`, int8, int16 or int32, of integers `x`."""
    result = rescale(x.astype(np.int64) - x_zero_point, multiplier, exponent) + zero_point
    info = np.iinfo(dtype)
    return np.clip(result, info.min, info.max).astype(dtype)


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
    count, steps, rows = gates.shape
    kinds = 3 if coupled else 4
    h, c = hidden, cells
    found = np.empty((count, steps + 1, rows // kinds), np.int16)
    for t in range(steps):
        own = dense_accumulators(h, weight=weight, bias=bias, x_zero_point=0)
        sums = gates[:, t].astype(np.int64) + rescale(own, gate_multiplier, gate_exponent)
        after = {"multiplier": multiplier, "exponent": exponent, "zero_point": zero_point}
        h, c = _step(np.split(_int16(sums), kinds, axis=1), c, cell_bits=cell_bits, clip=clip, **after)
        found[:, t] = h
    found[:, steps] = c
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
    sums = np.split(_int16(gates[:, 0].astype(np.int64) + own), 3 if coupled else 4, axis=1)
    after = {"multiplier": multiplier, "exponent": exponent, "zero_point": zero_point}
    return np.stack(_step(sums, cells, cell_bits=cell_bits, clip=clip, **after), axis=1)


def _step(
    sums: Sequence[np.ndarray],
    cells: np.ndarray,
    *,
    cell_bits: int,
    clip: int,
    multiplier: int,
    exponent: int,
    zero_point: int,
) -> tuple[np.ndarray, np.ndarray]:
    """(hidden values, int8, cells, int16) of the sums of each gate, int16, and the cells before."""
    *first, forget, new, out = sums
    forget = logistic(forget)
    allow = logistic(first[0]) if first else _ONE - forget
    product = divide_by_power(allow * tanh(new), 2 * BITS - (BITS - cell_bits))
    c = _int16(_wrapped(divide_by_power(forget * cells, BITS)) + _wrapped(product))
    c = np.clip(c, -clip, clip) if clip else c
    y = rescale(logistic(out) * tanh(c, cell_bits), multiplier, exponent) + zero_point
    return np.clip(y, -128, 127).astype(np.int8), c
