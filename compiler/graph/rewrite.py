"""Rewrites of a graph: a rule replaces an operator by other operators.

A pass is a function from a graph to a graph; most are a few rules. `tilewright assign --passes` lists those of the
modules of a target.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np

from . import Graph, Operator, Readers, Tensor

T = TypeVar("T", bound=Operator)
Producers = Mapping[str, Operator]  # the operator that gives each tensor, by its name
Result = (
    Sequence[Operator] | Tensor | None
)  # operators, the last with the same output; an equal tensor; None to keep the operator


@dataclass(frozen=True)
class Rule(Generic[T]):
    """`better(op, readers, producers)` for operators of `kind`: its replacement, None to keep it.

    `readers` belong to the graph before the rewrite, `producers` are the operators before `op`, already rewritten.
    """

    kind: type[T] | tuple[type[T], ...]
    better: Callable[[T, Readers, Producers], Result]


def rewrite(graph: Graph, *rules: Rule[Any]) -> Graph:
    """`graph` with every operator replaced as the first rule with a result says; itself if no rule has one.

    If a rule gives a tensor, which equals the output, the readers get it.
    """
    readers, producers, same = graph.readers, dict[str, Operator](), dict[str, Tensor]()
    ops: list[Operator] = []
    for op in graph.ops:
        op = reading(op, same)
        found = next(filter(None, (r.better(op, readers, producers) for r in rules if isinstance(op, r.kind))), [op])
        if isinstance(found, Tensor):
            same[op.output.name] = found
            continue
        ops += found
        producers |= {new.output.name: new for new in found}
    return graph if tuple(ops) == graph.ops else replace(graph, ops=tuple(ops))


def reading(op: Operator, same: Mapping[str, Tensor]) -> Operator:
    """`op` on the tensors of `same` in place of those that they equal, by name."""
    if not any(t.name in same for t in op.inputs):
        return op
    return replace(op, inputs=tuple(same.get(t.name, t) for t in op.inputs))


def moved_from(t: Tensor, producers: Producers) -> tuple[Tensor, list[Operator]]:
    """(The tensor that `t` is moved from by operators that rearrange elements alone, these operators)."""
    moves = list[Operator]()
    while (op := producers.get(t.name)) is not None and op.rearranges:
        moves.insert(0, op)
        t = op.x
    return t, moves


def moved_places(t: Tensor, *moves: Operator) -> np.ndarray:
    """The index in `t` of each element after `moves`, which rearrange elements, applied one after the other."""
    found = np.arange(math.prod(t.shape)).reshape(t.shape)
    for op in moves:
        found = op.moved(found)
    return found


def transposes(op: Operator, axes: tuple[int, ...]) -> bool:
    """True of the transposition by `axes`, and of a reshape that does the same, as with one channel."""
    if not op.rearranges or {len(op.x.shape), len(op.output.shape)} != {len(axes)}:
        return False
    return np.array_equal(moved_places(op.x, op), moved_places(op.x).transpose(axes))


def without_unread(graph: Graph) -> Graph:
    """`graph` without the operators whose results nobody reads."""
    needed, live = {t.name for t in graph.wanted}, list[Operator]()
    for op in reversed(graph.ops):
        if op.output.name in needed:
            live.append(op)
            needed |= {t.name for t in op.inputs}
    return replace(graph, ops=tuple(reversed(live)))
