"""The order of channels of every tensor: units one behind the other, for all layers that share a tensor's order."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...hw.errors import InputError
from .. import graph as g
from .check import shown
from .ties import Kind, Ties, derived

Ternary = Mapping[str, frozenset[int]]  # channels of unit `ternary`, by layer
_MOST_SHOWN = 4


class Orders:
    """Orders of the tensors of a graph for the channels of unit `ternary`, by layer.

    An order is int64, for each place the channel of the file there, -1 for a dead one, which fills GEMM's part to whole
    blocks of `block_out`; None stands for the file's order.
    """

    def __init__(self, graph: g.Graph, ties: Ties, ternary: Ternary, block_out: int):
        self.ties = ties
        self._found: dict[str, np.ndarray | None] = {}
        self._derived = {
            ties.root(op.output.name): op for op in reversed(graph.ops) if ties.of[op.name].kind is Kind.DERIVED
        }
        self._sizes = {op.output.name: op.output.shape for op in graph.ops}
        self.ternary: dict[str, int] = {}  # the last channels of each layer, dead ones included
        together: dict[str, list[g.Operator]] = {}
        for op in graph.ops:
            if op.name in ternary:
                together.setdefault(ties.root(op.output.name), []).append(op)
        for root, layers in together.items():
            self._found[root] = self._grouped(layers, ternary, block_out)

    def of(self, tensor: str) -> np.ndarray | None:
        """The order of `tensor`'s channels, which are dimension `ties.axis[tensor]`."""
        if tensor not in self.ties.axis:
            return None
        root = self.ties.root(tensor)
        if root not in self._found:
            self._found[root] = None
            if root in self._derived:
                self._found[root] = self.natural(self._derived[root])
        return self._found[root]

    def natural(self, op: g.Operator) -> np.ndarray | None:
        """The order that the output of `op`, of kind `DERIVED`, has without a movement."""
        tie, orders = self.ties.of[op.name], []
        for t, axis in zip(op.inputs, tie.operands):
            found = None if axis < 0 else self.of(t.name)
            orders.append(np.arange(t.shape[tie.axis if axis < 0 else axis]) if found is None else found)
        return _short(derived(op, tie, orders))

    def _grouped(self, layers: list[g.Operator], ternary: Ternary, block: int) -> np.ndarray | None:
        """The order for layers that share one, and how many of its places are ternary in each.

        Every layer's ternary channels are the last, so that of any two layers one has those of the other.
        """
        layers = sorted(layers, key=lambda op: -len(ternary[op.name]))
        rest = frozenset(range(self._sizes[layers[0].output.name][1]))
        parts, starts = [], {}
        for k, op in enumerate(layers):
            if k and not ternary[op.name] <= ternary[layers[k - 1].name]:
                raise InputError(_disagreement(layers[k - 1].name, op.name, ternary))
            if rest != ternary[op.name]:
                part = sorted(rest - ternary[op.name])
                parts += [*part, *[-1] * (-len(part) % block)]
            rest, starts[op.name] = ternary[op.name], len(parts)
        parts += sorted(rest)
        self.ternary |= {name: len(parts) - start for name, start in starts.items()}
        return _short(np.array(parts))


def _short(order: np.ndarray) -> np.ndarray | None:
    return None if np.array_equal(order, np.arange(len(order))) else order


def _disagreement(first: str, second: str, ternary: Ternary) -> str:
    alone = []
    for one, other in ((first, second), (second, first)):
        channels = sorted(ternary[one] - ternary[other])
        alone.append(", ".join(map(str, channels[:_MOST_SHOWN])) + (", ..." if len(channels) > _MOST_SHOWN else ""))
    return (
        f"layers {shown(first)} and {shown(second)} share one order of channels, as a sum of them needs: the ternary "
        f"channels of one must be among the other's; {alone[0]} are in the first alone, {alone[1]} in the second; map "
        "them alike"
    )
