"""The bus side of a STORE in the timing model: rows to bursts, bursts to answers (hw/rtl/store/)."""

from __future__ import annotations

from collections import deque

from ...hw.config import Config
from ...hw.rtl import latencies as lat
from ...hw.rtl.latencies import BURST_BEATS, OUTSTANDING
from ..dram import Dram
from .read_port import NEVER, beat_interval

_ROWS = lat.capacity(lat.PACKER_ROWS)  # whose data come after their addresses
_WAITING = lat.capacity(lat.ROW_DEPTH)  # rows between planner and splitter


class Writer:
    """Packer, splitter and write port, with the cycles of the latest rows and bursts.

    `row`: the latest row left the planner; `read_at`: first cycle in which an accumulator can be read, `plain_at` the
    same for one that is not requantised, which waits until the post-processing unit is empty; `word`: the latest beat;
    `answer`: the latest row is in memory. `waited` counts cycles in which there was nothing left to send.
    """

    def __init__(self, cfg: Config, dram: Dram):
        self._response, self._writes = dram.response, dram.outstanding_writes
        self._beat = beat_interval(cfg, dram)
        self.row = self.read_at = self.plain_at = -1
        self._read_rows: deque[int] = deque([-NEVER] * _ROWS, _ROWS)
        self._split: deque[int] = deque([-NEVER] * _WAITING, _WAITING)
        self._go = self._sent = self.word = self.answer = -1
        self._answers: deque[int] = deque([-NEVER] * OUTSTANDING, OUTSTANDING)
        self._awaited = -1  # cycle of the latest answer of the bus
        self.waited = 0

    @property
    def split(self) -> int:
        """The cycle in which the latest row's last burst left the splitter."""
        return self._go

    @property
    def rest(self) -> int:
        """Cycles from the latest beat to its answer, in which nothing is left to send."""
        return max(self._awaited - self.word - 1, 0)

    def nothing(self, cycle: int) -> None:
        """A row without entries passes, for its token."""
        self.put(cycle)
        self._go = max(self._split[-1] + lat.SPLIT_LATENCY, self._go + 1)
        self.answer = max(self._go + lat.ANSWER_LATENCY, self.answer + 1)

    def put(self, cycle: int) -> int:
        """A row leaves the planner, in `cycle` or later, for the packer and the splitter."""
        if self._split[0] >= cycle:
            cycle = self._split[0] + 1
        if self._read_rows[0] >= cycle:
            cycle = self._read_rows[0] + 1
        self.row = cycle
        begins = cycle + lat.FIFO_LATENCY
        if begins < self._go:
            begins = self._go
        self._split.append(begins)
        # nothing was left to send before this row, but answers to wait for
        waited = (cycle + 1 if cycle < self._awaited else self._awaited) - self.word - 1
        if waited > 0:
            self.waited += waited
        return cycle

    def read(self, cycle: int, last: int, plain: int = -1) -> None:
        """The row's last accumulator is read in cycle `last`; another one can be in `cycle`, a plain one in `plain`."""
        self.read_at, self.plain_at = cycle, max(cycle, plain)
        self._read_rows.append(last)

    def send(self, address: int, left: int, early: int, late: int, pace: float) -> None:
        """`left` beats in bursts: the first can be on the bus in cycle `early`, the last in `late`, `pace` apart."""
        answers, response = self._answers, self._response
        word, answer = self.word, self.answer
        go = self._split[-1] + lat.SPLIT_LATENCY  # `put` made the split no earlier than `_go`
        while left:
            beats = BURST_BEATS - (address & BURST_BEATS - 1)
            if beats > left:
                beats = left
            left -= beats
            address += beats
            if answers[0] >= go:
                go = answers[0] + 1
            word += beats * self._beat
            ready = (early if early > go else go + 1) + (beats - 1) * self._beat
            if ready > word:
                word = ready
            ready = late - (left if pace == 1 else int(left * pace))
            if ready > word:
                word = ready
            come = word
            if self._writes < OUTSTANDING:  # the memory's limit is the closer one
                self._sent = max(self._sent + 1, go + lat.ADDRESS_LATENCY, answers[-self._writes] + 1)
                come = max(word, self._sent)
            answer = come + response if come + response > answer else answer + 1
            answers.append(answer)
            go += 1
        self._go, self.word = go - 1, word
        self.answer = self._awaited = answer

    def state(self, now: int) -> tuple[int, ...]:
        """The state that decides about rows put in cycle `now` or later, as cycles from `now` on.

        Cycles too early to delay such a row are replaced by one value, except those in which nothing was left to send.
        """
        past = now - 1 - BURST_BEATS * (self._beat - 1)
        cycles = (*self._read_rows, *self._split, *self._answers)
        cycles += (self.read_at, self.plain_at, self._go, self._sent, self.answer, self._awaited)
        return (*[c - now if c > past else past - now for c in cycles], self._awaited - self.word)

    def restore(self, now: int, state: tuple[int, ...]) -> None:
        """Set the `state` of this or another cycle, for cycle `now`."""
        cycles = [now + c for c in state[:-1]]
        split, answers = _ROWS, _ROWS + _WAITING
        rest = answers + OUTSTANDING
        self._read_rows.extend(cycles[:split])
        self._split.extend(cycles[split:answers])
        self._answers.extend(cycles[answers:rest])
        self.read_at, self.plain_at, self._go, self._sent, self.answer, self._awaited = cycles[rest:]
        self.word = self._awaited - state[-1]
