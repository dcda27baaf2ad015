"""Channels whose weights are -1, 0 and 1 times one factor, and layers that have the factor in their scale instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...hw.errors import InputError
from ...hw.rounding import requantise
from .. import graph as g
from ..graph.ranges import problem
from .check import shown

_VALUES = np.arange(-127, 128)  # of an output, but for the lowest


def factors(op: g.Linear) -> np.ndarray:
    """int64 (O,): the k of each channel whose weights are all -k, 0 or k, 1 where all are 0; 0 for other channels."""
    size = np.abs(op.weight.astype(np.int64)).reshape(len(op.weight), -1)
    most = size.max(1)
    one = ((size == 0) | (size == most[:, None])).all(1)
    return np.where(one, np.maximum(most, 1), 0)


def capable(op: g.Linear, contract: str) -> np.ndarray:
    """The channels, bool (O,), that `relabelled` can divide by their factor."""
    found = factors(op)
    if not (found > 1).any():
        return found == 1
    return (found > 0) & ((found == 1) | _biases(op, found, contract)[1])


def relabelled(op: g.Linear, channels: Sequence[int], contract: str) -> g.Linear:
    """`op` with weights of -1, 0 and 1 in `channels`: the factor moves into scale and bias, every result stays.

    The requantisation in the rounding contract `contract` gives the same integer for every possible sum of products.
    Raises `InputError`, which names the layer and the channel, where weights have several sizes, or where no multiplier
    and bias round so.
    """
    chosen = np.zeros(len(op.weight), bool)
    chosen[list(channels)] = True
    found = factors(op)
    if (chosen & (found == 0)).any():
        channel = int(np.flatnonzero(chosen & (found == 0))[0])
        size = np.unique(np.abs(op.weight[channel].astype(np.int64)))
        sizes = " and ".join(map(str, size[size > 0][-2:]))
        raise InputError(
            f"layer {shown(op.name)}: channel {channel} cannot be ternary: it has weights of size {sizes}; all must be "
            "-k, 0 or k for one k; map it to gemm"
        )
    divisors = np.where(chosen, np.maximum(found, 1), 1)
    if (divisors == 1).all():
        return op
    bias, same = _biases(op, divisors, contract)
    if (wrong := np.flatnonzero(~same & (divisors > 1))).size:
        channel = int(wrong[0])
        raise InputError(
            f"layer {shown(op.name)}: channel {channel} cannot be ternary: its weights have size {divisors[channel]}, "
            f"and with that in its scale {op.weight_scale[channel]:g} results would round otherwise; map it to gemm"
        )
    return _divided(op, divisors, bias)


def _divided(op: g.Linear, divisors: np.ndarray, bias: np.ndarray) -> g.Linear:
    around = (-1, *(1,) * (op.weight.ndim - 1))
    weight = (op.weight // divisors.reshape(around)).astype(op.weight.dtype)
    scale = (op.weight_scale * divisors).astype(np.float32)
    return replace(op, weight=weight, weight_scale=scale, bias=bias.astype(np.int32))


def _biases(op: g.Linear, found: np.ndarray, contract: str) -> tuple[np.ndarray, np.ndarray]:
    """(int64 (O,) biases for the weights divided by `found`, bool (O,) whether all results stay with them)."""
    divisors = np.maximum(found, 1)
    low = op.bias.astype(np.int64) // divisors
    best, same = low, np.zeros(len(low), bool)
    if problem(op):
        return best, same
    for bias in (low, low + (op.bias % divisors != 0)):
        equal = _equal(op, _divided(op, divisors, bias), divisors, contract)
        best, same = np.where(equal & ~same, bias, best), same | equal
    return best, same & (found > 0)


def _equal(op: g.Linear, new: g.Linear, divisors: np.ndarray, contract: str) -> np.ndarray:
    """Whether, bool (O,), `new` has the results of `op` for every sum of products that int8 inputs can make.

    Results do not fall as sums rise, so it is enough that each value begins at the same sum.
    """
    if problem(new):
        return np.zeros(len(divisors), bool)
    reach = new.reach()
    low, high = (np.asarray(end, np.int64) - new.bias for end in (reach.low, reach.high))
    ends = np.minimum(low, 0), np.maximum(high, 0)
    steps = [_steps(layer, k, *ends, contract) for layer, k in ((op, divisors), (new, np.ones_like(divisors)))]
    return (steps[0] == steps[1]).all(1)


def _steps(op: g.Linear, factor: np.ndarray, low: np.ndarray, high: np.ndarray, contract: str) -> np.ndarray:
    """int64 (O, values): the smallest sum of low..high, times `factor` one of `op`, that gives each value or more.

    high + 1 where none does.
    """
    multiplier, exponent = (part[:, None] for part in op.multipliers)
    bias, factor = op.bias.astype(np.int64)[:, None], factor[:, None]
    first = np.broadcast_to(low[:, None], (len(low), len(_VALUES))).copy()
    last = np.broadcast_to(high[:, None] + 1, first.shape).copy()
    facts = op.output.zero_point, op.low, op.high, op.contract or contract
    while (first < last).any():
        middle = (first + last) // 2
        reached = requantise(bias + factor * middle, multiplier, exponent, *facts) >= _VALUES
        open_ = first < last
        last = np.where(open_ & reached, middle, last)
        first = np.where(open_ & ~reached, middle + 1, first)
    return first
