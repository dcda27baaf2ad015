"""Memory of a launch's activations: tensors that share bytes, and the arena of those that stay on the device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from ...hw.config import Config
from .. import graph as g
from ..kernels.recording import packed_bytes, whole_blocks
from ..kernels.stand_ins import Absorbed
from ..memory.plan import Lifetime, Plan, plan
from ..target.steps import wanted_from

_ALIGN = 64  # bytes: the alignment of a buffer


def viewed(op: g.Operator) -> g.Tensor | None:
    """Of an operator whose packed output has the bytes of its packed input: whose images and channels they are.

    Such are reshapes of one pixel, with all channels in order, or of the pixels alone, and heads. The output may also
    have the bytes of the first channels, where its reader knows the others, or some of the input's.
    """
    if isinstance(op, (Absorbed, g.Lanes)):
        return op.output
    if isinstance(op, g.Heads):
        return op.x if op.in_place else None
    if not isinstance(op, (g.Reshape, g.Transpose)) or op.output.dtype != "int8":
        return None
    x, y = op.x.shape, op.output.shape
    if isinstance(op, g.Reshape) and min(len(x), len(y)) > 3 and x[:2] == y[:2]:
        return op.output
    pixel = all(len(s) in (2, 4) and s[0] * s[1] == op.x.nbytes for s in (x, y)) and x[0] == y[0]
    return op.x if pixel else None


def is_view(op: g.Operator) -> bool:
    """True if the packed output has bytes of the packed input."""
    return viewed(op) is not None


def bases(ops: Sequence[g.Operator]) -> dict[str, str]:
    """Map every tensor of `ops` to the tensor whose packed bytes it shares."""
    base = {t.name: t.name for op in ops for t in op.inputs}
    for op in ops:
        shared = is_view(op) or isinstance(op, g.Write)  # a cache is written in place
        base[op.output.name] = base[op.x.name] if shared else op.output.name
    return base


def packed_as(ops: Sequence[g.Operator]) -> dict[str, g.Tensor]:
    """Map every output of `ops` to the tensor whose images and channels its packed bytes are those of."""
    found: dict[str, g.Tensor] = {}
    for op in ops:
        found[op.output.name] = found.get(op.x.name, op.x) if viewed(op) is op.x else op.output
    return found


def _places(op: g.Operator, cfg: Config) -> Iterator[tuple[g.Tensor, int]]:
    """Inputs of `op` that may lie inside its output, with their first channel there.

    Where channels follow that do not begin a block, they take the lanes that the first input leaves empty.
    """
    if isinstance(op, g.Concat) and whole_blocks(op, cfg):
        yield from zip(op.inputs, accumulate((t.shape[1] for t in op.inputs), initial=0))
    elif op.output.shape[0] <= cfg.batch and op.output.dtype == "int8" and op.x.data is None:
        joined = isinstance(op, g.Concat) and op.axis == 1
        if joined or isinstance(op, g.Pad) and len(op.pads) in (2, 4) and op.behind:
            yield op.x, 0


def members(graph: g.Graph, ops: Sequence[g.Operator], cfg: Config) -> dict[str, tuple[g.Operator, int]]:
    """Tensors that are computed inside the output of another operator, with their first channel there.

    Inputs from outside the launch, its outputs, and tensors that have a place already are copied instead.
    """
    base = bases(ops)
    computed = {op.output.name for op in ops if not is_view(op)} & {*base.values()}
    computed -= {base[t.name] for t in wanted_from(graph, ops)}
    found: dict[str, tuple[g.Operator, int]] = {}
    for op in (op for op in ops if not is_view(op)):
        for t, channel in _places(op, cfg):
            if base[t.name] in computed - set(found):
                found[base[t.name]] = op, channel
    return found


def arena_plan(graph: g.Graph, ops: Sequence[g.Operator], cfg: Config) -> Plan:
    """Plan the arena of a launch: packed activations that only `ops` of `graph` produce and read."""
    base, parts = bases(ops), members(graph, ops, cfg)

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
    inside = [op for op in work if not isinstance(op, g.Write)]
    planned = {op.output.name: op for op in inside if op.output.name not in outside and op.output.name not in parts}
    found = []
    for name, op in planned.items():
        replaced: tuple[str, ...] = ()
        if isinstance(op, (g.Add, g.Requantize, g.Lookup)):
            names = {base[t.name]: None for t in op.inputs if base[t.name] in planned}
            size = packed_bytes(op.output, cfg)
            replaced = tuple(one for one in names if packed_bytes(planned[one].output, cfg) == size)
        nbytes = op.output.nbytes if isinstance(op, g.QuantizeImage) else packed_bytes(op.output, cfg)
        found.append(Lifetime(name, nbytes, first[name], last[name], _ALIGN, replaced))
    return plan(found)
