"""Whether the integers of an operator stay within int32, from its weights, zero points and scales.

Accumulators wrap on the device, and so does a left shift of the rounding contracts; scales beyond a multiplier's range
saturate. Where no int8 input can make that happen, the results are those of the definition in unlimited integers.
"""

from __future__ import annotations

import numpy as np

from ...hw import rounding
from .operators import Ends, Operator, Reach


def times(ends: Ends, count: int) -> Ends:
    """The ends of sums of `count` values."""
    return ends[0] * count, ends[1] * count


def products(x: Ends, y: Ends) -> Ends:
    """The ends of products of two values."""
    found = [a * b for a in x for b in y]
    return min(found), max(found)


def sums(weight: np.ndarray, bias: np.ndarray, x: Ends) -> tuple[np.ndarray, np.ndarray]:
    """(least, largest), int64 (O,): `bias + sum(weight * x)`, weights with the output channel first.

    The padding of a convolution, which adds nothing, is between them.
    """
    rows = weight.reshape(len(weight), -1)
    rising, falling = (part.sum(1, dtype=np.int64) for part in (np.maximum(rows, 0), np.minimum(rows, 0)))
    return bias + rising * x[0] + falling * x[1], bias + rising * x[1] + falling * x[0]


def int32_bytes(low: int, high: int) -> int:
    """How many bytes hold each int32 number of a range: 3 or 4."""
    return 3 if -(1 << 23) <= low and high < 1 << 23 else 4


def sum_bytes(weight: np.ndarray) -> int:
    """How many bytes hold each sum of products of int8 numbers with weights, output channel first: 3 or 4."""
    low, high = sums(weight, np.zeros(1, np.int32), (-128, 127))
    return int32_bytes(int(low.min()), int(high.max()))


_INT32 = np.iinfo(np.int32)
_MOST_FACTOR = 2.0**30  # factors below it have a multiplier and an exponent (hw/rounding.py)


def problem(op: Operator) -> str:
    """The reason why integers of `op` leave int32, to print after its name; empty where none does."""
    reach = op.reach()
    if reach is None:
        return op.excess()
    return _outside(reach) or _unscalable(op, reach) or _shifted(op, reach) or op.excess()


def headroom(op: Operator) -> int | None:
    """Bits of int32 that no accumulator of `op` needs for any input; None for an operator without accumulators.

    An accumulator times 2**headroom still fits. Below 0 some wrap: `problem` says which, and front ends refuse them.
    """
    reach = op.reach()
    if reach is None:
        return None
    ends = int(reach.low.min()), int(reach.high.max())
    return _INT32.bits - 1 - max((end if end >= 0 else ~end).bit_length() for end in ends)


def _channel(reach: Reach, k: int) -> str:
    return "" if reach.biases is None else f" for output channel {k} (bias {reach.biases[k]})"


def _outside(reach: Reach) -> str:
    wrong = np.flatnonzero((reach.low < _INT32.min) | (reach.high > _INT32.max))
    if not wrong.size:
        return ""
    k = wrong[0]
    return (
        f"has accumulators from {reach.low[k]} to {reach.high[k]}{_channel(reach, k)}, "
        f"outside {_INT32.min}..{_INT32.max}, where they wrap"
    )


def _unscalable(op: Operator, reach: Reach) -> str:
    used = (reach.low < 0) | (reach.high > 0)
    fits = np.isfinite(reach.factors) & (reach.factors >= 0) & ((reach.factors < _MOST_FACTOR) | ~used)
    wrong = np.flatnonzero(~fits)
    if not wrong.size:
        return ""
    k = wrong[0]
    return (
        f"scales accumulators by {reach.factors[k]:g}{_channel(reach, k)} to output scale {op.output.scale:g}; "
        "the factor must be at least 0 and below 2**30"
    )


def _shifted(op: Operator, reach: Reach) -> str:
    """The rounding contracts shift an accumulator left, in int32, by the exponent of a factor of 1 or more."""
    exponents = reach.exponents
    if exponents is None:
        exponents = np.array([rounding.quantize_multiplier(factor)[1] for factor in reach.factors], np.int64)
    shift = np.maximum(exponents, 0)
    largest = np.where(shift > 0, np.maximum(np.abs(reach.low), np.abs(reach.high)), 0)
    wrong = np.flatnonzero(largest > np.int64(_INT32.max) >> shift)
    if not wrong.size:
        return ""
    k = wrong[0]
    return (
        f"scales accumulators of up to {largest[k]} by 2**{shift[k] - 1} or more to output scale "
        f"{op.output.scale:g}; at most {_INT32.max >> shift[k]} are allowed; give the output a larger scale"
    )
