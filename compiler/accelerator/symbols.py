"""Numbers that are known when a run begins, as a token and its position: elements of inputs, symbols of a launch."""

from __future__ import annotations

from collections.abc import Sequence

from ...runtime.symbols.symbol import MOST_LIMIT
from .. import graph as g


def symbol_of(op: g.Operator) -> tuple[g.Tensor, int] | None:
    """The input of `op` that moves its addresses, and how many values its elements may have; None where none does."""
    match op:
        case g.Gather():
            return op.inputs[1], op.x.shape[0]
        case g.Rotate():
            return op.inputs[1], len(op.cosine) // op.x.shape[0]
        case g.WriteRows():
            return op.inputs[2], MOST_LIMIT
        case g.WriteColumns():
            return op.inputs[2], op.x.shape[1] // op.tokens
        case g.Attention():
            return op.inputs[3], op.seen // op.tokens
    return None


def limits(ops: Sequence[g.Operator]) -> dict[str, int]:
    """How many values each symbol of `ops` may have, by the name of its tensor."""
    found: dict[str, int] = {}
    for t, limit in filter(None, map(symbol_of, ops)):
        found[t.name] = min(limit, found.get(t.name, limit))
    return found
