"""How each operator treats the order of channels, and the tensors that therefore share one order.

Layers read channels in any order and give theirs in any; element-wise operators, pools and depthwise layers give the
order that they read; a concatenation and a flattened image follow theirs. All others want the order of the file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import singledispatch

import numpy as np

from .. import graph as g


class Kind(Enum):
    """What the order of an operator's output follows."""

    LAYER = "any order that is wanted"
    SAME = "the order of its operands"
    DERIVED = "the orders of its operands, one after the other"
    FIXED = "the order of the file"


@dataclass(frozen=True)
class Tie:
    """How an operator treats orders of channels: these are dimension `axis` of its output, -1 where they are none.

    `operands` has for each input the dimension along which it may have another order than the file's, -1 where it must
    have that.
    """

    kind: Kind
    axis: int
    operands: tuple[int, ...]


@dataclass
class Ties:
    """The ties of a graph: `of` by operator, `axis` by tensor whose channels a layer gave.

    `root` stands for the tensors that share one order.
    """

    of: dict[str, Tie] = field(default_factory=dict)
    axis: dict[str, int] = field(default_factory=dict)
    _parents: dict[str, str] = field(default_factory=dict)

    def root(self, tensor: str) -> str:
        """The name that stands for all tensors with the order of `tensor`."""
        while (parent := self._parents.get(tensor, tensor)) != tensor:
            self._parents[tensor] = self._parents.get(parent, parent)
            tensor = parent
        return tensor

    def add(self, op: g.Operator) -> None:
        """Note how `op` treats the orders of its inputs, which are known."""
        axes = [-1 if t.data is not None else self.axis.get(t.name, -1) for t in op.inputs]
        tie = self.of[op.name] = _tie(op, axes) or Tie(Kind.FIXED, -1, (-1,) * len(axes))
        if tie.axis < 0:
            return
        self.axis[op.output.name] = tie.axis
        if tie.kind is Kind.SAME:
            for t, axis in zip(op.inputs, tie.operands):
                if axis >= 0 and self.axis.get(t.name) == axis:
                    self._parents[self.root(t.name)] = self.root(op.output.name)


def ties(graph: g.Graph) -> Ties:
    """The ties of every operator of `graph`."""
    found = Ties()
    for op in graph.ops:
        found.add(op)
    return found


@singledispatch
def _tie(op: g.Operator, axes: list[int]) -> Tie | None:
    """How `op` treats orders; None where it wants that of the file.

    `axes` has the dimension of each input's channels, -1 where no layer gave them.
    """
    if op.elementwise:
        return _of_operands(op, axes)
    known = len(axes) == 1 and axes[0] >= 0 and op.x.shape[axes[0]] > 1
    axis = op.carried(axes[0]) if known else -1
    return None if axis < 0 else Tie(Kind.SAME, axis, (axes[0],))


@_tie.register(g.Linear)
def _of_layer(op: g.Linear, axes: list[int]) -> Tie | None:
    if op.groups > 1:
        alike = op.depthwise and len(op.weight) == op.groups and axes[0] == 1
        return Tie(Kind.SAME, 1, (1,)) if alike else None
    return Tie(Kind.LAYER, 1, (1 if axes[0] == 1 else -1,))


def _of_operands(op: g.Operator, axes: list[int]) -> Tie | None:
    """Operands that broadcast: those with all channels share the order, constants and others follow it."""
    shape = op.output.shape
    behind = {axis - len(t.shape) for t, axis in zip(op.inputs, axes) if axis >= 0 and t.shape[axis] > 1}
    if len(behind) != 1:
        return None
    axis = len(shape) + behind.pop()
    found = []
    for t in op.inputs:
        own = axis - len(shape) + len(t.shape)
        found.append(own if own >= 0 and t.shape[own] > 1 else -1)
    whole = all(own < 0 or t.shape[own] == shape[axis] for t, own in zip(op.inputs, found))
    return Tie(Kind.SAME, axis, tuple(found)) if whole and shape[axis] > 1 else None


@_tie.register(g.Concat)
def _of_concat(op: g.Concat, axes: list[int]) -> Tie | None:
    known = {axis for axis in axes if axis >= 0}
    if len(known) != 1:
        return None
    axis = known.pop()
    if axis == op.axis and len(axes) > 1:
        return Tie(Kind.DERIVED, axis, tuple(axis if own >= 0 else -1 for own in axes))
    return Tie(Kind.SAME, axis, (axis,) * len(axes)) if op.output.shape[axis] > 1 else None


@_tie.register(g.Reshape)
def _of_reshape(op: g.Reshape, axes: list[int]) -> Tie | None:
    """Dimensions of 1 come and go; otherwise all but the first become one, whose order is derived."""
    (axis,) = axes
    if axis >= 0 and op.x.shape[axis] > 1 and (own := op.carried(axis)) >= 0:
        return Tie(Kind.SAME, own, (axis,))
    if axis > 0 and len(op.output.shape) == 2 and op.output.shape[0] == op.x.shape[0]:
        return Tie(Kind.DERIVED, 1, (axis,))
    return None


def derived(op: g.Operator, tie: Tie, orders: list[np.ndarray]) -> np.ndarray:
    """The order of the output of `op`, of kind `DERIVED`, from those of its inputs along `tie.operands`.

    An order has the channel of the file at each place, -1 where there is none.
    """
    if len(op.inputs) > 1:  # a concatenation, else a reshape
        starts = np.cumsum([0, *(t.shape[tie.axis] for t in op.inputs)])
        parts = [np.where(order < 0, -1, order + start) for order, start in zip(orders, starts)]
        return np.concatenate(parts)
    (order,), axis, shape = orders, tie.operands[0] - 1, op.x.shape[1:]
    places = np.arange(np.prod(shape)).reshape(shape).take(np.maximum(order, 0), axis)
    dead = np.expand_dims(order < 0, tuple(k for k in range(len(shape)) if k != axis))
    return np.where(dead, -1, places).reshape(-1)
