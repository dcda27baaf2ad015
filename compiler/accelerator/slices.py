"""Depthwise convolutions of some channels of a tensor, which they read where they lie: no step takes them out.

A slice of whole blocks of channels is contiguous in memory. Its only reader begins that many bytes behind the tensor.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from ...hw.config import Config
from .. import graph as g
from .recording import own_rows


@dataclass(frozen=True, eq=False)
class AbsorbedSlice(g.StridedSlice):
    """A slice of channels whose only reader, a depthwise convolution, takes them: its output lies in its input."""


def absorb_slices(graph: g.Graph, cfg: Config) -> g.Graph:
    """`graph` with such slices marked."""
    readers = graph.readers
    wanted = {t.name for t in graph.wanted}
    ops: list[g.Operator] = []
    for op in graph.ops:
        only = readers.get(op.output.name, [])
        alone = len(only) == 1 and op.output.name not in wanted
        if isinstance(op, g.StridedSlice) and alone and _in_place(op, only[0], cfg):
            op = AbsorbedSlice(**{f.name: getattr(op, f.name) for f in fields(op)})
        ops.append(op)
    return replace(graph, ops=tuple(ops))


def _in_place(op: g.StridedSlice, reader: g.Operator, cfg: Config) -> bool:
    """True if `reader` can read whole blocks of the channels of one batch of images at their place."""
    x, y = op.x, op.output
    if not isinstance(reader, g.QConv2d) or not own_rows(reader, cfg) or len(x.shape) != 4 or x.shape[0] > cfg.batch:
        return False
    plain = x.data is None and x.dtype == "int8" and set(op.strides) == {1}
    alike = (x.shape[0], *x.shape[2:]) == (y.shape[0], *y.shape[2:])
    end = op.begin[1] + y.shape[1]
    return plain and alike and not op.begin[1] % cfg.block_in and (end == x.shape[1] or not end % cfg.block_in)
