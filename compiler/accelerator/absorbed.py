"""Operators that cost nothing, as their only reader does their work.

Between stages of some networks the identity is padded with channels before it is added. The kernel of the sum reads the
narrow tensor; what padding would add is part of its parameters (compiler/kernels/add.py). A slice of whole blocks of
channels is contiguous in memory: a depthwise convolution begins that many bytes behind the tensor.
"""

from __future__ import annotations

from dataclasses import fields, replace

from ...hw.config import Config
from .. import graph as g
from ..kernels import table
from ..kernels.add import weighted_sum
from .layers import own_rows
from .stand_ins import Absorbed, AbsorbedPad, AbsorbedSlice


def absorb(graph: g.Graph, cfg: Config) -> g.Graph:
    """`graph` with such paddings and slices marked."""
    readers, wanted = graph.readers, {t.name for t in graph.wanted}
    ops: list[g.Operator] = []
    done: set[str] = set()  # readers: the pattern of both takes no second one
    for op in graph.ops:
        only = readers.get(op.output.name, [])
        alone = len(only) == 1 and op.output.name not in wanted and only[0].name not in done
        if alone and (kind := _absorbed(op, only[0], cfg)):
            done.add(only[0].name)
            op = kind(**{f.name: getattr(op, f.name) for f in fields(op)})
        ops.append(op)
    return replace(graph, ops=tuple(ops)) if done else graph


def _absorbed(op: g.Operator, reader: g.Operator, cfg: Config) -> type[Absorbed] | None:
    if isinstance(op, g.Pad) and isinstance(reader, g.Add) and _padded(op, reader, cfg):
        return AbsorbedPad
    if isinstance(op, g.StridedSlice) and isinstance(reader, g.QConv2d) and _in_place(op, reader, cfg):
        return AbsorbedSlice
    return None


def _padded(pad: g.Pad, reader: g.Add, cfg: Config) -> bool:
    """True if the sum `reader` can make the padding of one of its operands."""
    if cfg.batch > 1 or len(pad.x.shape) != 4 or pad.x.shape[0] > 1 or pad.x.dtype != "int8":
        return False
    whole = all(t.data is None and t.shape == reader.output.shape for t in reader.inputs)
    return pad.behind and whole and table.chosen(reader, cfg) is weighted_sum


def _in_place(op: g.StridedSlice, reader: g.QConv2d, cfg: Config) -> bool:
    """True if `reader` can read whole blocks of the channels of one batch of images at their place."""
    x, y = op.x, op.output
    if not own_rows(reader, cfg) or len(x.shape) != 4 or x.shape[0] > cfg.batch:
        return False
    plain = x.data is None and x.dtype == "int8" and set(op.strides) == {1}
    alike = (x.shape[0], *x.shape[2:]) == (y.shape[0], *y.shape[2:])
    end = op.begin[1] + y.shape[1]
    return plain and alike and not op.begin[1] % cfg.block_in and (end == x.shape[1] or not end % cfg.block_in)
