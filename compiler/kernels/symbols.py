"""Numbers that are known when a run begins, as a token and its position: elements of inputs, symbols of a launch."""

from __future__ import annotations

from collections.abc import Sequence

from .. import graph as g


def limits(ops: Sequence[g.Operator]) -> dict[str, int]:
    """How many values each symbol of `ops` may have, by the name of its tensor."""
    found: dict[str, int] = {}
    for t, limit in filter(None, (op.symbol for op in ops)):
        found[t.name] = min(limit, found.get(t.name, limit))
    return found
