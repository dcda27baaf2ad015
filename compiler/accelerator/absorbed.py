"""Paddings and slices of channels that their only reader makes, or takes: no step of their own.

Between stages of some networks the identity is padded with channels before it is added. The kernel of the sum reads the
narrow tensor; what padding would add is part of its parameters (compiler/kernels/add.py). A slice of whole blocks of
channels is contiguous in memory: a depthwise convolution reads it where it lies, that many bytes behind the tensor.
"""

from __future__ import annotations

from ...hw.config import Config
from .. import graph as g
from ..graph.rewrite import Producers, Rule, rewrite
from ..kernels import table
from ..kernels.add import weighted_sum
from ..kernels.recording import own_rows
from ..kernels.stand_ins import AbsorbedPad, AbsorbedSlice, stand_in


def absorb(graph: g.Graph, cfg: Config) -> g.Graph:
    """Paddings and slices of channels are part of the sums and depthwise convolutions that alone read them."""
    sums: set[str] = set()  # those that make one padding: the pattern of both takes no second one

    def padded(op: g.Pad, readers: g.Readers, producers: Producers) -> list[g.Operator] | None:
        then = readers.only(op)
        if not isinstance(then, g.Add) or then.name in sums or not _pads(then, op, cfg):
            return None
        sums.add(then.name)
        return [stand_in(AbsorbedPad, op)]

    def sliced(op: g.StridedSlice, readers: g.Readers, producers: Producers) -> list[g.Operator] | None:
        then = readers.only(op)
        taken = isinstance(then, g.QConv2d) and _in_place(op, then, cfg)
        return [stand_in(AbsorbedSlice, op)] if taken else None

    return rewrite(graph, Rule(g.Pad, padded), Rule(g.StridedSlice, sliced))


def _pads(op: g.Add, pad: g.Pad, cfg: Config) -> bool:
    """True if the sum `op` can make the padding of one of its operands."""
    if cfg.batch > 1 or len(pad.x.shape) != 4 or pad.x.shape[0] > 1 or pad.x.dtype != "int8":
        return False
    whole = all(t.data is None and t.shape == op.output.shape for t in op.inputs)
    return pad.behind and whole and table.chosen(op, cfg) is weighted_sum


def _in_place(op: g.StridedSlice, reader: g.QConv2d, cfg: Config) -> bool:
    """True if `reader` can read whole blocks of the channels of one batch of images at their place."""
    x, y = op.x, op.output
    if not own_rows(reader, cfg) or len(x.shape) != 4 or x.shape[0] > cfg.batch:
        return False
    plain = x.data is None and x.dtype == "int8" and set(op.strides) == {1}
    alike = (x.shape[0], *x.shape[2:]) == (y.shape[0], *y.shape[2:])
    end = op.begin[1] + y.shape[1]
    return plain and alike and not op.begin[1] % cfg.block_in and (end == x.shape[1] or not end % cfg.block_in)
