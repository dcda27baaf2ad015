"""The timing model as a device: values from the behavioural model, cycles and counters from sim/timing/engine.py.

Counters of a run's bursts and of how full buffers are follow from the program's addresses and the engine's cycles.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from functools import partial

import numpy as np

from ...hw import stages
from ...hw.config import Config
from ...hw.isa import INSN_BYTES, Mem
from ...hw.metrics import buffered
from ...hw.rtl import latencies as lat
from ...hw.rtl.latencies import BURST_BEATS
from ...hw.stages import bus_bits
from ...hw.units import stripes
from ...runtime.device import Stats
from ..dram import ZYNQ_HP, Dram
from ..memory import CAPACITY
from ..model.device import ModelDevice
from .engine import Engine, Timing, simulate
from .program import Columns, Move, Write, columns, no_micro_ops
from .read_port import Client


def burst_lengths(cfg: Config, words: np.ndarray, address: int, skip: Iterable[str] = ()) -> dict[str, dict[str, int]]:
    """The histograms `read_bursts` and `write_bursts` of the instructions `words`, uint64 (n, 2), at byte `address`.

    `skip`: as of `columns`.
    """
    program = columns(cfg, words, lambda first, count: np.zeros(count, np.uint32), {*skip, "gemm", "alu"})
    beat = cfg.axi_bits // 8
    first = address // beat
    fetched = (first, -(-(address + len(words) * INSN_BYTES) // beat) - first)
    loads, stores = _transfers(cfg, program)
    return {"read_bursts": _lengths([fetched, *loads]), "write_bursts": _lengths(stores)}


def _transfers(cfg: Config, program: Columns) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """(first beat, beats) of the requests of all rows, of loads and of stores."""
    loads, stores = [], []
    for work in program.work:
        if isinstance(work, Move):
            wide = bus_bits(cfg, Mem(work.mem)) // cfg.axi_bits
            loads += [(wide * first, wide * beats) for first, beats in _rows(work)]
        elif isinstance(work, Write) and work.length:
            stores += _rows(work)
    return loads, stores


def _rows(work: Move | Write) -> list[tuple[int, int]]:
    units = range(work.first, work.first + work.rows * work.step, work.step) if work.step else [work.first] * work.rows
    per = work.per_beat
    return [(unit // per, (unit % per + work.length + per - 1) // per) for unit in units]


def _lengths(requests: list[tuple[int, int]]) -> dict[str, int]:
    """How many bursts of each length the `requests` are cut into: each up to the next multiple of `BURST_BEATS`."""
    found: Counter[int] = Counter()
    for first, beats in requests:
        head = min(beats, -first % BURST_BEATS)
        whole, tail = divmod(beats - head, BURST_BEATS)
        found.update({head: 1})
        found.update({BURST_BEATS: whole})
        found.update({tail: 1})
    return {str(beats): found[beats] for beats in sorted(found) if beats and found[beats]}


class _Taken(deque[tuple[int, int, int]]):
    """The beats that a client takes, with a log of them all."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[tuple[int, int, int]] = []

    def append(self, one: tuple[int, int, int]) -> None:
        self.log.append(one)
        super().append(one)


def observed(
    cfg: Config, dram: Dram, words: np.ndarray, program: Columns, address: int, skip: Iterable[str] = ()
) -> dict[str, dict[str, int] | int]:
    """The metrics of buses and buffers by the timing model: `burst_lengths` and `buffer_levels`."""
    return {**burst_lengths(cfg, words, address, skip), **buffer_levels(cfg, dram, program, address)}


def buffer_levels(cfg: Config, dram: Dram, program: Columns, address: int) -> dict[str, int]:
    """The metrics of the read ports' buffers and of reads under way, of a run in which every burst is an event.

    The run is that of `simulate`, done again. Not of the load unit where its bursts are spread over ports.
    """
    engine = Engine(cfg, dram, program, address, fast=False)
    taken = {name: _Taken() for name in engine.clients}
    for name, client in engine.clients.items():
        client.taken = taken[name]
    for port in engine.ports:
        port.bursts = []
    engine.run()
    found, logs = {}, [port.bursts or [] for port in engine.ports]
    for name in dict.fromkeys(name for port in buffered(cfg) for name in port):
        client = engine.clients[name]
        if name == "load" and stripes(cfg) > 1:
            continue
        mine = [(beats, end) for log in logs for each, beats, _, end in log if each is client]
        came = _joined([_beats(beats, end + lat.BEAT_LATENCY, client.pace) for beats, end in mine])
        gone = _fetched(cfg, engine, program, came) if name == "fetch" else _gone(taken[name].log)
        found[f"{name}_buffer_high"] = _most(came, gone)
    found["reads_under_way_high"] = max(_under_way(log) for log in logs)
    return found


def _beats(beats: int, last: int, pace: int) -> np.ndarray:
    """The cycles of `beats` beats, the last in cycle `last`."""
    return last - pace * np.arange(beats - 1, -1, -1)


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _gone(log: list[tuple[int, int, int]]) -> np.ndarray:
    """The cycles in which a mover takes its beats."""
    totals = [0, *(total for total, _, _ in log)]
    return _joined([_beats(total - before, cycle, pace) for before, (total, cycle, pace) in zip(totals, log)])


def _fetched(cfg: Config, engine: Engine, program: Columns, came: np.ndarray) -> np.ndarray:
    """The cycles in which the fetch unit takes its beats, which `came`: those of an instruction one after the other, as
    soon as the one before has left; one with several instructions with the last of these."""
    per, several = stages.beats(cfg, INSN_BYTES), max(1, cfg.axi_bits // 8 // INSN_BYTES)
    left = np.zeros(program.count, np.int64)
    for order, unit in zip(program.order, engine.units):
        left[order] = np.array(unit.arrivals, np.int64) - lat.FIFO_LATENCY
    gone, free = np.zeros(len(came), np.int64), -1
    for k in range(program.count):
        first = (engine.fetch.skipped + k) // several * per
        for beat in range(first, first + per):
            free = gone[beat] = max(came[beat], free + (beat > first))
        free = int(left[k])
    return gone


def _most(came: np.ndarray, gone: np.ndarray) -> int:
    """The most beats in a buffer without its first one, which is in the output register until its cycle ends."""
    waiting = np.arange(1, len(came) + 1) - np.searchsorted(gone, came, "left")
    return max(int(waiting.max(initial=0)) - 1, 0)


def _under_way(log: list[tuple[Client, int, int, int]]) -> int:
    """The most bursts on their way when the address of another one is taken."""
    sent, ends = (np.array([one[place] for one in log], np.int64) for place in (2, 3))
    waiting = np.arange(1, len(log) + 1) - np.searchsorted(ends, sent, "right")
    return int(waiting.max(initial=0))


class TimingDevice(ModelDevice):
    """Memory and behavioural model of configuration `cfg`, with the cycles that the circuit would need.

    `dram` is the memory's timing; `skip` names what takes no time (`gemm`, `alu`, `dma`), and changes no value.
    `timing` is what the latest run took, by instruction. Raises `UnsupportedError` for an unknown name in `skip`, or a
    memory that stalls at random.
    """

    def __init__(self, cfg: Config, *, capacity: int = CAPACITY, dram: Dram = ZYNQ_HP, skip: Iterable[str] = ()):
        super().__init__(cfg, capacity=capacity)
        self.dram, self.skip = dram, tuple((skip,) if isinstance(skip, str) else skip)
        self.timing: Timing | None = None
        self._micro_ops = no_micro_ops(cfg)

    def run_image(self, image: np.ndarray, insn_address: int, insn_count: int) -> Stats:
        """Execute in `image`, uint8 (n,), in place of the device's memory; its index is the address."""
        words = image[insn_address : insn_address + insn_count * INSN_BYTES].copy().view("<u8").reshape(-1, 2)

        def uops(first: int, count: int) -> np.ndarray:
            found = image[4 * first : 4 * (first + count)].view("<u4")
            return np.pad(found, (0, count - len(found)))

        program = columns(self.cfg, words, uops, self.skip, held=self._micro_ops)
        stats = super().run_image(image, insn_address, insn_count)
        self.timing = simulate(self.cfg, self.dram, program, insn_address)
        stats.cycles, stats.counters = self.timing.cycles, Counter(self.timing.counters)
        stats.timeline = self.timing.timeline
        stats.observed = partial(observed, self.cfg, self.dram, words, program, insn_address, self.skip)
        return stats
