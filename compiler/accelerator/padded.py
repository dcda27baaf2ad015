"""Sums whose second operand has fewer channels, as blocks of channels: no step pads them.

Between stages of some networks the identity is padded with channels before it is added. The kernel of the sum reads the
narrow tensor; what padding would add is part of its parameters (compiler/kernels/add.py).
"""

from __future__ import annotations

from dataclasses import fields, replace

from ...hw.config import Config
from .. import graph as g
from ..kernels import table
from ..kernels.add import weighted_sum
from .stand_ins import AbsorbedPad


def absorb_pads(graph: g.Graph, cfg: Config) -> g.Graph:
    """`graph` with such paddings marked."""
    if cfg.batch > 1:
        return graph
    readers = graph.readers
    wanted = {t.name for t in graph.wanted}
    ops: list[g.Operator] = []
    done: set[str] = set()  # sums that make one padding: the pattern of both takes no second one
    for op in graph.ops:
        only = readers.get(op.output.name, [])
        alone = len(only) == 1 and op.output.name not in wanted and only[0].name not in done
        if isinstance(op, g.Pad) and alone and _absorbs(only[0], op, cfg):
            done.add(only[0].name)
            op = AbsorbedPad(**{f.name: getattr(op, f.name) for f in fields(op)})
        ops.append(op)
    return replace(graph, ops=tuple(ops)) if done else graph


def _absorbs(op: g.Operator, pad: g.Pad, cfg: Config) -> bool:
    """True if the sum `op` can make the padding of one of its operands."""
    if not isinstance(op, g.Add) or len(pad.x.shape) != 4 or pad.x.shape[0] > 1 or pad.x.dtype != "int8":
        return False
    behind = not any(map(any, (pad.pads[0], *pad.pads[2:]))) and pad.pads[1][0] == 0
    whole = all(t.data is None and t.shape == op.output.shape for t in op.inputs)
    return behind and whole and table.chosen(op, cfg) is weighted_sum
