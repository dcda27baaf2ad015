"""Judges events: which conflict without an order, and which read what was not written before."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .touched import Events


class Conflict(NamedTuple):
    """An access that is not ordered behind another: of `turn`, by its use number `use`.

    The other is at `position` of queue `source`; `classes` are those that both touch.
    """

    turn: int
    use: int
    source: int
    position: int
    classes: np.ndarray


class Timeline(NamedTuple):
    """The instructions in a topological order: queue and position in it, (n,), and clocks, (n, queues)."""

    queue: np.ndarray
    position: np.ndarray
    clocks: np.ndarray


def first_conflict(events: Events, line: Timeline) -> Conflict | None:
    """The first access of `events`, in their order, that another one which conflicts with it is not ordered before.

    Two accesses conflict where one of them writes.
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
    found: list[tuple[int, int, int, int]] = []
    for source in sources.tolist():
        own = queue == source
        for is_write in (True, False):  # what others do is ordered behind writes, their writes behind reads, too
            mine = np.flatnonzero(own & (write == is_write))
            others = np.flatnonzero(~own if is_write else ~own & write)
            if len(mine) and len(others):
                last = base.copy()
                last[mine] += position[mine]
                need = np.maximum.accumulate(last, out=last)[others] - base[others]
                wrong = np.flatnonzero(need > clocks[:, source][turn[others]])
                use = events.use[by_class[others[wrong]]].tolist()
                found.extend(zip(turn[others[wrong]].tolist(), use, [source] * len(wrong), need[wrong].tolist()))
    if not found:
        return None
    at, use, source, _ = min(found, key=lambda one: one[:3])
    place = max(position for *key, position in found if tuple(key) == (at, use, source))
    return Conflict(at, use, source, place, np.array(_classes(events, at, use, source, place, line)))


def _ends_of_runs(events: Events, queue: np.ndarray) -> np.ndarray:
    """The numbers of events by class, those of one in their order, without those between two of their like.

    Clocks ascend in a queue: what the first of several events is ordered behind, all are, and who is ordered behind
    the last is behind all.
    """
    cls = events.cls.astype(np.uint16 if events.cls.max() < 1 << 16 else np.int64)  # few bits sort faster
    order = np.argsort(cls, kind="stable")
    cls, like = cls[order], (queue[events.turn] * 2 + events.write)[order]
    same = (cls[1:] == cls[:-1]) & (like[1:] == like[:-1])
    return order[~(np.append(False, same) & np.append(same, False))]


def _classes(events: Events, at: int, use: int, source: int, place: int, line: Timeline) -> list[int]:
    """The classes of access `use` of the instruction at `at` whose last conflict with `source` is at `place`."""
    mine = (events.turn == at) & (events.use == use)
    writes, found = bool(events.write[mine][0]), []
    there = (line.queue[events.turn] == source) & (events.turn < at)
    for cls in events.cls[mine].tolist():
        others = there & (events.cls == cls)
        others &= events.write | writes
        if others.any() and int(line.position[events.turn[others]].max()) == place:
            found.append(cls)
    return found


def unwritten(events: Events, count: int, ready: np.ndarray | None = None) -> np.ndarray:
    """The numbers of the events that read a class before any event writes it.

    `count` classes are there; those of `ready`, bool (count,), have values from the start.
    """
    first = np.full(count, np.iinfo(np.int64).max)
    if ready is not None:
        first[ready] = -1
    writes = np.flatnonzero(events.write)[::-1]  # of a class that is there several times, the last one stays
    mine = first[events.cls[writes]]
    first[events.cls[writes]] = np.where(mine < 0, mine, events.turn[writes])
    now = first[events.cls]
    early = np.where(events.write, events.updates & (now >= events.turn), now > events.turn)
    return np.flatnonzero(early)
