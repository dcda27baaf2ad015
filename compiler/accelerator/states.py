"""Caches as states of a launch: written in place, which is right where nobody wants their former values."""

from __future__ import annotations

from collections.abc import Sequence

from ...hw.config import Config
from ...runtime import layout
from ...runtime.executable import Tensor
from .. import graph as g
from ..kernels.recording import packed_shape


def refused(graph: g.Graph, ops: Sequence[g.Operator]) -> dict[str, str]:
    """Why `ops` of `graph` cannot be in a launch, by name: symbols that are no inputs, caches that are no states."""
    inputs, found = {t.name for t in graph.inputs}, dict[str, str]()
    for op in ops:
        if (symbol := op.symbol) and symbol[0].name not in inputs:
            found[op.name] = f"{symbol[0].name!r} is no input of the network"
    reasons = {op.name: _not_in_place(graph, ops, op) for op in graph.of(g.Write) if op in ops}
    return found | {name: why for name, why in reasons.items() if why}


def _not_in_place(graph: g.Graph, ops: Sequence[g.Operator], op: g.Write) -> str:
    cache = op.x.name
    if not any((s.tensor.name, s.next.name) == (cache, op.output.name) for s in graph.states):
        return f"{cache!r} is no state that becomes its output"
    others = [s.tensor.name for s in graph.states if s.tensor.name != cache and s.next.name in (cache, op.output.name)]
    if others:
        return f"state {others[0]!r} takes its values, too"
    if sum(t.name == cache for other in graph.ops for t in other.inputs) > 1 or op.x in graph.outputs:
        return f"the values of {cache!r} before it are read, too"
    mine = {o.name for o in ops}
    if op.output in graph.outputs or any(op.output in o.inputs for o in graph.ops if o.name not in mine):
        return f"{op.output.name!r} is read elsewhere"
    return ""


def state_of(graph: g.Graph, cache: g.Tensor, cfg: Config) -> Tensor:
    """The state of an executable that holds `cache` in blocks of channels, and becomes what launches make of it."""
    initial = next(s.initial for s in graph.states if s.tensor.name == cache.name)
    packed = layout.pack_blocks(initial, cfg.batch, cfg.block_in)
    return Tensor(cache.name, packed_shape(cache.shape, cfg), "int8", "state", packed, cache.name)
