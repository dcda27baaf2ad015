"""Graphs of one network for texts of different lengths: attention reads as many positions as a text has."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ..graph import Graph

SHORTEST = 64  # positions that the first of the graphs reads; each of the others reads twice as many


class Contexts(NamedTuple):
    """`graphs[k]` reads the positions below `ends[k]`, where it gives what the last one gives, the network itself.

    `position` is the input that says where in a text a run is.
    """

    position: str
    ends: tuple[int, ...]
    graphs: tuple[Graph, ...]


def in_contexts(graph: Graph) -> Contexts | None:
    """The graphs of a network; None of one without attention, or whose position is not an input."""
    found = [op for op in graph.ops if op.seen]
    positions, inputs = {op.inputs[-1].name for op in found}, {t.name for t in graph.inputs}
    if len(positions) != 1 or not positions <= inputs:
        return None
    whole = min(op.seen for op in found)
    ends = [SHORTEST << k for k in range(whole.bit_length()) if SHORTEST << k < whole]
    return Contexts(positions.pop(), (*ends, whole), (*(_reading(graph, end) for end in ends), graph))


def _reading(graph: Graph, seen: int) -> Graph:
    return replace(graph, ops=tuple(replace(op, seen=seen) if op.seen else op for op in graph.ops))
