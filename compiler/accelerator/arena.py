"""Memory of a launch's activations: tensors that share bytes, and the arena of those that stay on the device."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...hw.config import Config
from .. import graph as g
from ..memory.plan import Lifetime, Plan, plan
from ..target.steps import wanted_from
from .recording import packed_shape

_ALIGN = 64  # bytes: the alignment of a buffer


def is_view(op: g.Operator) -> bool:
    """True if the packed output has the bytes of the packed input: one pixel, with all channels in order."""
    if not isinstance(op, (g.Reshape, g.Transpose)) or op.output.dtype != "int8":
        return False
    shapes = [t.shape for t in (op.x, op.output)]
    return all(len(s) in (2, 4) and s[0] * s[1] == op.x.nbytes for s in shapes) and shapes[0][0] == shapes[1][0]


def bases(ops: Sequence[g.Operator]) -> dict[str, str]:
    """Map every tensor of `ops` to the tensor whose packed bytes it shares."""
    base = {t.name: t.name for op in ops for t in op.inputs}
    for op in ops:
        base[op.output.name] = base[op.x.name] if is_view(op) else op.output.name
    return base


def packed_bytes(t: g.Tensor, cfg: Config) -> int:
    """Bytes of a tensor in blocks of channels; the elements of a vector are channels."""
    shape = t.shape if len(t.shape) > 1 else (1, *t.shape)
    return math.prod(packed_shape(shape, cfg))


def members(graph: g.Graph, ops: Sequence[g.Operator]) -> dict[str, tuple[g.Concat, int]]:
    """Tensors that are computed inside the output of a concatenation, with their first channel there.

    Inputs from outside the launch, its outputs, and tensors that two concatenations read are copied instead.
    """
    base = bases(ops)
    computed = {op.output.name for op in ops if not is_view(op)} - {base[t.name] for t in wanted_from(graph, ops)}
    found: dict[str, tuple[g.Concat, int]] = {}
    for op in ops:
        if isinstance(op, g.Concat) and op.axis == 1:
            channel = 0
            for t in op.inputs:
                if base[t.name] in computed - set(found):
                    found[base[t.name]] = op, channel
                channel += t.shape[1]
    return found


def arena_plan(graph: g.Graph, ops: Sequence[g.Operator], cfg: Config) -> Plan:
    """Plan the arena of a launch: packed activations that only `ops` of `graph` produce and read."""
    base, parts = bases(ops), members(graph, ops)

    def whole(name: str) -> str:
        while name in parts:
            name = parts[name][0].output.name
        return name

    outside = {base[t.name] for t in wanted_from(graph, ops)}
    work = [op for op in ops if not is_view(op)]
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for step, op in enumerate(work):
        name = whole(op.output.name)
        first[name] = min(step, first.get(name, step))
        last |= {whole(base[t.name]): step for t in op.inputs if t.data is None} | {name: step}
    planned = {op.output.name: op for op in work if op.output.name not in outside and op.output.name not in parts}
    found = []
    for name, op in planned.items():
        replaced: tuple[str, ...] = ()
        if isinstance(op, (g.Add, g.Requantize, g.Lookup)):
            replaced = tuple({base[t.name]: None for t in op.inputs if base[t.name] in planned})
        found.append(Lifetime(name, packed_bytes(op.output, cfg), first[name], last[name], _ALIGN, replaced))
    return plan(found)
