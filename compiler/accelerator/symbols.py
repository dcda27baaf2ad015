"""Numbers that are known when a run begins, as a token and its position: elements of inputs, symbols of a launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...runtime.symbols.symbol import MOST_LIMIT
from .. import graph as g

_SYMBOLS: dict[type[g.Operator], Callable[[Any], tuple[g.Tensor, int]]] = {
    g.Gather: lambda op: (op.inputs[1], op.x.shape[0]),
    g.Rotate: lambda op: (op.inputs[1], len(op.cosine) // op.x.shape[0]),
    g.WriteRows: lambda op: (op.inputs[2], MOST_LIMIT),
    g.WriteColumns: lambda op: (op.inputs[2], op.x.shape[1] // op.tokens),
    g.Attention: lambda op: (op.inputs[3], op.seen // op.tokens),
}


def symbol_of(op: g.Operator) -> tuple[g.Tensor, int] | None:
    """The input of `op` that moves its addresses, and how many values its elements may have; None where none does."""
    find = _SYMBOLS.get(type(op))
    return find(op) if find else None


def limits(ops: Sequence[g.Operator]) -> dict[str, int]:
    """How many values each symbol of `ops` may have, by the name of its tensor."""
    found: dict[str, int] = {}
    for t, limit in filter(None, map(symbol_of, ops)):
        found[t.name] = min(limit, found.get(t.name, limit))
    return found
