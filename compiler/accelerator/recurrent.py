"""LSTMs of one step, as networks that stream have them: the products of the hidden values apart from the functions.

Both products of a step, that of its inputs and that of its hidden values, then run in one launch, and the host takes
the functions of their sums.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from .. import graph as g
from ..graph.rewrite import Producers, Rule, rewrite

_INT16 = np.iinfo(np.int16)


def split_steps(graph: g.Graph, pays: Callable[[g.Dense16], bool]) -> g.Graph:
    """LSTMs of one step give the products of their hidden values to the accelerator, where that `pays`."""

    def apart(op: g.Lstm, readers: g.Readers, producers: Producers) -> list[g.Operator] | None:
        if op.x.shape[1] > 1 or not pays(own := _own(op)):
            return None
        return [own, g.LstmStep(op.name, (op.x, own.output, op.inputs[2]), op.output, op.factor, op.clip, op.coupled)]

    return rewrite(graph, Rule(g.Lstm, apart))


def _own(op: g.Lstm) -> g.Dense16:
    """The part of the hidden values in the sums: int16 where all values are, else int32, as they are not clamped."""
    gates, hidden, _ = op.inputs
    bias = op.bias + hidden.zero_point * op.weight.sum(1, dtype=np.int64)  # an `Lstm` has the zero point in its bias
    y = g.Tensor(f"{op.name}.own", (hidden.shape[0], len(op.weight)), "int32", gates.scale)
    own = g.Dense16(y.name, (hidden,), y, op.weight, bias.astype(np.int32), op.scales)
    low, high = own.result_ends
    if _INT16.min <= low and high <= _INT16.max:
        return replace(own, output=replace(y, dtype="int16"))
    return own
