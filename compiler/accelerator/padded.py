"""Sums whose second operand has fewer channels, as blocks of channels: no step pads them.

Between stages of some networks the identity is padded with channels before it is added. The kernel of the sum reads the
narrow tensor; what padding would add is part of its parameters (compiler/kernels/add.py).
"""

from __future__ import annotations

from dataclasses import fields

from ...hw.config import Config
from .. import graph as g
from ..graph.rewrite import Producers, Rule, rewrite
from ..kernels import table
from ..kernels.add import weighted_sum
from .stand_ins import AbsorbedPad


def absorb_pads(graph: g.Graph, cfg: Config) -> g.Graph:
    """`graph` with such paddings marked."""
    if cfg.batch > 1:
        return graph
    done: set[str] = set()  # sums that make one padding: the pattern of both takes no second one

    def absorbed(op: g.Pad, readers: g.Readers, producers: Producers) -> list[g.Operator] | None:
        then = readers.only(op)
        if then is None or then.name in done or not _absorbs(then, op, cfg):
            return None
        done.add(then.name)
        return [AbsorbedPad(**{f.name: getattr(op, f.name) for f in fields(op)})]

    return rewrite(graph, Rule(g.Pad, absorbed))


def _absorbs(op: g.Operator, pad: g.Pad, cfg: Config) -> bool:
    """True if the sum `op` can make the padding of one of its operands."""
    if not isinstance(op, g.Add) or len(pad.x.shape) != 4 or pad.x.shape[0] > 1 or pad.x.dtype != "int8":
        return False
    behind = not any(map(any, (pad.pads[0], *pad.pads[2:]))) and pad.pads[1][0] == 0
    whole = all(t.data is None and t.shape == op.output.shape for t in op.inputs)
    return behind and whole and table.chosen(op, cfg) is weighted_sum
