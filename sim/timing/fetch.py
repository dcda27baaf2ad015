"""The fetch unit in the timing model (hw/rtl/fetch.py)."""

from __future__ import annotations

from collections import deque

from ...hw import stages
from ...hw.config import Config
from ...hw.isa import INSN_BYTES
from ...hw.rtl import latencies as lat
from ...hw.units import Reader
from .program import Columns
from .read_port import NEVER, Client
from .units import Unit


class Fetch(Client):
    """The fetch unit: instructions in the order of the program to the queues, as far as these have room."""

    def __init__(self, cfg: Config, program: Columns, address: int, units: list[Unit], reader: Reader):
        super().__init__(reader.buffer, yields=reader.yields)
        self._units, self._room = units, lat.capacity(cfg.queue_depth)
        self._queue = program.queue.tolist()
        self._count, self._at = program.count, 0
        beat = cfg.axi_bits // 8
        self._per_beat = max(1, beat // INSN_BYTES)  # instructions, each of which leaves in a cycle of its own
        self.skipped = address // INSN_BYTES % self._per_beat  # instructions in front of the program in its first beat
        self._ready: deque[tuple[int, int]] = deque()  # bursts: cycle of the last beat, beats in all so far
        self._per_insn = stages.beats(cfg, INSN_BYTES)
        self._latest = -1  # cycle in which the latest instruction left
        self._read = 0  # beats that have left the buffer
        self.address = address // beat
        self.left = -(-(address + program.count * INSN_BYTES) // beat) - self.address
        self.valid = lat.FETCH_START_LATENCY + lat.SPLIT_LATENCY
        self.idle = NEVER
        self.waits_for: Unit | None = None
        self.update()

    def accept(self, free: int) -> None:
        """Nothing: the fetch unit makes one request only."""

    def burst(self, beats: int, end: int, final: bool) -> None:
        """Beats of instructions arrive."""
        self._ready.append((end + lat.BEAT_LATENCY, self.asked))
        self.deliver()

    def resume(self) -> None:
        """The queue that was full has room."""
        self.waits_for = None
        read = self._read
        self.deliver()
        if self._read > read:
            self.update()
            if self.port is not None:
                self.port.plan()

    def deliver(self) -> None:
        """Give instructions that have arrived to queues that have room."""
        ready, per = self._ready, self._per_insn
        while ready:
            end, total = ready[0]
            while self._at < self._count:
                need = self._beats(self._at)
                if need > total:
                    break
                unit = self._units[self._queue[self._at]]
                word, soonest = end - (total - need) * self.pace, self._latest + per - 1
                whole = word if word > soonest else soonest
                if need == total > self._read and (self._at + 1 == self._count or self._beats(self._at + 1) > total):
                    self._take(total, whole)  # into its word, whether the queue of that has room or not
                put = whole + lat.FETCH_LATENCY
                full = len(unit.arrivals) - self._room
                if full >= 0:
                    if full >= len(unit.taken):
                        self.waits_for, unit.fetch = unit, self
                        return
                    if unit.taken[full] >= put:
                        put = unit.taken[full] + 1
                unit.arrivals.append(put + lat.FIFO_LATENCY)
                self._latest = put
                self._at += 1
                if unit.at == len(unit.arrivals) - 1:
                    unit.wake()
                if self._at == self._count:
                    self.idle = put + 1
            ready.popleft()

    def _beats(self, k: int) -> int:
        """Beats of the program up to the last of instruction `k`."""
        return (self.skipped + k) // self._per_beat * self._per_insn + self._per_insn

    def _take(self, total: int, cycle: int) -> None:
        """The last of `total` beats leaves the buffer."""
        self.taken.append((total, cycle, 1))
        self._read = total
