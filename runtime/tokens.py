"""Dependence tokens from a recorded trace: every conflict between two queues becomes one push and one pop.

Before that, loads of weights pass a load that waits for the previous operator (`ahead_of_waits`), and loads of stored
data pass jobs of the compute queue (`ahead_of_jobs`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..hw.config import Config
from ..hw.errors import CapacityError
from ..hw.isa import nop_of, room
from ..hw.units import Channel, Queue, between, channels, connected, queues, stripes
from .access import Access, DramAccess, dram_cells, dram_granule
from .arrays import Array
from .buffer import Buffer
from .symbols import Symbol

PASSING = 384  # beats of loads that pass a waiting load: about its wait, more would delay it
PASSED = 4  # jobs that a load of stored data passes: they end while it waits


@dataclass(slots=True)
class Row:
    """One recorded instruction: its format, its fields and its accesses.

    `dram_base` counts from the start of `buffer`; `dram` are the bytes of `buffer` that the instruction accesses.
    `origin` is a number of `launch.Origins`; `symbol` moves `dram_base` in a run.
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
    """The message of a deadlock, which says for each queue which tokens it waits for.

    `heads` are (queue, instruction at its head, or None); `missing(k)` are the empty channels that instruction k pops,
    `at(k)` is its name.
    """
    parts = list[str]()
    for queue, k in heads:
        if k is None:
            parts.append(f"{queue.name} is empty")
        else:
            parts.append(f"{queue.name} waits for a token {' and '.join(map(str, missing(k)))} at {at(k)}")
    return f"deadlock: {'; '.join(parts)}"


def left_over_text(channel: Channel, count: int, last: str) -> str:
    """The message that no instruction pops `count` tokens of `channel`; `last` names the last instruction to push."""
    return f"{count} tokens {channel} are left over; the last is pushed by {last}"


class LastAccess:
    """For every cell of one memory and every queue: the positions (from 1; 0 for none) of the last write and access."""

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


class TokenPass:
    """Walks a trace in program order and adds the tokens that order every conflict, no others.

    Vector clocks record the progress of the other queues that each queue knows, so that a dependence that follows from
    earlier tokens gets no token. Conflicts between queues without a channel, such as load and store, go through the
    queue between them: by an instruction that already waits for the first queue, or a NOP.

    No legal execution has more than `token_depth` tokens in a channel. An instruction pushes only if its queue knows
    that at most `token_depth - 1` earlier tokens are left; otherwise a later instruction pushes instead, or a NOP that
    waits for an answer from the queue that takes the tokens. To make an answer possible, the push after which a queue
    knows of no room waits for all tokens that this queue has taken: then its neighbour knows of room.
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
        """Append `row` with the tokens that it needs."""
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
                # the first instruction that knows, because later ones may take long
                first = bisect_left(self._snapshots[through], need[source], key=lambda known: known[source]) + 1
                need[through] = max(need[through], first)
        near = [r for r in self._every if connected(r, queue) and need[r] > known[r]]
        for source in near:
            # no token if another of these queues already knows
            if not any(self._snapshots[r][need[r] - 1][source] >= need[source] for r in near if r != source):
                self._take(row, source, need[source])

    def _through(self, source: Queue, queue: Queue, need: list[int]) -> Queue:
        """The queue through which `queue` learns of `source`: if possible one that knows of it, without a NOP."""
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
        """The position of the first instruction, from `position` on, for whose token the channel has room."""
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

    The first load of an operator that reads stored data waits for the previous operator, and delays all later loads.
    Loads of buffers without stores pass it: the first, and others up to `PASSING` beats of data, unless a row between
    uses the same entries. `operator(row)` names the operator of a row.
    """
    written, most = written_by_stores(rows), PASSING * stripes(cfg) * cfg.axi_bits // 8
    ordered: list[Row] = []
    present, gate, room = None, -1, 0
    for row in rows:
        if operator(row) != present:
            present, gate = operator(row), -1
        if row.queue == Queue.LOAD and row.dram is not None:
            size = row.dram.rows * row.dram.nbytes
            if id(row.buffer) in written:
                gate, room = (len(ordered), most) if gate < 0 else (gate, room)
            elif (
                gate >= 0 and (size <= room or room == most) and not any(_share(row, other) for other in ordered[gate:])
            ):
                ordered.insert(gate, row)
                gate, room = gate + 1, room - size
                continue
        ordered.append(row)
    return ordered


def ahead_of_jobs(rows: Sequence[Row], operator: Callable[[Row], object]) -> list[Row]:
    """`rows` in an order that computes the same, in which loads of stored data come earlier.

    Such a load learns through the compute queue that the data is there, by a NOP before the jobs that follow the load:
    they need not end first. Loads pass the last `PASSED` jobs of their operator that use none of their entries; every
    queue keeps its own order. `operator(row)` names the operator of a row.
    """
    written = written_by_stores(rows)
    ordered: list[Row] = []
    for row in rows:
        at = len(ordered)
        if row.queue == Queue.LOAD and row.dram is not None and id(row.buffer) in written:
            jobs = 0
            while at and jobs < PASSED and ordered[at - 1].queue == Queue.COMPUTE:
                before = ordered[at - 1]
                if operator(before) != operator(row) or _share(row, before):
                    break
                at, jobs = at - 1, jobs + (before.format != "LOAD")
        ordered.insert(at, row)
    return ordered


def constants_between(rows: Sequence[Row], most: int) -> list[Row]:
    """`rows` in an order that computes the same, in which loads of constants use the time in which others wait.

    Most loads of data wait for the operator before. Behind each such load come up to `most` entries of constants that
    later operators need, if nothing in between uses their entries; what finds no place stays where it is.
    """
    ordered: list[Row] = []
    taken = dict[int, int]()  # entries behind a load, by its identity
    for row in rows:
        if row.queue != Queue.LOAD or row.buffer is None or row.buffer.data is None or row.symbol is not None:
            ordered.append(row)
            continue
        first = len(ordered)
        while first and not _share(row, ordered[first - 1]):
            first -= 1
        left: Row | None = row
        at = first
        while left is not None and at < len(ordered):
            gate = ordered[at]
            at += 1
            waits = gate.queue == Queue.LOAD and gate.buffer is not None and gate.buffer.data is None
            room = most - taken.get(id(gate), 0)
            if waits and room > 0:
                part, left = _divided(left, room)
                if part is not None:
                    ordered.insert(at, part)
                    taken[id(gate)] = most - room + part.fields["x_size"]
                    at += 1
        if left is not None:
            ordered.append(left)
    return ordered


def _divided(row: Row, most: int) -> tuple[Row | None, Row | None]:
    """(A load of the first `most` entries of `row`, a load of one row without padding; one of the others)."""
    f, (access,) = row.fields, row.accesses
    size, entries = f["x_size"], access.entries
    if f["y_size"] != 1 or row.dram is None or not isinstance(entries, slice) or entries.stop - entries.start != size:
        return None, row
    if size <= most:
        return row, None
    parts = list[Row]()
    for begin, end in ((0, most), (most, size)):
        fields = f | {"sram_base": f["sram_base"] + begin, "dram_base": f["dram_base"] + begin}
        fields |= {"x_size": end - begin, "x_stride": end - begin}
        nbytes = row.dram.nbytes // size
        dram = row.dram._replace(start=row.dram.start + begin * nbytes, nbytes=(end - begin) * nbytes)
        own = access._replace(entries=slice(entries.start + begin, entries.start + end))
        parts.append(replace(row, fields=fields, accesses=[own], dram=dram._replace(pitch=dram.nbytes)))
    return parts[0], parts[1]


def joined(row: Row, other: Row) -> Row | None:
    """A single LOAD for `row` and `other`, LOADs of one row each; None where `other` does not continue `row`.

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
    """`rows` with loads of parameters that continue each other joined, because a STORE waits for each."""
    kept: list[Row] = []
    last = 0  # position after the last row of the store queue
    for row in rows:
        if row.queue == Queue.STORE:
            if last and (merged := joined(kept[last - 1], row)) is not None:
                kept[last - 1] = merged
                continue
            last = len(kept) + 1
        kept.append(row)
    return kept


def _share(row: Row, other: Row) -> bool:
    """Whether one row may use an entry that the other writes."""
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
