"""Whether the integers of an operator stay within int32, from its weights, zero points and scales.

Accumulators wrap on the device, and so does a left shift of the rounding contracts; scales beyond a multiplier's range
saturate. Where no int8 input can make that happen, the results are those of the definition in unlimited integers.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...hw import rounding
from ...runtime.kernels.attention import LARGEST_SCORE
from ...runtime.kernels.roots import inverse_root
from .attention.layers import Attention, BatchMatMul, RmsNorm
from .deeploy.layers import IntegerSoftmax
from .elementwise import SQUARE_SHIFT, Prelu, SquaredDifference
from .layers import Linear
from .operators import ADD_SHIFT, Add, Mul, Operator, Requantize, Tensor
from .recurrent.layers import Dense16
from .windows import AveragePool, ExactAveragePool, Mean

_INT32 = np.iinfo(np.int32)
_MOST_FACTOR = 2.0**30  # of hw/rounding.py's multipliers and exponents


class Reach(NamedTuple):
    """What an operator's accumulators reach, int64, and the factors that scale them, float64; one per channel, or
    one for all.
    """

    low: np.ndarray
    high: np.ndarray
    factors: np.ndarray


def problem(op: Operator) -> str:
    """What is wrong with the integers of `op`, to print after its name; empty where nothing is."""
    reach = reach_of(op)
    if reach is None:
        return ""
    return _outside(op, reach) or _unscalable(op, reach) or _shifted(op, reach) or _masked(op, reach)


def reach_of(op: Operator) -> Reach | None:
    """The accumulators of all int8 inputs of `op`; None of an operator without any."""
    if isinstance(op, (Linear, Dense16)):
        return Reach(*_linear(op), op.scales)
    if isinstance(op, Add):
        return _reach(_sum(op), op.factors[2])
    if isinstance(op, Mul):
        x, y = _ends(op.inputs[0]), _ends(op.inputs[1])
        products = [a * b for a in x for b in y]
        return _reach((min(products), max(products)), op.factor)
    if isinstance(op, Prelu):
        x, alpha = _ends(op.inputs[0]), _ends(op.inputs[1])
        products = [a * b for a in x for b in alpha]
        ends = np.array([x, (min(products), max(products))], np.int64)
        return Reach(ends[:, 0], ends[:, 1], np.array(op.factors))
    if isinstance(op, SquaredDifference):
        first, second = (_rescaled(op, k, SQUARE_SHIFT) for k in (0, 1))
        furthest = max(abs(first[1] - second[0]), abs(first[0] - second[1]))
        return _reach((0, furthest * furthest), op.factors[2])
    if isinstance(op, BatchMatMul):
        x, y = (_ends(t) for t in op.inputs)
        products = [a * b for a in x for b in y]
        return _reach(_times((min(products), max(products)), op.inner), op.factor)
    if isinstance(op, RmsNorm):
        most = 128 * inverse_root(np.zeros(len(op.factors), np.int64))
        return Reach(-most, most, op.factors)
    if isinstance(op, Attention):
        lanes = max(op.key_groups.count(group) for group in op.value_groups if group >= 0)
        most = np.array([2 * lanes << 14, _INT32.max])
        return Reach(-most, most, np.array(op.factors))
    if isinstance(op, IntegerSoftmax):
        return _reach((0, op.levels - 1), op.factor)
    if isinstance(op, Requantize):
        return _reach(_ends(op.x), op.factor)
    if isinstance(op, AveragePool):
        return _reach(_times(_ends(op.x), math.prod(op.kernel)), op.factor)
    if isinstance(op, Mean):
        return _reach(_times(_ends(op.x), op.count), op.factor)
    if isinstance(op, ExactAveragePool):
        return _reach(_times((-128, 127), math.prod(op.kernel)), 0.0)  # it divides, exactly: no multiplier
    return None


def headroom(op: Operator) -> int | None:
    """How many bits of int32 no accumulator of `op` needs, whatever the inputs; None of an operator without any.

    An accumulator times 2**headroom still fits. Below 0 some wrap: `problem` says which, and front ends refuse them.
    """
    reach = reach_of(op)
    if reach is None:
        return None
    ends = int(reach.low.min()), int(reach.high.max())
    return _INT32.bits - 1 - max((end if end >= 0 else ~end).bit_length() for end in ends)


def result_ends(op: Dense16) -> tuple[int, int]:
    """The least and the largest result of all int8 inputs, before it is clamped."""
    low, high = (rounding.rescale(sums, *op.multipliers) for sums in _linear(op))
    return int(low.min()), int(high.max())


def result_bytes(op: Operator) -> int:
    """How many bytes hold a result: as many as its type has, but of int32 those that its values need, 3 or 4."""
    if isinstance(op, Dense16) and op.output.dtype == "int32":
        low, high = result_ends(op)
        return 3 if -(1 << 23) <= low and high < 1 << 23 else 4
    return np.dtype(op.output.dtype).itemsize


def _reach(ends: tuple[int, int], factor: float) -> Reach:
    return Reach(np.array([ends[0]]), np.array([ends[1]]), np.array([factor], np.float64))


def _times(ends: tuple[int, int], count: int) -> tuple[int, int]:
    return ends[0] * count, ends[1] * count


def _ends(t: Tensor) -> tuple[int, int]:
    """The least and the largest value of an operand, without its zero point."""
    low, high = (-128, 127) if t.data is None else (int(t.data.min()), int(t.data.max()))
    return low - t.zero_point, high - t.zero_point


def _linear(op: Linear | Dense16) -> tuple[np.ndarray, np.ndarray]:
    """The sums of every channel: the padding of a convolution, which adds nothing, is between their ends."""
    weight = op.weight.reshape(len(op.weight), -1)
    rising, falling = (part.sum(1, dtype=np.int64) for part in (np.maximum(weight, 0), np.minimum(weight, 0)))
    low, high = _ends(op.x)
    return op.bias + rising * low + falling * high, op.bias + rising * high + falling * low


def _sum(op: Add) -> tuple[int, int]:
    """What the output's rescaling gets: both operands are rescaled before."""
    first, second = (_rescaled(op, k, ADD_SHIFT) for k in (0, 1))
    ends = sorted(op.sign * end for end in second)
    return first[0] + ends[0], first[1] + ends[1]


def _rescaled(op: Add | SquaredDifference, k: int, shift: int) -> tuple[int, int]:
    """The ends of operand `k`, shifted left and rescaled."""
    low, high = (int(rounding.rescale(end << shift, *op.multipliers[k])) for end in _ends(op.inputs[k]))
    return low, high


def _channel(op: Operator, k: int) -> str:
    return f" for output channel {k} (bias {op.bias[k]})" if isinstance(op, Linear) else ""


def _outside(op: Operator, reach: Reach) -> str:
    wrong = np.flatnonzero((reach.low < _INT32.min) | (reach.high > _INT32.max))
    if not wrong.size:
        return ""
    k = wrong[0]
    return (
        f"has accumulators from {reach.low[k]} to {reach.high[k]}{_channel(op, k)}, "
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
        f"scales accumulators by {reach.factors[k]:g}{_channel(op, k)} to output scale {op.output.scale:g}; "
        "the factor must be at least 0 and below 2**30"
    )


def _shifted(op: Operator, reach: Reach) -> str:
    """The rounding contracts shift an accumulator left, in int32, by the exponent of a factor of 1 or more."""
    exponents = np.array([rounding.quantize_multiplier(factor)[1] for factor in reach.factors], np.int64)
    if isinstance(op, Mean):
        exponents = np.array([op.multipliers[1]])  # the count is in it
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


def _masked(op: Operator, reach: Reach) -> str:
    """Scores must be so small that those behind the position, which get a constant, weigh nothing."""
    largest = reach.high[0] * reach.factors[0] if isinstance(op, Attention) else 0
    if largest < LARGEST_SCORE:
        return ""
    return f"has scores of up to {largest:.3g} steps; at most {LARGEST_SCORE - 1} are allowed; give smaller scales"
