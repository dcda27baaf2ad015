"""Concatenations and slices, by copies."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ...hw.config import Config
from ...runtime.buffer import Buffer, Region
from .. import graph as g
from ..api import build_into
from ..schedule.elementwise import elementwise
from .recording import Recording, entries, packed_shape, place

MOST_COPIES = 64  # that a slice or concatenation may take, each a load and a store at least


def concatenate(rec: Recording, op: g.Concat) -> None:
    """Append copies of the inputs that are not computed inside the output."""
    if op.axis != 1:
        _join(rec, op)
        return
    channel = 0
    for k, t in enumerate(op.inputs):
        part = rec.part(op.output, t, channel)
        source = rec.operand(op, k)
        channel += t.shape[1]
        if place(source) == place(part):
            continue
        copy = rec.schedule(elementwise, entries(rec, t), [], dtype="int8")
        build_into(rec.program, copy, {"x": source, "out": part}, rec.placement, name=f"{op.name}.{k}")


def _join(rec: Recording, op: g.Concat) -> None:
    """A concatenation of rows or columns: every input is copied to its place."""
    at = 0
    for k, t in enumerate(op.inputs):
        begin = [0] * len(t.shape)
        begin[op.axis], at = at, at + t.shape[op.axis]
        parts = ((first, there, n) for there, first, n in pieces(op.output.shape, begin, t.shape, rec.cfg))
        _copy(rec, f"{op.name}.{k}", rec.operand(op, k), rec.activations[op.output.name], parts)


def cut(rec: Recording, op: g.StridedSlice) -> None:
    """Append copies of the part that a slice without steps takes."""
    if whole_rows(op, rec.cfg):
        row = packed_shape(op.x.shape, rec.cfg)[1]
        parts = iter([(op.begin[0] * row, 0, op.output.shape[0] * row)])
    else:
        parts = pieces(op.x.shape, op.begin, op.output.shape, rec.cfg)
    _copy(rec, op.name, rec.operand(op, 0), rec.activations[op.output.name], parts)


def whole_rows(op: g.StridedSlice, cfg: Config) -> bool:
    """True if a slice takes rows of channels that follow one another, with all their channels."""
    x, y = op.x.shape, op.output.shape
    return cfg.batch == 1 and op.x.dtype == "int8" and len(x) == 2 and x[1] == y[1] and op.strides == (1, 1)


def pieces(
    whole: Sequence[int], begin: Sequence[int], part: Sequence[int], cfg: Config
) -> Iterator[tuple[int, int, int]]:
    """(entry in `whole`, entry in `part`, entries) of the contiguous pieces of a part of one batch of packed images."""
    _, _, height, width = whole
    _, blocks, rows, columns, *_ = packed_shape(tuple(part), cfg)
    together = rows if columns == width else 1  # whole rows follow one another
    for block in range(blocks):
        for row in range(0, rows, together):
            there = ((begin[1] // cfg.block_in + block) * height + begin[2] + row) * width + begin[3]
            yield there, (block * rows + row) * columns, together * columns


def _copy(rec: Recording, name: str, source: Buffer, target: Buffer, parts: Iterator[tuple[int, int, int]]) -> None:
    """Append copies of (first entry in `source`, first entry in `target`, entries)."""
    for k, (first, there, count) in enumerate(parts):
        taken = _region(rec, f"{name}.{k}.x", source, first, count)
        given = _region(rec, f"{name}.{k}", target, there, count)
        copy = rec.schedule(elementwise, count, [], dtype="int8")
        build_into(rec.program, copy, {"x": taken, "out": given}, rec.placement, name=f"{name}.{k}")


def _region(rec: Recording, name: str, buffer: Buffer, first: int, count: int) -> Region:
    """`count` entries of a packed buffer from entry `first` on."""
    whole, start = place(buffer)
    entry = rec.cfg.batch, rec.cfg.block_in
    return Region(name, (count, *entry), whole=whole, start=start + first * math.prod(entry))
