"""The store unit as the timing model sees it (hw/store.py): rows, accumulators read, bursts, responses."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from ..hw import fifo, packer, ppu, rows, store
from ..hw.config import Config
from ..hw.ports import BURST_BEATS, OUTSTANDING, groups
from .dram import Dram
from .timing_compute import PRODUCTS, Compute
from .timing_mover import Mover
from .timing_port import NEVER
from .timing_program import Columns, Move, Write
from .timing_units import Log, Unit

_ROWS = packer.ROWS + 1
_WAITING = 2  # rows between planner and splitter
_READ = 1  # cycles from a row to its first accumulator's address


class Store(Unit):
    """STORE: as far as other users of accumulators and multipliers are known, then again; LOAD of PAR.

    `horizon()` is the cycle up to which they are.
    """

    def __init__(
        self,
        program: Columns,
        log: Log,
        buffer: int,
        cfg: Config,
        dram: Dram,
        compute: Compute,
        horizon: Callable[[], int],
    ):
        super().__init__(program, 2, log, lambda work: isinstance(work, Move))
        self.mover = Mover(buffer, self._loaded, self.wake, self._hold)
        self._loading = False
        self._groups, self._quantised = groups(cfg), ppu.latency(cfg)
        self._response, self._writes, self._sent = dram.response, dram.outstanding_writes, -1
        self._beat = max(1, cfg.axi_bits // 8 // dram.port_bytes)  # cycles per beat on the bus
        self._reads, self._horizon = compute.reads, horizon
        self._bank = cfg.acc_depth // cfg.acc_banks
        self._banks = cfg.acc_banks
        self._row = self._begun = -1
        self._until = -1  # cycle up to which they are known
        self._read_at = -1  # first cycle in which an accumulator can be read
        self._read_rows: deque[int] = deque([-NEVER] * _ROWS, _ROWS)
        self._split: deque[int] = deque([-NEVER] * _WAITING, _WAITING)
        self._go = self._word = self._answer = -1
        self._answers: deque[int] = deque([-NEVER] * OUTSTANDING, OUTSTANDING)
        self._at_work: Iterator[int] | None = None  # the rest of a STORE, which goes on in cycle `resume`
        self.resume, self._handed = NEVER, False  # all its rows have left the front
        self._awaited = -1  # cycle of the latest answer of the bus

    def waited(self) -> int:
        """Cycles in which the unit waited for memory, at the end: those after the last row too."""
        return self.memory_wait + max(self._awaited - self._word - 1, 0)

    def free(self, k: int) -> int:
        """When the front is."""
        if self._loading or (self._at_work and not (self._handed and isinstance(self.work[k], Move))):
            return NEVER
        if not isinstance(self.work[k], Move):
            return self._begun - 1
        return self.mover.begun - 1 if self.mover.known else NEVER

    def step(self) -> None:
        """Take an instruction, or go on with the one that was left."""
        if self.next <= self.resume:
            cycle = self.next
            k = self.take()
            if isinstance(self.work[k], Move):
                self._loading = True
                self.mover.start(k, self.work[k], cycle)
                self.plan()
                return
            self._at_work = self._run(k, cycle)
        assert self._at_work is not None
        self.resume = next(self._at_work, NEVER)
        if self.resume == NEVER:
            self._at_work = None
            self.mover.proceed()
        self.plan()

    def _run(self, k: int, cycle: int) -> Iterator[int]:
        work = self.work[k]
        self._begun = max(cycle + rows.PLAN_LATENCY, self._row + 1)
        self.log.start[k] = self._begun
        self._handed = False
        if work.entries:
            yield from self._write(k, work)
        else:
            self._nothing()
        self._answered(k)

    def _nothing(self) -> None:
        """A row without entries passes, for its token."""
        self._put(self._begun)
        self._go = max(self._split[-1] + 1, self._go + 1)
        self._answer = max(self._go + 1, self._answer + 1)

    def _answered(self, k: int) -> None:
        self.log.end[k] = self._answer
        self.occupy(self.log.issue[k] + 1, self._answer)
        self.give(k, self._answer)

    def _hold(self, k: int) -> int:
        """Parameters are written when all that may need them has left."""
        return NEVER if self._at_work else self._word + 1

    def _loaded(self, k: int, first: int, cycle: int, waited: int) -> None:
        """The LOAD becomes a STORE of nothing."""
        self.log.start[k], self.log.memory[k] = first, waited
        self.memory_wait += waited
        self._begun = max(cycle + rows.PLAN_LATENCY, self._row + 1)
        self._nothing()
        self._answered(k)
        self.latest, self._loading = cycle, False
        self.plan()

    def _write(self, k: int, work: Write) -> Iterator[int]:
        """All rows of a STORE."""
        entries, per_beat = work.entries, work.per_beat
        beats = work.length // entries
        pace = max(beats, self._groups) if work.quantised else beats  # cycles per entry
        apart = pace * per_beat / beats
        latency = store.DATA_LATENCY - _READ + (self._quantised if work.quantised else 0)
        base, unit, time, put, waited = work.base, work.first, entries * pace, self._begun, 0
        for row in range(work.rows):
            put = self._put(put)
            self._handed = row + 1 == work.rows
            begin = put + _READ if put + _READ > self._read_at else self._read_at
            self._read_at = begin
            if self._free(base, entries, begin + time, work.quantised):
                self._read_at = begin + time
            else:
                yield from self._read(base, entries, pace, work.quantised)
                waited += self._read_at - begin - time
            last = self._read_at - pace
            self._read_rows.append(last)
            left = (unit % per_beat + work.length + per_beat - 1) // per_beat
            self._send(unit // per_beat, left, begin + latency, last + latency + beats - 1, apart)
            base += entries
            unit += work.step
            put += 1
        self.log.bank[k] = waited

    def _put(self, cycle: int) -> int:
        """A row leaves the front, in `cycle` or later, for the packer and the splitter."""
        if self._split[0] >= cycle:
            cycle = self._split[0] + 1
        if self._read_rows[0] >= cycle:
            cycle = self._read_rows[0] + 1
        self._row = cycle
        begins = cycle + fifo.FIFO_LATENCY
        if begins < self._go:
            begins = self._go
        self._split.append(begins)
        # nothing was left to send before this row, but answers to wait for
        waited = (cycle + 1 if cycle < self._awaited else self._awaited) - self._word - 1
        if waited > 0:
            self.memory_wait += waited
        return cycle

    def _send(self, address: int, left: int, early: int, late: int, pace: float) -> None:
        """`left` beats in bursts: the first can be on the bus in cycle `early`, the last in `late`, `pace` apart."""
        answers, response = self._answers, self._response
        go, word, answer = self._split[-1] + 1, self._word, self._answer  # `_put` made the split no earlier than `_go`
        while left:
            beats = BURST_BEATS - (address & BURST_BEATS - 1)
            if beats > left:
                beats = left
            left -= beats
            address += beats
            if answers[0] >= go:
                go = answers[0] + 1
            word += beats * self._beat
            ready = early + beats - 1 if early > go else go + beats
            if ready > word:
                word = ready
            ready = late - (left if pace == 1 else int(left * pace))
            if ready > word:
                word = ready
            come = word
            if self._writes < OUTSTANDING:  # the memory's limit is the closer one
                self._sent = max(self._sent + 1, go + 1, answers[-self._writes] + 1)
                come = max(word, self._sent)
            answer = come + response if come + response > answer else answer + 1
            answers.append(answer)
            go += 1
        self._go, self._word = go - 1, word
        self._answer = self._awaited = answer

    def _free(self, base: int, count: int, end: int, quantised: bool) -> bool:
        """Whether nobody else needs what `count` accumulators from `base` on need, until cycle `end`."""
        reads, begin = self._reads, self._read_at
        if end > self._until:
            self._until = self._horizon()
            if end > self._until:
                return False
        while reads and reads[0][1] <= begin:
            reads.popleft()
        if not reads or reads[0][0] >= end:
            return True
        mask = self._touched(base, count)
        if quantised:
            mask |= PRODUCTS
        for since, _, banks in reads:
            if since >= end:
                return True
            if banks & mask:
                return False
        return True

    def _touched(self, base: int, count: int) -> int:
        """The banks of `count` accumulators from `base` on, which are in two banks at most."""
        low, high, last = base // self._bank, (base + count - 1) // self._bank, self._banks - 1
        return 1 << (low if low < last else last) | 1 << (high if high < last else last)

    def _read(self, base: int, count: int, pace: int, quantised: bool) -> Iterator[int]:
        """Read `count` accumulators, one in `pace` cycles, where nobody else reads their bank (or multiplies)."""
        reads, cycle = self._reads, self._read_at
        bank = 1 << min(base // self._bank, self._banks - 1)
        used = PRODUCTS if quantised else 0
        edge = count
        if self._banks > 1 and base < self._bank < base + count:
            edge = self._bank - base
        while count:
            while reads and reads[0][1] <= cycle:
                reads.popleft()
            limit = NEVER
            for begin, end, banks in reads:
                if banks & (bank | used):
                    if begin <= cycle:
                        cycle = end if end > cycle else cycle
                        continue
                    limit = begin
                    break
            if limit == NEVER:
                limit = self._horizon()
                if limit <= cycle:
                    self._read_at = cycle
                    yield limit
                    continue
            part = min(edge, -(-(limit - cycle) // pace)) if limit < NEVER else edge
            cycle += part * pace
            count -= part
            edge -= part
            if count and not edge:
                bank, edge = bank << 1, count
        self._read_at = cycle
