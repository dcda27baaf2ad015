"""Accesses to one memory: conflicts that nothing orders, and reads before writes.

A cell is the smallest piece of a memory that instructions touch whole: an entry of a scratchpad, or a granule of DRAM.
Programs repeat their loops, so few sets of cells differ. All cells that are in the same sets form a class, and an event
is an access of an instruction to a class, so there are few events.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ..arrays import Array

MOST_EVENTS = 1 << 22  # that are made at a time, a few hundred bytes each
_BITS = 64  # of a word: sets that are looked at together

Cells = slice | Array


class Use(NamedTuple):
    """Access number `place` of instructions of a `kind`: the number of a set of cells, read or written.

    `updates`: the cells are read before they are written.
    """

    kind: int
    place: int
    cells: int
    write: bool
    updates: bool = False


@dataclass
class Sets:
    """The sets of cells of a memory of `size` cells, each once."""

    size: int
    cells: list[Cells] = field(default_factory=list[Cells])
    _known: dict[object, int] = field(default_factory=dict[object, int])

    def number(self, cells: Cells) -> int:
        """The number of this set."""
        key = (cells.start, cells.stop) if isinstance(cells, slice) else cells.tobytes()
        found = self._known.setdefault(key, len(self.cells))
        if found == len(self.cells):
            self.cells.append(cells)
        return found

    def classes(self) -> tuple[list[Array], Array]:
        """(the classes of each set, ascending; the class of each cell, 0 for cells in no set)."""
        cut = np.zeros(self.size + 1, bool)  # where a set begins or ends: what lies between is one part
        cut[0] = True
        for cells in self.cells:
            if isinstance(cells, slice):
                cut[cells.start] = cut[cells.stop] = True
            else:
                cut[cells] = cut[cells + 1] = True
        part = np.cumsum(cut)  # from 1 on: part 0 is in no set
        count = int(part[-1]) + 1
        parts: list[int] = part.tolist()
        sets = [slice(parts[int(c.start)], parts[int(c.stop)]) if isinstance(c, slice) else part[c] for c in self.cells]
        _, first, number = np.unique(_labels(sets, count), return_index=True, return_inverse=True)
        order = np.argsort(first)  # classes sorted by their first part, so that a range of parts is a range of classes
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        of_part = rank[number.reshape(-1)]
        before: list[int] = np.searchsorted(first[order], np.arange(count)).tolist()
        classes: list[Array] = [
            np.arange(before[int(c.start)], before[int(c.stop)]) if isinstance(c, slice) else np.unique(of_part[c])
            for c in sets
        ]
        return classes, of_part[part[:-1]]


def _labels(sets: list[Cells], count: int) -> Array:
    """A number for each of `count` parts, equal for parts in the same sets; part 0 has the smallest number."""
    label, bits = np.zeros(count, np.int64), np.zeros(count, np.uint64)
    for begin in range(0, len(sets), _BITS):
        bits[:] = 0
        for k, parts in enumerate(sets[begin : begin + _BITS]):
            bits[parts] |= np.uint64(1 << k)
        _, low = np.unique(bits, return_inverse=True)
        _, label = np.unique(label * (int(low.max()) + 1) + low.reshape(-1), return_inverse=True)
    return label.reshape(-1)


class Events(NamedTuple):
    """Accesses to classes, arrays of one length, sorted by `turn`: the instruction's place in a topological order.

    `cls` is the class, `use` the number of the access within its instruction.
    """

    turn: Array
    cls: Array
    write: Array
    updates: Array
    use: Array


@dataclass(frozen=True)
class Touches:
    """Accesses of instructions to one memory with `count` classes of cells.

    `kind`, (n,), is the kind of each instruction in a topological order; `uses` are the accesses of the `kinds` kinds,
    sorted by kind, and `classes` the classes of each set of cells.
    """

    kind: Array
    kinds: int
    uses: list[Use]
    classes: list[Array]
    count: int

    def events(self) -> Iterator[Events]:
        """The events in the order of instructions, in parts of at most `MOST_EVENTS`, or of one class."""
        if not self.uses:
            return
        owner, place, cells, write, updates = (np.array(column) for column in zip(*self.uses))
        sizes = np.array([len(some) for some in self.classes])
        flat = np.concatenate(self.classes)
        use, row = repeated_ranges((np.cumsum(sizes) - sizes)[cells], sizes[cells])
        columns = [flat[row].astype(np.int32), write[use], updates[use], place[use].astype(np.int32)]
        owner = owner[use]
        counts = np.bincount(owner, minlength=self.kinds)
        turn = np.flatnonzero(counts[self.kind])
        total = int(counts[self.kind[turn]].sum())
        parts = min(-(-total // MOST_EVENTS), self.count)
        if parts == 1:
            yield _expanded(turn, self.kind[turn], counts, columns)
            return
        edges = np.linspace(0, self.count, parts + 1).astype(np.int64)
        for first, end in zip(edges[:-1], edges[1:]):
            inside = (columns[0] >= first) & (columns[0] < end)
            counts = np.bincount(owner[inside], minlength=self.kinds)
            yield _expanded(turn, self.kind[turn], counts, [column[inside] for column in columns])


def _expanded(turn: Array, kind: Array, counts: Array, columns: list[Array]) -> Events:
    """The events of instructions at `turn`, of these kinds, of which `columns` hold `counts` rows each."""
    starts = np.cumsum(counts) - counts
    owner, row = repeated_ranges(starts[kind], counts[kind])
    cls, write, updates, use = (column[row] for column in columns)
    return Events(turn.astype(np.int32)[owner], cls, write, updates, use)


def repeated_ranges(starts: Array, counts: Array) -> tuple[Array, Array]:
    """(the number of its range, the value) of all values of the ranges `counts` long that begin at `starts`."""
    before = np.cumsum(counts) - counts
    owner = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    return owner, np.arange(len(owner)) + np.repeat(starts - before, counts)


class Conflict(NamedTuple):
    """Access `use` of the instruction at `turn`, which no token orders after an earlier conflicting access.

    The earlier instruction is at `position` of queue `source`; both accesses share `classes`.
    """

    turn: int
    use: int
    source: int
    position: int
    classes: Array


class Timeline(NamedTuple):
    """The instructions in a topological order: queue and position in it, (n,), and vector clocks, (n, queues).

    `clocks[i, q]` instructions of queue `q` have ended before instruction `i` starts (runtime/proof/order.py). An
    access is safe if the clock covers every earlier conflicting access.
    """

    queue: Array
    position: Array
    clocks: Array


def first_conflict(events: Events, line: Timeline) -> Conflict | None:
    """The first access of `events` that is not ordered after an earlier conflicting access of another queue.

    Two accesses conflict if one of them writes.
    """
    sources = np.flatnonzero(np.bincount(line.queue[events.turn], minlength=1))
    if not events.write.any() or len(sources) < 2:
        return None
    by_class = _ends_of_runs(events, line.queue.astype(np.int8))
    turn, write = events.turn[by_class], events.write[by_class]
    queue, stride = line.queue.astype(np.int8)[turn], int(line.position.max()) + 1
    small = np.int32 if (int(events.cls.max()) + 1) * stride < 1 << 31 else np.int64  # twice as fast
    position, clocks = line.position.astype(small)[turn], line.clocks.astype(small)
    base = events.cls[by_class].astype(small) * small(stride)  # above all positions of the classes before
    conflicts: list[tuple[int, int, int, int]] = []
    for source in sources.tolist():
        own = queue == source
        for is_write in (True, False):  # all accesses must follow writes, and writes must follow reads, too
            own_events = np.flatnonzero(own & (write == is_write))
            other_events = np.flatnonzero(~own if is_write else ~own & write)
            if len(own_events) and len(other_events):
                last = base.copy()
                last[own_events] += position[own_events]
                need = np.maximum.accumulate(last, out=last)[other_events] - base[other_events]
                wrong = np.flatnonzero(need > clocks[:, source][turn[other_events]])
                use = events.use[by_class[other_events[wrong]]].tolist()
                conflicts.extend(
                    zip(turn[other_events[wrong]].tolist(), use, [source] * len(wrong), need[wrong].tolist())
                )
    if not conflicts:
        return None
    at, use, source, _ = min(conflicts, key=lambda one: one[:3])
    place = max(position for *key, position in conflicts if tuple(key) == (at, use, source))
    return Conflict(at, use, source, place, np.array(_classes(events, at, use, source, place, line)))


def _ends_of_runs(events: Events, queue: Array) -> Array:
    """Indices of events sorted by class, then time; of a run of equal accesses only the first and the last.

    Clocks ascend in a queue: an access ordered before the first of a run precedes all of it, and an access ordered
    after the last follows all of it.
    """
    cls = events.cls.astype(np.uint16 if events.cls.max() < 1 << 16 else np.int64)  # few bits sort faster
    order = np.argsort(cls, kind="stable")
    cls, like = cls[order], (queue[events.turn] * 2 + events.write)[order]
    same = (cls[1:] == cls[:-1]) & (like[1:] == like[:-1])
    return order[~(np.append(False, same) & np.append(same, False))]


def _classes(events: Events, at: int, use: int, source: int, place: int, line: Timeline) -> list[int]:
    """The classes of access `use` of the instruction at `at` whose last conflict with `source` is at `place`."""
    own = (events.turn == at) & (events.use == use)
    writes, classes = bool(events.write[own][0]), list[int]()
    of_source = (line.queue[events.turn] == source) & (events.turn < at)
    for cls in events.cls[own].tolist():
        conflicting = of_source & (events.cls == cls)
        conflicting &= events.write | writes
        if conflicting.any() and int(line.position[events.turn[conflicting]].max()) == place:
            classes.append(cls)
    return classes


def unwritten(events: Events, count: int, ready: Array | None = None) -> Array:
    """The numbers of the events that read a class before any event writes it.

    `count` classes are there; those of `ready`, bool (count,), have values from the start.
    """
    first = np.full(count, np.iinfo(np.int64).max)
    if ready is not None:
        first[ready] = -1
    writes = np.flatnonzero(events.write)[::-1]  # the assignment below keeps the last: the earliest write of a class
    earliest = first[events.cls[writes]]
    first[events.cls[writes]] = np.where(earliest < 0, earliest, events.turn[writes])
    written_at = first[events.cls]
    early = np.where(events.write, events.updates & (written_at >= events.turn), written_at > events.turn)
    return np.flatnonzero(early)
