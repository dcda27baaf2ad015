"""Cycles of a program without its data: an event simulation of queues, tokens, movers, memory, pipeline and stores.

Latencies come from hw/rtl/latencies.py, from which the circuit is built; none is fitted. sim/dram.py models the memory.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ...hw import stages
from ...hw.circuit import check_buildable
from ...hw.config import Config
from ...hw.errors import DeadlockError, UnsupportedError
from ...hw.isa import INSN_BYTES
from ...hw.metrics import COUNTERS
from ...hw.rtl import latencies as lat
from ...hw.show import table
from ...hw.units import Reader, channels, fetch_reader, queues, readers, stripes, units
from ...runtime.device import WAITS, Timeline
from ...runtime.launch import INSN_ALIGN, Launch
from ...runtime.program import Program
from ..dram import PRESETS, ZYNQ_HP, Dram, shared_bytes
from ..memory import first_fit
from .compute import Compute
from .issues import WRITES
from .mover import Stripes
from .program import Columns, MicroOps, columns, no_micro_ops
from .read_port import NEVER, Client, ReadPort, beat_interval
from .store import Store
from .ternary import Ternary
from .units import Channel, Load, Log, Unit


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


_TO_BURST = lat.PLAN_LATENCY + lat.SPLIT_LATENCY  # cycles from a LOAD that is taken to its first burst


@dataclass(frozen=True)
class Timing:
    """The result of `predict`. Cycles count from the start of fetching; arrays have one value per instruction.

    `cycles` is the CYCLES register, `counters` the others by register name. `arrive`: the instruction heads its queue;
    `issue`: it is taken from it; `start`: its first micro-op issue, entry or row; `end`: its last result is in memory
    and its tokens are given. `waits` are cycles by reason: `token_prev` and `token_next` (at the head of the queue, for
    a token of the queue before or behind), `unit` (at the head, for the unit), `memory` (for beats, while it executes),
    `bank` (STORE, for the accumulators). `queued`: it enters its queue.

    >>> import tilewright as tw
    >>> timing = tw.predict(tw.load("examples/digits/digits.onnx"))
    >>> timing.counters["COMPUTE_BUSY"] < timing.cycles
    True
    """

    cycles: int
    counters: dict[str, int]
    queue: np.ndarray
    arrive: np.ndarray
    issue: np.ndarray
    start: np.ndarray
    end: np.ndarray
    waits: dict[str, np.ndarray]
    queued: np.ndarray

    def __repr__(self) -> str:
        return f"Timing({self.cycles:,} cycles, {len(self.queue):,} instructions)"

    def _repr_html_(self) -> str:
        rows = [(name, int(count)) for name, count in self.counters.items()]
        rows += [(f"waits: {reason}", int(cycles.sum())) for reason, cycles in self.waits.items()]
        return table(repr(self), ("counter, or reason to wait", "value"), rows)

    def timeline(self) -> Timeline:
        """The cycles that simulated devices have in common."""
        waits = {name: self.waits[name] for name in WAITS if name in self.waits}
        waits["token"] = self.waits["token_prev"] + self.waits["token_next"]
        return Timeline(self.queue, self.issue, self.start, self.end, waits, self.queued)


class Engine:
    """The units, channels and ports of one run, and the loop over their events. `fast`: see `predict`."""

    def __init__(self, cfg: Config, dram: Dram, program: Columns, address: int, fast: bool):
        self.log = log = Log(program.count)
        self._latency = dram.latency
        load, compute, store, *others = units(cfg)  # the others are unit `ternary`, or none
        self.load = Load(program, log, load.buffer)
        self.compute = Compute(program, log, compute.buffer, cfg)
        self.ternary = Ternary(program, log, cfg, self.compute, self._jobs_known) if others else None
        known = self._both_known if others else self._compute_known
        self.store = Store(program, log, store.buffer, cfg, dram, self.compute, known, fast=fast)
        self.units: list[Unit] = [self.load, self.compute, self.store, *([self.ternary] if self.ternary else [])]
        for one in channels(cfg):
            channel = Channel()
            self.units[one.source].give_to(channel, one.push)
            self.units[one.target].take_from(channel, one.pop)
        self.fetch = Fetch(cfg, program, address, self.units, fetch_reader(cfg))
        self.clients: dict[str, Client] = {
            "load": self.load.mover,
            "compute": self.compute.mover,
            "fetch": self.fetch,
            "store": self.store.mover,
        }
        bounds = {"load": self._load_bound, "compute": self._compute_bound, "fetch": self._fetch_bound}
        bounds |= {"store": self._store_bound}
        clients, self.ports = self.clients, []
        spread = stripes(cfg) > 1  # one port's next burst depends on another's last, so each is an event of its own
        loads = Stripes(cfg, load.buffer, self.load.mover, beat_interval(cfg, dram)).clients if spread else []
        for k, every in enumerate(readers(cfg)):
            names = [reader.name for reader in every if reader.name in clients]
            here = clients | ({"load": loads[k]} if spread else {})
            port = ReadPort(cfg, dram, [here[name] for name in names], fast=fast and not spread)
            port.bounds = [bounds[name] for name in names]
            self.ports.append(port)

    def run(self) -> None:
        """To the end of the program."""
        ports, load, compute, store, ternary = self.ports, self.load, self.compute, self.store, self.ternary
        port = self.ports[-1]
        for p in ports:
            p.plan()
        several = len(ports) > 1
        while True:
            if several:
                port = min(ports, key=lambda p: p.next)
            first = load.next if load.next < compute.next else compute.next
            if port.next < first:
                first = port.next
            second = self._ternary_next() if ternary is not None else NEVER
            if second < first:
                first = second
            due = store.next if store.next < store.resume else store.resume
            if compute.alarm <= first and compute.alarm <= due and compute.alarm < NEVER:
                compute.ring()
            elif due < first:
                store.step()
            elif first == NEVER:
                return
            elif load.next == first:
                load.step()
            elif compute.next == first:
                compute.step()
            elif ternary is not None and second == first:
                ternary.step()
            else:
                port.step()

    def _compute_known(self, used: int) -> int:
        """No job that has not begun uses the banks or multipliers `used` before this cycle."""
        compute = self.compute
        ahead = compute.ahead(used)
        if ahead == NEVER or compute.lacks_next() and not compute.pending:
            return NEVER  # tokens of STORE are given in order
        now = self._compute_begins()
        return NEVER if now == NEVER else now + lat.SEQUENCER_LATENCY + compute.read + ahead

    def _compute_begins(self) -> int:
        """No job that has not begun is taken, or waits no more for loads, before this cycle."""
        compute, load = self.compute, self.load
        now = compute.next
        if now == NEVER or compute.pending:
            for port in self.ports:
                if port.next < now:
                    now = port.next
            if compute.alarm < now:
                now = compute.alarm
            now = min(now, self._ternary_next())
            if now < NEVER and load.mover.left and not compute.pending and compute.lacks_prev():
                now += self._latency + load.mover.rest()
            elif load.next < now:
                now = load.next
        return now

    def _ternary_next(self) -> int:
        """The cycle of the next event of unit `ternary`."""
        ternary = self.ternary
        return NEVER if ternary is None else min(ternary.next, ternary.resume)

    def _both_known(self, used: int) -> int:
        """`_compute_known` of unit `ternary`, too."""
        assert self.ternary is not None
        now = min(self.load.next, self.compute.next, self.compute.alarm, self._ternary_next())
        now = min(now, *(port.next for port in self.ports))
        return min(self._compute_known(used), self.ternary.known(used, now))

    def _jobs_known(self, banks: int) -> int:
        """Before this cycle no job that has not begun touches the `banks`, and no load that is not taken keeps them."""
        compute, store = self.compute, self.store
        ahead, loads = compute.ahead(banks | WRITES), compute.loads_ahead(banks)
        if ahead == NEVER and not loads:
            return NEVER
        now = self._compute_begins()
        if now == NEVER or compute.lacks_next() and not compute.pending:
            if store.resume == NEVER and store.lacks_next():
                return NEVER  # it waits for a token that unit `ternary` gives
            now = min(now, store.next, store.resume)
        if now == NEVER:
            return NEVER
        return min(now + lat.SEQUENCER_LATENCY + ahead, now + lat.CLAIM_LATENCY if loads else NEVER)

    def _load_bound(self, now: int) -> int:
        return self._known(self.load, now) + _TO_BURST

    def _compute_bound(self, now: int) -> int:
        compute = self.compute
        if compute.mover.left or compute.mover.waits:
            return self._first(now)
        move = compute.next_move[compute.at]
        if move == NEVER:
            return NEVER
        return self._known(compute, now) + _TO_BURST + max(compute.before[move] - compute.sums[compute.at], 0)

    def _store_bound(self, now: int) -> int:
        store = self.store
        if store.mover.left:
            return self._first(now)
        if store.next_move[store.at] == NEVER:
            return NEVER
        return self._known(store, now) + _TO_BURST

    def _fetch_bound(self, now: int) -> int:
        fetch = self.fetch
        if not fetch.left or fetch.waits_for is None:
            return NEVER
        return self._known(fetch.waits_for, now) + lat.ROOM_LATENCY

    def _known(self, unit: Unit, now: int) -> int:
        """`unit` takes no instruction before this cycle."""
        if unit.next < NEVER:
            return unit.next
        fetch = self.fetch
        if unit.at == len(unit.arrivals):
            if fetch.waits_for is not None:
                return self._known(fetch.waits_for, now)
            return max(fetch.want, now) + self._latency if fetch.left else NEVER
        if unit is self.store and unit.lacks_prev() and self.compute.settled:
            return self._known(self.compute, now)
        if unit is self.compute and unit.lacks_prev():
            mover = self.load.mover
            if mover.left:  # the token comes with the last beat at the earliest
                return now + self._latency + mover.rest()
        if unit is self.load and self.load.mover.free == NEVER:
            return NEVER  # until a request ends, when bounds are looked at again
        if unit is self.store and self.store.crowded:
            return -NEVER  # in any cycle
        return self._first(now)

    def _first(self, now: int) -> int:
        """Nothing that is not a burst happens before this cycle."""
        first = now + self._latency
        for cycle in (self.load.next, self.compute.next, self.compute.alarm, self.store.next, self.store.resume):
            if cycle < first:
                first = cycle
        return min(first, self._ternary_next()) if self.ternary is not None else first


def predict(
    program: Launch | Program,
    cfg: Config | None = None,
    dram: Dram = ZYNQ_HP,
    skip: Iterable[str] = (),
    *,
    fast: bool = True,
    before: Sequence[Launch] = (),
) -> Timing:
    """Cycles of `program`, its buffers where a simulated device has them in an empty memory. `skip`: see `columns`.

    The launches `before` ran right before it: it finds their micro-ops on chip. Without `fast` every burst is an event
    of its own and nothing is remembered: the same cycles, found slowly, to which tests compare the short ways. Raises
    `DeadlockError` where the program does not end, `UnsupportedError` for a memory as of `check_memory`.
    """
    launch = program.finish() if isinstance(program, Program) else program
    if not isinstance(launch, Launch):
        raise UnsupportedError(
            f"predict takes a Program or its launch, not {type(launch).__name__}; compiler.build(schedule, config) "
            "makes a Program"
        )
    cfg = cfg or launch.cfg
    held = no_micro_ops(cfg)
    for each in before:
        placed(each, cfg, skip, fast=fast, held=held)
    return simulate(cfg, dram, *placed(launch, cfg, skip, fast=fast, held=held), fast=fast)


def placed(
    launch: Launch, cfg: Config, skip: Iterable[str] = (), *, fast: bool = True, held: MicroOps | None = None
) -> tuple[Columns, int]:
    """`launch` for `simulate`, and the address of its instructions, where a simulated device has them.

    `held` are the micro-ops on chip, of which it reads those that it does not load; it becomes what it leaves.
    """
    addresses, used, constants = list[int](), list[tuple[int, int]](), []
    for buffer in launch.buffers:
        address = first_fit(used, buffer.nbytes, buffer.align)
        addresses.append(address)
        insort(used, (address, address + max(buffer.nbytes, 1)))
        if buffer.data is not None:
            constants.append((address, address + buffer.nbytes, buffer.data))

    def uops(first: int, count: int) -> np.ndarray:
        for low, high, data in constants:
            if low <= 4 * first < high:
                return data.view("<u4")[first - low // 4 :][:count]
        return np.zeros(count, np.uint32)

    code = first_fit(used, launch.insn_bytes, INSN_ALIGN)
    return columns(cfg, launch.relocate(addresses), uops, skip, fast=fast, held=held), code


def check_memory(cfg: Config, dram: Dram) -> None:
    """Raises `UnsupportedError` for ports that no circuit has, and for a memory that the model does not know: random
    stalls, or ports that share less than all of them can move."""
    check_buildable(cfg)
    if dram.seed is not None:
        raise UnsupportedError(f"Dram.seed = {dram.seed}: the timing model has no random stalls; use a memory without")
    if dram.total_bytes < (needed := shared_bytes(cfg, dram)):
        other = PRESETS["zynq_hp4"]
        wider = shared_bytes(cfg, other)
        name = other.name if wider <= other.total_bytes else f"{other.name},total_bytes={wider}"
        raise UnsupportedError(
            f"memory {dram.name}: moves {dram.total_bytes} bytes per cycle, the {cfg.load_ports + cfg.store_ports} "
            f"ports of {cfg.name} together {needed}; the timing model has no ports that wait for each other: choose a "
            f"memory that moves as much, as with --dram {name}, or simulate the circuit with --on rtl"
        )


def simulate(cfg: Config, dram: Dram, program: Columns, address: int, *, fast: bool = True) -> Timing:
    """Cycles of `program`, whose instructions are at `address`. `fast` and errors: as of `predict`."""
    check_memory(cfg, dram)
    engine = Engine(cfg, dram, program, address, fast)
    engine.run()
    if engine.compute.finished == NEVER:
        stuck = [
            f"{q.name} at instruction {u.order[u.at]}" for q, u in zip(queues(cfg), engine.units) if u.at < len(u.order)
        ]
        raise DeadlockError(f"the program does not end: {', '.join(stuck)}")
    log = engine.log
    last = max(engine.fetch.idle, *(u.idle for u in engine.units))
    finished = max(engine.compute.finished, last) + lat.FINISH_LATENCY
    counters = {}
    for declared, unit in zip(units(cfg), engine.units):
        counted = {
            "BUSY": unit.busy,
            "TOKEN_WAIT": unit.token_wait,
            "MEMORY_WAIT": unit.waited(),
            "INSNS": len(unit.taken),
            "BYTES": int(program.bytes_moved[program.order[declared.queue]].sum()),
        }
        counters |= {declared.counter(what): counted[what] for what in COUNTERS}
    arrays = {name: np.array(getattr(log, name)) for name in ("arrive", "issue", "start", "end")}
    waits = {name: np.array(getattr(log, name)) for name in ("token_prev", "token_next", "unit", "memory", "bank")}
    queued = np.full(program.count, -1)
    for order, unit in zip(program.order, engine.units):
        queued[order[: len(unit.arrivals)]] = np.array(unit.arrivals, np.int64) - lat.FIFO_LATENCY
    return Timing(finished + lat.START_LATENCY, counters, program.queue, **arrays, waits=waits, queued=queued)
