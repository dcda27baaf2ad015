"""Dependence tokens from a recorded trace: every conflict between two queues becomes one push and one pop.

Before that, loads of weights pass a load that waits for the operator before (`ahead_of_waits`), and loads of what was
stored pass jobs of the compute queue (`ahead_of_jobs`).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..hw.config import Config
from ..hw.errors import CapacityError
from ..hw.isa import Mem, entry_bytes, nop_of, room
from ..hw.units import Channel, Queue, between, channels, connected, queues, stripes
from .access import Access, DramAccess
from .arrays import Array
from .buffer import Buffer
from .symbols import Symbol

PASSING = 384  # beats of loads that pass one that waits, about as many as it waits for: more would delay it
PASSED = 4  # jobs that a load of what was stored passes: they end while it waits; more would wait themselves


@dataclass(slots=True)
class Row:
    """One recorded instruction: its format, its fields and its accesses.

    `dram_base` counts from the start of `buffer`; `dram` are the bytes of `buffer` that the instruction accesses.
    `origin` is the number of what it was recorded for (`launch.Origins`); `symbol` moves `dram_base` in a run.
    """

    format: str
    queue: Queue
    fields: dict[str, int]
    accesses: list[Access] = field(default_factory=list[Access])
    buffer: Buffer | None = None
    dram: DramAccess | None = None
    origin: int = 0
    symbol: Symbol | None = None


def nop(queue: Queue, origin: int) -> Row:
    """An instruction of `queue` that moves nothing: a carrier of tokens for an instruction of `origin`."""
    row = nop_of(queue)
    return Row(row.format, queue, row.fields, origin=origin)


def popped(every: Iterable[Channel], queue: Queue, fields: dict[str, int]) -> list[Channel]:
    """The channels of `every` from which the decoded instruction `fields` of `queue` pops a token."""
    return [c for c in every if c.target == queue and fields[c.pop]]


def pushed(every: Iterable[Channel], queue: Queue, fields: dict[str, int]) -> list[Channel]:
    """The channels of `every` to which the decoded instruction `fields` of `queue` pushes a token."""
    return [c for c in every if c.source == queue and fields[c.push]]


def deadlock_text(
    heads: Iterable[tuple[Queue, int | None]], missing: Callable[[int], Sequence[Channel]], at: Callable[[int], str]
) -> str:
    """The message of a deadlock: what each queue waits for.

    `heads` are the queues with the instruction at the head of each, None for an empty one; `missing(k)` are the empty
    channels that instruction k pops, `at(k)` is its name.
    """
    parts = list[str]()
    for queue, k in heads:
        if k is None:
            parts.append(f"{queue.name} is empty")
        else:
            parts.append(f"{queue.name} waits for a token {' and '.join(map(str, missing(k)))} at {at(k)}")
    return f"deadlock: {'; '.join(parts)}"


def left_over_text(channel: Channel, count: int, last: str) -> str:
    """The message that no instruction pops `count` tokens of `channel`; `last` names the one that pushed the last."""
    return f"{count} tokens {channel} are left over; the last is pushed by {last}"


class LastAccess:
    """For every cell of one memory: the last position (from 1; 0 for none) of each queue that wrote, or accessed it."""

    def __init__(self, queues: int, cells: int):
        self._written, self._accessed = np.zeros((queues, cells), np.int64), np.zeros((queues, cells), np.int64)

    def conflicts(self, queue: int, write: bool, cells: slice | Array) -> list[int]:
        """Per queue, the last position that conflicts with this access; 0 for the queue itself."""
        kind = (self._accessed if write else self._written)[:, cells]
        last = kind.max(axis=1, initial=0).tolist()
        last[queue] = 0
        return last

    def where(self, queue: int, position: int, write: bool, cells: slice | Array) -> Array:
        """The cells of this access whose last conflict with `queue` is at `position`, sorted."""
        kind = (self._accessed if write else self._written)[queue]
        return np.arange(len(kind))[cells][kind[cells] == position]

    def note(self, queue: int, position: int, write: bool, cells: slice | Array) -> None:
        """Record the access at `position` of `queue`."""
        self._accessed[queue, cells] = position
        if write:
            self._written[queue, cells] = position


def dram_cells(access: DramAccess, granule: int) -> slice | Array:
    """The cells of `granule` bytes that a DRAM access touches, for any value of its symbol."""
    if access.symbol is not None:
        spans: list[list[int]] = (access.spans() // granule).tolist()
        return slice(*spans[0]) if len(spans) == 1 else np.concatenate([np.arange(*span) for span in spans])
    first, per_row = access.start // granule, -(-access.nbytes // granule)
    if access.rows == 1 or access.pitch == access.nbytes:
        return slice(first, first + per_row * access.rows)
    starts = (access.start + np.arange(access.rows, dtype=np.int64) * access.pitch) // granule
    return (starts[:, None] + np.arange(per_row)).reshape(-1)


def dram_granule(cfg: Config) -> int:
    """The largest number of bytes that divides every entry, and so every DRAM access."""
    return math.gcd(*(entry_bytes(cfg, mem) for mem in Mem))


class TokenPass:
    """Walks a trace in program order and adds the tokens that order every conflict, no others.

    Vector clocks record what each queue already knows of the others, so that a dependence that follows from
    earlier tokens gets none of its own. Conflicts between queues that no channel joins, such as load and store, go
    through the queue between them, by a NOP where none of its instructions already waits for the first.

    No legal execution has more than `token_depth` tokens in a channel. An instruction pushes only where its queue knows
    that all but `token_depth - 1` of the tokens before were taken; else a later one pushes in its place, or a NOP that
    waits for an answer of the queue that took them. So that there is always one who can answer, the push after which
    a queue knows of no room waits for all tokens that it has taken itself: then its neighbour knows of room.
    """

    def __init__(self, cfg: Config, written: set[int]):
        self._cfg = cfg
        self._written = written  # ids of the buffers that some STORE writes; the others need no tracking
        self._granule = dram_granule(cfg)
        self._memories: dict[object, LastAccess] = {}
        self._every = queues(cfg)
        self._known = [[0] * len(self._every) for _ in self._every]
        self._snapshots: list[list[list[int]]] = [[] for _ in self._every]
        self._queues: list[list[Row]] = [[] for _ in self._every]
        self._pops: dict[Channel, list[int]] = {c: [] for c in channels(cfg)}  # positions in the target's queue
        self.rows: list[Row] = []

    def add(self, row: Row) -> None:
        """Append `row` behind the tokens that it needs."""
        touched = self._touched(row)
        need = [0] * len(self._every)
        for memory, write, cells in touched:
            need = list(map(max, need, memory.conflicts(row.queue, write, cells)))
        self._wait(row, need)
        self._append(row)
        for memory, write, cells in touched:
            memory.note(row.queue, len(self._queues[row.queue]), write, cells)

    def finish(self, row: Row) -> None:
        """Append FINISH, which waits for everything."""
        self._wait(row, [len(q) for q in self._queues])
        self._append(row)

    def _touched(self, row: Row) -> list[tuple[LastAccess, bool, slice | Array]]:
        out = list[tuple[LastAccess, bool, slice | Array]]()
        for access in row.accesses:
            if access.mem not in self._memories:
                self._memories[access.mem] = LastAccess(len(self._every), room(self._cfg, access.mem))
            out.append((self._memories[access.mem], access.write, access.entries))
        if row.dram is not None and row.buffer is not None and id(row.buffer) in self._written:
            key = id(row.buffer)
            if key not in self._memories:
                self._memories[key] = self._of_buffer(row.buffer)
            out.append((self._memories[key], row.dram.write, dram_cells(row.dram, self._granule)))
        return out

    def _of_buffer(self, buffer: Buffer) -> LastAccess:
        try:
            return LastAccess(len(self._every), -(-buffer.nbytes // self._granule))
        except MemoryError:
            found = f"{buffer.nbytes:,} bytes are more than the memory here can keep accesses of"
            raise CapacityError(f"buffer {buffer.name!r}: {found}; make it as large as what is stored there") from None

    def _append(self, row: Row) -> None:
        queue = row.queue
        self._queues[queue].append(row)
        self._known[queue][queue] = len(self._queues[queue])
        self._snapshots[queue].append(list(self._known[queue]))
        self.rows.append(row)

    def _wait(self, row: Row, need: list[int]) -> None:
        queue, known = row.queue, self._known[row.queue]
        for source in self._every:
            if not connected(source, queue) and source != queue and need[source] > known[source]:
                through = self._through(source, queue, need)
                if self._known[through][source] < need[source]:
                    carrier = nop(through, row.origin)
                    self._wait(carrier, [n if r == source else 0 for r, n in enumerate(need)])
                    self._append(carrier)
                # the first one that knows: later ones may take long to compute
                first = bisect_left(self._snapshots[through], need[source], key=lambda known: known[source]) + 1
                need[through] = max(need[through], first)
        near = [r for r in self._every if connected(r, queue) and need[r] > known[r]]
        for source in near:
            # what another one of them knows does not need a token of its own
            if not any(self._snapshots[r][need[r] - 1][source] >= need[source] for r in near if r != source):
                self._take(row, source, need[source])

    def _through(self, source: Queue, queue: Queue, need: list[int]) -> Queue:
        """The queue through which `queue` learns of `source`: where it can, one that knows of it, without a NOP."""
        usual = between(source, queue)
        ways = [usual, *(r for r in self._every if r != usual and connected(r, source) and connected(r, queue))]
        return next((r for r in ways if self._known[r][source] >= need[source]), usual)

    def _take(self, row: Row, source: Queue, position: int) -> None:
        """Let `row`, which comes next in its queue, wait for the instruction at `position` of `source`."""
        known, channel = self._known[row.queue], Channel(source, row.queue)
        position = self._with_room(channel, position, row.origin)
        self._queues[source][position - 1].fields[channel.push] = 1
        row.fields[channel.pop] = 1
        self._pops[channel].append(len(self._queues[row.queue]) + 1)
        known[:] = map(max, known, self._snapshots[source][position - 1])

    def _with_room(self, channel: Channel, position: int, origin: int) -> int:
        """The position of the first instruction from `position` on whose token cannot be one too many."""
        depth, pops, snapshots = self._cfg.token_depth, self._pops[channel], self._snapshots[channel.source]
        unknown = len(pops) - bisect_right(pops, snapshots[-1][channel.target])
        if unknown == depth:
            answered = nop(channel.source, origin)
            self._take(answered, channel.target, pops[-1])
            self._append(answered)
            unknown = 0
        if len(pops) >= depth:
            room = bisect_left(snapshots, pops[-depth], key=lambda known: known[channel.target]) + 1
            position = max(position, room)
        if unknown == depth - 1:  # the last that it knows of
            position = max([position, *self._pops[Channel(channel.target, channel.source)][-1:]])
        return position


def written_by_stores(rows: Iterable[Row]) -> set[int]:
    """The ids of the buffers that a STORE among `rows` writes."""
    return {id(row.buffer) for row in rows if row.dram is not None and row.dram.write}


def ahead_of_waits(cfg: Config, rows: Sequence[Row], operator: Callable[[Row], object]) -> list[Row]:
    """`rows` in an order that computes the same, in which weights are loaded while activations are being stored.

    The first load of an operator that reads what a STORE writes waits for the operator before it, and all loads behind
    it in the queue with it. Loads of what no STORE writes pass it, the first one and others up to `PASSING` beats of
    data, unless a row in between uses the same entries. `operator(row)` names what a row was recorded for.
    """
    written, most = written_by_stores(rows), PASSING * stripes(cfg) * cfg.axi_bits // 8
    found: list[Row] = []
    present, gate, room = None, -1, 0
    for row in rows:
        if operator(row) != present:
            present, gate = operator(row), -1
        if row.queue == Queue.LOAD and row.dram is not None:
            size = row.dram.rows * row.dram.nbytes
            if id(row.buffer) in written:
                gate, room = (len(found), most) if gate < 0 else (gate, room)
            elif gate >= 0 and (size <= room or room == most) and not any(_share(row, other) for other in found[gate:]):
                found.insert(gate, row)
                gate, room = gate + 1, room - size
                continue
        found.append(row)
    return found


def ahead_of_jobs(rows: Sequence[Row], operator: Callable[[Row], object]) -> list[Row]:
    """`rows` in an order that computes the same, in which loads of what a STORE writes come earlier.

    Such a load learns through the compute queue that the data is there, by a NOP in front of the jobs that come behind
    the load in the trace: they need not end first. Loads pass the last `PASSED` jobs of their operator that use none of
    their entries; every queue keeps its own order. `operator(row)` names what a row was recorded for.
    """
    written = written_by_stores(rows)
    found: list[Row] = []
    for row in rows:
        at = len(found)
        if row.queue == Queue.LOAD and row.dram is not None and id(row.buffer) in written:
            jobs = 0
            while at and jobs < PASSED and found[at - 1].queue == Queue.COMPUTE:
                before = found[at - 1]
                if operator(before) != operator(row) or _share(row, before):
                    break
                at, jobs = at - 1, jobs + (before.format != "LOAD")
        found.insert(at, row)
    return found


def joined(row: Row, other: Row) -> Row | None:
    """One LOAD that does what two of one row each do, `other` behind `row`; None where it does not continue it.

    A load of micro-ops has no buffer yet.
    """
    f, g = row.fields, other.fields
    kinds = row.format == other.format == "LOAD" and row.buffer is other.buffer and row.symbol is other.symbol is None
    if not kinds or f["mem"] != g["mem"] or not f["y_size"] == g["y_size"] == 1:
        return None
    if any(f[key] + f["x_size"] != g[key] for key in ("sram_base", "dram_base")):
        return None
    size, ((first,), (last,)) = f["x_size"] + g["x_size"], (row.accesses, other.accesses)
    assert isinstance(first.entries, slice) and isinstance(last.entries, slice)
    accesses = [first._replace(entries=slice(first.entries.start, last.entries.stop))]
    dram = row.dram
    if dram is not None and other.dram is not None:
        nbytes = dram.nbytes + other.dram.nbytes
        dram = dram._replace(nbytes=nbytes, pitch=nbytes)
    return replace(row, fields=f | {"x_size": size, "x_stride": size}, accesses=accesses, dram=dram)


def parameters_joined(rows: Iterable[Row]) -> list[Row]:
    """`rows` in which loads of parameters that continue each other are one: a STORE waits for each of them."""
    found: list[Row] = []
    last = 0  # the position behind the last row of the store queue
    for row in rows:
        if row.queue == Queue.STORE:
            if last and (whole := joined(found[last - 1], row)) is not None:
                found[last - 1] = whole
                continue
            last = len(found) + 1
        found.append(row)
    return found


def _share(row: Row, other: Row) -> bool:
    """True if both may use an entry that one of them writes."""
    for a in row.accesses:
        for b in other.accesses:
            if a.mem == b.mem and (a.write or b.write):
                (first, end), (begin, last) = a.reach, b.reach
                if first < last and begin < end:
                    return True
    return False


def insert_tokens(
    cfg: Config, rows: Sequence[Row], finish: Row, operator: Callable[[Row], object] = lambda row: None
) -> list[Row]:
    """`rows`, in the order of `ahead_of_waits` and `ahead_of_jobs`, and `finish` with the tokens, and the NOPs that
    carry some of them."""
    walk = TokenPass(cfg, written_by_stores(rows))
    for row in ahead_of_jobs(ahead_of_waits(cfg, rows, operator), operator):
        walk.add(row)
    walk.finish(finish)
    return walk.rows
