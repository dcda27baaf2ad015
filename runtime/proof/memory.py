"""Proves of a launch that it reads nothing that it did not write before, and writes its outputs whole.

Scratchpads and temporaries hold what another program left there. Inputs, constants and states have values from the
start; that no store reaches the first two is checked by runtime/bounds.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...hw.errors import UnwrittenError
from ...hw.isa import MICRO_OPS, SCRATCHPADS, Mem
from ..buffer import Buffer
from .conflicts import unwritten
from .dram import DramTouches
from .instructions import Instructions
from .kernels import Kinds
from .touched import Events

EMPTY = ("temp", "output")  # kinds of buffers without values when a launch starts


def check_scratchpads(program: Instructions, topological: np.ndarray, kinds: Kinds, kind: np.ndarray) -> None:
    """Raise `UnwrittenError` for an entry of a scratchpad that is read before an instruction writes it.

    The program is free of races: a write that comes first in one order does so in all. Micro-ops are known already.
    """
    found: list[tuple[int, Mem, np.ndarray, int]] = []
    for mem in SCRATCHPADS:
        if mem in MICRO_OPS:
            continue
        touches, of_entry = kinds.touches(mem, kind[topological])
        for events in touches.events():
            first = _first(events, touches.count, None)
            if first is not None:
                turn, classes, writer = first
                found.append((turn, mem, np.flatnonzero(np.isin(of_entry, classes)), writer))
    if found:
        turn, mem, entries, writer = min(found, key=lambda one: one[0])
        where = f"{mem.name} entries {entries[0]}..{entries[-1]}"
        _refuse(program, topological, turn, where, writer)


def check_buffers(
    program: Instructions, topological: np.ndarray, buffers: Sequence[Buffer], bases: Sequence[int]
) -> None:
    """Raise `UnwrittenError` for bytes of a buffer of kind temp or output that are read before they are written.

    Also for bytes of an output that no instruction writes. `bases` are the addresses at which `program` has `buffers`.
    A store with a symbol counts as one to what it writes for every value.
    """
    empty = [(buffer, base) for buffer, base in zip(buffers, bases) if buffer.kind in EMPTY]
    if not empty:
        return
    spans = np.array([(base, base + buffer.nbytes) for buffer, base in empty], np.int64)
    touches = DramTouches(program, topological, spans, surely=True)
    inside = np.zeros(touches.count + 1, np.int64)
    for begin, end in np.searchsorted(touches.bounds, spans).tolist():
        inside[begin] += 1
        inside[end] -= 1
    ready = np.cumsum(inside)[:-1] == 0
    written = np.zeros(touches.count, bool)
    earliest: tuple[int, np.ndarray, int] | None = None
    for events in touches.events():
        written[events.cls[events.write]] = True
        first = _first(events, touches.count, ready)
        if first is not None and (earliest is None or first[0] < earliest[0]):
            earliest = first
    if earliest is not None:
        turn, cells, writer = earliest
        where = _bytes(touches.bounds, cells, empty)
        _refuse(program, topological, turn, where, writer)
    for buffer, base in empty:
        begin, end = np.searchsorted(touches.bounds, (base, base + buffer.nbytes)).tolist()
        left = begin + np.flatnonzero(~written[begin:end])
        if buffer.kind == "output" and len(left):
            where = _bytes(touches.bounds, left, empty)
            raise UnwrittenError(f"no instruction writes {where}, of an output: its values would be left from before")


def _first(events: Events, count: int, ready: np.ndarray | None) -> tuple[int, np.ndarray, int] | None:
    """(turn, classes, the turn of who writes one of them later, or -1) of the first that reads what is not written."""
    early = unwritten(events, count, ready)
    if not len(early):
        return None
    turn = int(events.turn[early].min())
    classes = np.unique(events.cls[early[events.turn[early] == turn]])
    later = events.write & (events.turn > turn) & np.isin(events.cls, classes)
    return turn, classes, int(events.turn[later].min()) if later.any() else -1


def _bytes(bounds: np.ndarray, cells: np.ndarray, buffers: Sequence[tuple[Buffer, int]]) -> str:
    """The bytes of the first buffer that `cells` touch, for a message."""
    start = int(bounds[cells[0]])
    buffer, base = next((b, at) for b, at in buffers if at <= start < at + b.nbytes)
    stop = min(int(bounds[cells[-1] + 1]), base + buffer.nbytes)
    return f"bytes {start - base:#x}..{stop - base - 1:#x} of buffer {buffer.name!r}"


def _refuse(program: Instructions, topological: np.ndarray, turn: int, where: str, writer: int) -> None:
    k = int(topological[turn])
    text = f"{program.name(k)} reads {where} before any instruction writes them"
    if writer >= 0:
        text += f"; {program.name(int(topological[writer]))} does later"
    raise UnwrittenError(text, k)
