"""Memory of a launch's activations: tensors that share bytes, and the arena of those that stay on the device."""

from __future__ import annotations

from collections.abc import Sequence

from ...hw.config import Config
from .. import graph as g
from ..kernels.recording import packed_bytes
from ..memory import Lifetime, Plan, plan
from ..target.steps import wanted_from

_ALIGN = 64  # bytes: the alignment of a buffer


def is_view(op: g.Operator) -> bool:
    """True if the packed output has bytes of the packed input."""
    return op.viewed is not None


def bases(ops: Sequence[g.Operator]) -> dict[str, str]:
    """Map every tensor of `ops` to the tensor whose packed bytes it shares."""
    base = {t.name: t.name for op in ops for t in op.inputs}
    for op in ops:
        base[op.output.name] = base[op.x.name] if is_view(op) or op.overwrites else op.output.name
    return base


def packed_as(ops: Sequence[g.Operator]) -> dict[str, g.Tensor]:
    """Map every output of `ops` to the tensor whose images and channels its packed bytes are those of."""
    found: dict[str, g.Tensor] = {}
    for op in ops:
        found[op.output.name] = found.get(op.x.name, op.x) if op.viewed is op.x else op.output
    return found


def _parts(op: g.Operator, cfg: Config) -> Sequence[tuple[g.Tensor, int]]:
    """Inputs of `op` that may lie inside its output, with their first channel there.

    Where channels follow that do not begin a block, they take the lanes that the first input leaves empty.
    """
    parts = op.parts if op.output.shape[0] <= cfg.batch and op.output.dtype == "int8" else ()
    whole = all(t.data is None and channel % cfg.block_in == 0 for t, channel in parts)
    return parts if whole else [(t, channel) for t, channel in parts[:1] if t.data is None]


def members(graph: g.Graph, ops: Sequence[g.Operator], cfg: Config) -> dict[str, tuple[g.Operator, int]]:
    """Tensors that are computed inside the output of another operator, with their first channel there.

    Inputs from outside the launch, its outputs, and tensors that have a place already are copied instead.
    """
    base, work = bases(ops), [op for op in ops if not is_view(op)]
    inside = {op.output.name for op in work} & {*base.values()} - {base[t.name] for t in wanted_from(graph, ops)}
    found: dict[str, tuple[g.Operator, int]] = {}
    for op in work:
        for t, channel in _parts(op, cfg):
            if base[t.name] in inside:
                found.setdefault(base[t.name], (op, channel))
    return found


def arena_plan(graph: g.Graph, ops: Sequence[g.Operator], cfg: Config) -> Plan:
    """Plan the arena of a launch: packed activations that only `ops` of `graph` produce and read."""
    base, parts = bases(ops), members(graph, ops, cfg)

    def whole(t: g.Tensor) -> str:
        name = base[t.name]
        while name in parts:
            name = parts[name][0].output.name
        return name

    outside = {base[t.name] for t in wanted_from(graph, ops)}
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    planned: dict[str, g.Operator] = {}
    for step, op in enumerate(op for op in ops if not is_view(op)):
        first.setdefault(whole(op.output), step)
        last |= {whole(t): step for t in op.tensors if t.data is None}
        if whole(op.output) == op.output.name not in outside:
            planned[op.output.name] = op
    sizes = {name: op.output.nbytes if op.unpacked else packed_bytes(op.output, cfg) for name, op in planned.items()}

    def replaced(op: g.Operator, size: int) -> tuple[str, ...]:
        """The tensors whose place the output may take, as its elements are made of those at their places."""
        names = dict.fromkeys(base[t.name] for t in op.inputs) if op.elementwise else ()
        return tuple(name for name in names if sizes.get(name) == size)

    times = ((name, size, first[name], last[name]) for name, size in sizes.items())
    return plan(Lifetime(*facts, _ALIGN, replaced(planned[facts[0]], facts[1])) for facts in times)
