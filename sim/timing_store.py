"""The store unit as the timing model sees it (hw/store.py): rows, accumulators read, bursts, responses."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from ..hw import fifo, packer, rows
from ..hw.config import Config
from ..hw.ports import BURST_BEATS, OUTSTANDING
from .dram import Dram
from .timing_compute import Compute
from .timing_port import NEVER
from .timing_program import Columns, Write
from .timing_units import Log, Unit

_ROWS = packer.ROWS + 1
_WAITING = 2  # rows between planner and splitter
_READ = 1  # cycles from a row to its first accumulator's address


class Store(Unit):
    """STORE: as far as the accumulators' other users are known, then again.

    `horizon()` is the cycle up to which they are.
    """

    def __init__(
        self, program: Columns, log: Log, cfg: Config, dram: Dram, compute: Compute, horizon: Callable[[], int]
    ):
        super().__init__(program, 2, log)
        self._response = dram.response
        self._reads, self._horizon = compute.reads, horizon
        self._bank = cfg.acc_depth // cfg.acc_banks
        self._banks = cfg.acc_banks
        self._row = self._begun = -1
        self._read_at = -1  # first cycle in which an accumulator can be read
        self._read_rows: deque[int] = deque([-NEVER] * _ROWS, _ROWS)
        self._split: deque[int] = deque([-NEVER] * _WAITING, _WAITING)
        self._go = self._word = self._answer = -1
        self._answers: deque[int] = deque([-NEVER] * OUTSTANDING, OUTSTANDING)
        self._at_work: Iterator[int] | None = None

    def waited(self) -> int:
        """Cycles in which the unit waited for memory, at the end: those after the last row too."""
        return self.memory_wait + max(self._answer - self._word - 1, 0) if self._word >= 0 else 0

    def free(self, k: int) -> int:
        """When the front is."""
        return NEVER if self._at_work else self._begun - 1

    def step(self) -> None:
        """Take an instruction, or go on with the one that was left."""
        if self._at_work is None:
            cycle = self.next
            k = self.take()
            self._at_work = self._run(k, cycle)
        self.next = next(self._at_work, NEVER)
        if self.next == NEVER:
            self._at_work = None
            self.plan()

    def _run(self, k: int, cycle: int) -> Iterator[int]:
        work = self.work[k]
        self._begun = max(cycle + rows.PLAN_LATENCY, self._row + 1)
        log = self.log
        log.start[k] = self._begun
        if not isinstance(work, Write) or not work.entries:
            self._row = max(self._begun, self._split[0] + 1)
            self._idle()
            self._accept()
            self._go = max(self._split[-1] + 1, self._go + 1)
            self._answer = max(self._go + 1, self._answer + 1)
        else:
            for row in range(work.rows):
                yield from self._write(k, work, row)
        log.end[k] = self._answer
        self.occupy(cycle + 1, self._answer)
        self.give(k, self._answer)

    def _idle(self) -> None:
        """Nothing was left to send before this row, but answers to wait for."""
        waited = min(self._row + 1, self._answer) - self._word - 1
        if waited > 0:
            self.memory_wait += waited

    def _accept(self) -> None:
        """The row is in the splitter."""
        self._split.append(max(self._row + fifo.FIFO_LATENCY, self._go))

    def _write(self, k: int, work: Write, row: int) -> Iterator[int]:
        self._row = max(self._begun if row == 0 else self._row + 1, self._split[0] + 1, self._read_rows[0] + 1)
        self._idle()
        self._accept()
        per_beat = work.per_beat
        unit = work.first + row * work.step
        beats_per_entry = work.length // work.entries
        begin = max(self._read_at, self._row + _READ)
        self._read_at = begin
        yield from self._read(work.base + row * work.entries, work.entries, beats_per_entry)
        self._read_rows.append(self._read_at - beats_per_entry)
        # beats may be on the bus from `early` on, the last one from `late` on
        early, late = begin + 2, self._read_at - beats_per_entry + 1 + beats_per_entry
        self.log.bank[k] += self._read_at - begin - work.entries * beats_per_entry
        address = unit // per_beat
        left = (unit % per_beat + work.length + per_beat - 1) // per_beat
        answers, pace = self._answers, max(per_beat, 1)
        total = left
        go = max(self._go + 1, self._split[-1] + 1)
        word, answer, response = self._word, self._answer, self._response
        done = 0
        while left:
            beats = min(left, BURST_BEATS - (address & BURST_BEATS - 1))
            go = max(go, answers[0] + 1)
            done += beats
            word = max(word + beats, go + beats, early + beats - 1, late - (total - done) * pace)
            answer = max(word + response, answer + 1)
            answers.append(answer)
            left -= beats
            address += beats
            go += 1
        self._go, self._word, self._answer = go - 1, word, answer

    def _read(self, base: int, count: int, pace: int) -> Iterator[int]:
        """Read `count` accumulators, one in `pace` cycles, where nobody else reads their bank."""
        reads, cycle = self._reads, self._read_at
        bank = 1 << min(base // self._bank, self._banks - 1)
        edge = count
        if self._banks > 1 and base < self._bank < base + count:
            edge = self._bank - base
        while count:
            while reads and reads[0][1] <= cycle:
                reads.popleft()
            limit = NEVER
            for begin, end, banks in reads:
                if banks & bank:
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
