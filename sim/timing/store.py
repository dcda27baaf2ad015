"""The store unit in the timing model (hw/rtl/store.py): rows, accumulators read, bursts, responses."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple

from ...hw.config import Config
from ...hw.rtl import latencies as lat
from ...hw.rtl.latencies import BURST_BEATS
from ...hw.units import Queue
from ..dram import Dram
from .compute import Compute
from .issues import PRODUCTS, banks_between
from .mover import Mover
from .program import Columns, Move, Write
from .read_port import NEVER, Writer
from .units import Log, Unit

_READ = lat.ACCUMULATOR_LATENCY


class _Done(NamedTuple):
    """The effect of a STORE that waited for no bank, in cycles from its begin on: its last row, the first cycle in
    which another accumulator can be read, cycles of waiting, the state after it.
    """

    row: int
    read: int
    waited: int
    state: tuple[int, ...]


class Store(Unit):
    """STORE, computed as far as the other users of accumulators and multipliers are known, then again; LOAD of PAR.

    `horizon(used)` is the cycle up to which the users of the banks or multipliers `used` are known. With `fast`, the
    effect of a STORE is remembered for others like it.
    """

    def __init__(
        self,
        program: Columns,
        log: Log,
        buffer: int,
        cfg: Config,
        dram: Dram,
        compute: Compute,
        horizon: Callable[[int], int],
        *,
        fast: bool = True,
    ):
        super().__init__(program, Queue.STORE, log, lambda work: isinstance(work, Move))
        self.mover = Mover(buffer, self._loaded, self.wake)
        self._loading, self._loaded_by = False, -1  # the first cycle behind the latest LOAD
        self._groups, self._latency = lat.groups(cfg), (lat.STORE_DATA_LATENCY, lat.quantised_data_latency(cfg))
        self._drained = lat.ppu_latency(cfg) + 1  # from the last entry's read to one that waits for it to be sent
        self._reads, self._horizon = compute.reads, horizon
        self._bank = cfg.bank_depth
        self._banks = cfg.acc_banks
        self._begun = -1
        self._end, self._answered_by = 0, -1  # of STOREs: one past the last beat, first cycle without a write in flight
        self._until: dict[int, int] = {}  # cycles up to which users are known, by the banks they use
        self.writer = Writer(cfg, dram)
        self._fast = fast
        self.known: dict[tuple[int, ...], _Done] = {}  # the effects of STOREs, by work and state
        self._at_work: Iterator[int] | None = None  # the rest of a STORE, which goes on in cycle `resume`
        self.resume = NEVER
        self._behind: tuple[int, int] | None = None  # the STORE that was taken meanwhile, its cycle

    @property
    def crowded(self) -> bool:
        """True if it is not known when the front has room."""
        return self._behind is not None

    def waited(self) -> int:
        """Cycles in which the unit waited for memory, at the end: those after the last row too."""
        return self.memory_wait + self.writer.waited + self.writer.rest

    def free(self, k: int) -> int:
        """When the front is free."""
        if self._loading or self._behind:
            return NEVER
        work = self.work[k]
        if not isinstance(work, Move):
            return self._begun + lat.STORE_INTERVAL - lat.ROW_LATENCY
        if self._at_work:
            return NEVER
        free, writer = max(self.mover.free, self._loaded_by), self.writer
        if free >= self._answered_by:
            return free
        sent = max(free, writer.word + 1, writer.row + 1)
        answered = max(sent, self._answered_by)
        if work.first < self._end * work.per_beat:
            return answered
        return min(answered, max(sent, self.arrivals[self.at] + lat.BEHIND_LATENCY))

    def step(self) -> None:
        """Take an instruction, or go on with the one that was left."""
        if self.next <= self.resume:
            cycle = self.next
            k = self.take()
            if isinstance(self.work[k], Move):
                self._loading = True
                self.mover.take(k, self.work[k], cycle)
            elif self._at_work:
                self._behind = k, cycle
            else:
                self._go_on(self._run(k, cycle))
        else:
            assert self._at_work is not None
            self._go_on(self._at_work)
        self.plan()

    def _go_on(self, work: Iterator[int]) -> None:
        """Continue `work`, and then the STORE taken meanwhile, as far as the users of the accumulators are known."""
        self.resume = next(work, NEVER)
        while self.resume == NEVER and self._behind:
            work, self._behind = self._run(*self._behind), None
            self.resume = next(work, NEVER)
        self._at_work = work if self.resume < NEVER else None

    def _run(self, k: int, cycle: int) -> Iterator[int]:
        work = self.work[k]
        self._begun = max(cycle + lat.ROW_LATENCY, self.writer.row + 1)
        self.log.start[k] = self._begun
        self._until.clear()  # instructions that waited for the STORE before have begun
        if work.entries:
            if cycle >= self._answered_by:
                self._end = 0
            beats = work.first + (work.rows - 1) * work.step + work.length + work.per_beat - 1
            self._end = max(self._end, beats // work.per_beat)
            yield from self._write(k, work)
            self._answered_by = self.writer.answer + lat.ANSWERED_LATENCY
        else:
            self._nothing(True)
        self._answered(k)

    def _nothing(self, awaited: bool) -> None:
        """Pass a STORE without data. `awaited`: a later LOAD waits for its answer, as for the answer to any STORE."""
        self.writer.nothing(self._begun)
        if awaited:
            self._answered_by = max(self._answered_by, self.writer.row + lat.ANSWERED_LATENCY)

    def _answered(self, k: int) -> None:
        answer = self.writer.answer
        self.log.end[k] = answer
        self.occupy(self.log.issue[k] + 1, max(self.writer.word, self.writer.split))
        self.idle = answer + 1
        self.give(k, answer)

    def _loaded(self, k: int, first: int, cycle: int, waited: int) -> None:
        """The LOAD becomes a STORE of nothing."""
        self.log.start[k], self.log.memory[k] = first, waited
        self.memory_wait += waited
        self._begun = max(cycle + lat.ROW_LATENCY, self.writer.row + 1)
        self._nothing(cycle < self._answered_by)
        self._answered(k)
        self._loading, self._loaded_by = False, cycle + 1
        self.plan()

    def _write(self, k: int, work: Write) -> Iterator[int]:
        """A STORE: the remembered effect of one like it that began in the same state, or all its rows."""
        begun, writer, period = self._begun, self.writer, BURST_BEATS * work.per_beat
        state = writer.state(begun)
        key = (work.rows, work.entries, work.first % period, work.step % period, work.quantised, *state)
        found = self.known.get(key) if self._fast else None
        if found is not None:
            begin, end = max(begun, writer.read_at), begun + found.read
            if self._free(work.base, work.rows * work.entries, begin, end, work.quantised):
                writer.restore(begun, found.state)
                writer.row, writer.waited = begun + found.row, writer.waited + found.waited
                return
        waited = writer.waited
        yield from self._rows(k, work)
        if not self.log.bank[k]:
            self.known[key] = _Done(
                writer.row - begun, writer.read_at - begun, writer.waited - waited, writer.state(begun)
            )

    def _rows(self, k: int, work: Write) -> Iterator[int]:
        """Write the rows of a STORE one after the other; yields a cycle whenever later users of a bank are unknown."""
        writer, entries, per_beat = self.writer, work.entries, work.per_beat
        beats = work.length // entries
        pace = max(beats, self._groups) if work.quantised else beats  # cycles per entry
        apart = pace * per_beat / beats
        latency = self._latency[work.quantised] - _READ
        base, unit, time, put, waited = work.base, work.first, entries * pace, self._begun, 0
        for _ in range(work.rows):
            put = writer.put(put)
            begin = max(put + _READ, writer.read_at if work.quantised else writer.plain_at)
            end = begin + time
            if not self._free(base, entries, begin, end, work.quantised):
                end = yield from self._read(base, entries, begin, pace, work.quantised)
                waited += end - begin - time
            last = end - pace
            writer.read(end, last, last + self._drained if work.quantised else -1)
            offset = unit % per_beat
            left = (offset + work.length + per_beat - 1) // per_beat
            filled = min(per_beat - offset, entries)  # entries of the first beat, where these are smaller
            early, late = begin + latency + (filled - 1) * pace, last + latency + beats - 1
            writer.send(unit // per_beat, left, early if early < late else late, late, apart)
            base += entries
            unit += work.step
            put += 1
        self.log.bank[k] = waited

    def _free(self, base: int, count: int, begin: int, end: int, quantised: bool) -> bool:
        """True if nobody else uses the banks of `count` accumulators, or the multipliers, from `begin` until `end`."""
        reads, mask = self._reads, self._touched(base, count)
        if quantised:
            mask |= PRODUCTS
        if end > self._until.get(mask, -1):
            until = self._until[mask] = self._horizon(mask)
            if end > until:
                return False
        while reads and reads[0][1] <= begin:
            reads.popleft()
        if not reads or reads[0][0] >= end:
            return True
        for since, _, banks in reads:
            if since >= end:
                return True
            if banks & mask:
                return False
        return True

    def _touched(self, base: int, count: int) -> int:
        """The banks of `count` accumulators from `base` on."""
        low, high, last = base // self._bank, (base + count - 1) // self._bank, self._banks - 1
        return banks_between(low if low < last else last, high if high < last else last)

    def _read(self, base: int, count: int, cycle: int, pace: int, quantised: bool) -> Generator[int, None, int]:
        """Read `count` accumulators from `cycle` on, one in `pace` cycles, where nobody else reads their bank (or
        multiplies); the first cycle for another one. Others may multiply between the groups of one.
        """
        reads = self._reads
        bank = 1 << min(base // self._bank, self._banks - 1)
        used, needed = (PRODUCTS, self._groups) if quantised else (0, 1)
        edge = min(count, self._bank - base % self._bank)
        entered = 0  # groups of the next one that are in the multipliers; its accumulators are read
        while count:
            while reads and reads[0][1] <= cycle:
                reads.popleft()
            starts, enters, until = NEVER, NEVER, 0  # when others begin to use the bank, the multipliers and until when
            for begin, end, banks in reads:
                if banks & used and enters == NEVER:
                    if begin > cycle:
                        enters, until = begin, end
                    elif end > cycle:
                        cycle = end
                elif banks & bank and starts == NEVER and end > cycle:
                    if begin <= cycle and not entered:
                        cycle = end
                    else:
                        starts = begin
            if starts == enters == NEVER:
                starts = enters = self._horizon(bank | used)
                if starts < cycle + needed - entered:
                    yield starts
                    continue
            since, ready, whole = cycle - entered, edge, edge
            if starts < NEVER:
                ready = max((starts - since - 1) // pace + 1, 1 if entered else 0)
            if enters < NEVER:
                whole = max((enters - since - needed) // pace + 1, 0)
            part = min(edge, ready, whole)
            cycle, entered = since + part * pace, 0
            if part < min(edge, ready) and until and cycle < enters:
                cycle, entered = until, enters - cycle
            count -= part
            edge -= part
            if count and not edge:
                bank, edge = bank << 1, min(count, self._bank)
        return cycle
