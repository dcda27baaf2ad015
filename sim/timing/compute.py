"""The compute unit in the timing model (hw/rtl/compute/)."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...hw.config import Config
from ...hw.isa import Mem
from ...hw.rtl import latencies as lat
from ...hw.units import Queue
from .issues import PLACE, PRODUCTS, Ahead, Job, Uses, banks_between, products_ahead
from .mover import Mover
from .program import Columns, Move
from .read_port import NEVER
from .units import Log, Unit

_ORDER = lat.capacity(lat.ORDER_DEPTH)  # instructions whose tokens are not given yet
_UOP = Mem.UOP


class _Begun(NamedTuple):
    """A job, and the cycles in which it begins in the sequencer, reads its last micro-op, issues its first one."""

    job: Job
    begin: int
    read_last: int
    first: int


class _Load:
    """A load in flight: `written` is the cycle of its last write, None while unknown."""

    __slots__ = ("after", "banks", "cycle", "high", "low", "older", "uops", "written")

    def __init__(self, cycle: int, move: Move, banks: int, after: int, older: _Begun | None):
        self.banks = banks
        self.cycle, self.low, self.high, self.uops = cycle, move.low, move.high, move.mem == _UOP
        self.after = after  # number of jobs that are older
        self.older = older  # the latest of them, None while its begin is unknown
        self.written: int | None = None


class Compute(Unit):
    """GEMM, ALU, and loads of micro-ops and accumulators, which pass each other where they touch different memory."""

    def __init__(self, program: Columns, log: Log, buffer: int, cfg: Config):
        super().__init__(program, Queue.COMPUTE, log, lambda work: isinstance(work, Move) and not work.empty)
        self.mover = Mover(buffer, self._moved, self.wake, self._hold)
        self.mover.horizon = lambda: min(self.next, self.alarm)
        self._latency = lat.issue_latency(cfg)
        self._period = lat.memory_cycles(cfg)
        self._bank = cfg.bank_depth
        self.read = lat.accumulator_latency(cfg)  # cycles from a micro-op issue to its accumulators' addresses
        self._order: deque[list] = deque()  # [instruction, cycle in which it ends]
        self._unended: dict[int, list] = {}  # those of them whose end is unknown
        self._given: deque[int] = deque([-NEVER] * _ORDER, _ORDER)  # cycles in which the latest left that order
        self._loads: dict[int, _Load] = {}
        self._slots: deque[int] = deque([-NEVER] * lat.LOADS_IN_FLIGHT, lat.LOADS_IN_FLIGHT)
        self._flying = 0
        self._job: tuple[int, Job, int, int] | None = None  # dispatched, waits for loads whose end is unknown
        self._jobs = 0
        self._latest = _Begun(PLACE, -1, -1, -1)
        self._issue = -1  # first cycle in which another micro-op can be issued
        self._gone: deque[int] = deque([-NEVER] * lat.ISSUES_AHEAD, lat.ISSUES_AHEAD)  # cycles of the latest issues
        self._products = -1  # the same for one that does not multiply, after those that do
        # accumulators that the latest of these write, in order; as many as the circuit compares with
        self._results: deque[int] = deque(maxlen=products_ahead(cfg))
        self._interval = lat.multiply_interval(cfg)
        self._wait = self._interval - lat.issue_interval(cfg, multiply=True)  # that those wait less
        self._groups = lat.groups(cfg)
        self._product = lat.product_latency(cfg) + self._groups - 1
        self._entered = lat.multiply_read(cfg)
        self._retired = self._epoch = -1
        self._last = [-NEVER] * cfg.acc_banks  # latest micro-op issue of each bank
        self.finished = NEVER
        self.alarm, self._clock = NEVER, -1  # cycle in which to look again; latest of these
        self.reads: deque[tuple[int, int, int]] = (
            deque()
        )  # (from, to, user) of read ports and multipliers, by the time of reads
        self.uses: Uses | None = None  # of banks by jobs, for unit `ternary`
        # (banks, cycle): the first cycle from that on in which that unit has left the banks
        self.leaves: Callable[[int, int], int] = lambda banks, cycle: cycle
        self.freed: Callable[[], None] = lambda: None  # called when it is known when a load is written
        self._written: list[int] | None = None  # see `loads_ahead`
        self.issues: list[tuple[int, int]] = []
        self._finish = program.finish
        works = [None if k == self._finish else self.work[k] for k in self.order]
        self._ahead = Ahead([work if type(work) is Job else None for work in works])
        self.sums = self._ahead.sums
        self.before = self._before()

    @property
    def settled(self) -> bool:
        """True if the end of every instruction so far is known."""
        return not self._order

    def _before(self) -> list[int]:
        """At each position, at least the cycles of those jobs that must end before the instruction can be taken."""
        before, sums = [0], self.sums
        ended, latest = 0, Job(0, 0, 0, False, 0, 0, (0, -1))
        ahead: deque[int] = deque(maxlen=lat.ISSUES_AHEAD)  # cycles of the last micro-op issues before the latest job
        for at, job in enumerate(self._ahead.jobs):
            if job is not None:
                # the latest is dispatched when the one before has begun, which reads `ISSUES_AHEAD` micro-ops ahead
                ended = sums[at] - latest.cycles - sum(ahead)
                ahead.extend([latest.cycles // max(latest.issues, 1)] * min(latest.issues, lat.ISSUES_AHEAD))
                latest = job
            before.append(ended)
        return before

    def ahead(self, used: int) -> int:
        """Cycles of the jobs not begun yet, before the first that uses banks or multipliers `used`; `NEVER` if none."""
        return self._ahead(self._job[3] if self._job else self.at, used)

    @property
    def pending(self) -> bool:
        """True if a job waits for loads whose end is unknown."""
        return self._job is not None

    def waited(self) -> int:
        """Cycles in which a beat was due and nothing was computed."""
        since, to = np.array(self.issues or [(0, 0)]).T
        found = 0
        for begin, end in self.mover.pauses:
            busy = np.minimum(end, to) - np.maximum(begin, since)
            found += end - begin - int(busy[busy > 0].sum())
        return found

    def free(self, k: int) -> int:
        """When the sequencer or the mover is free, and the queue of instructions without tokens has room."""
        waiting = len(self._order)
        if waiting >= _ORDER:
            return NEVER
        room = self._given[waiting] + 1
        if self.moving[self.at]:
            if self._flying == lat.LOADS_IN_FLIGHT:
                return NEVER
            return max(room, self.mover.free, self._slots[self._flying] + 1)
        if type(self.work[k]) is not Job or k == self._finish:
            return room
        if self._job:
            return NEVER
        free = self._latest.begin + lat.JOB_INTERVAL - 1
        return free if free > room else room

    def step(self) -> None:
        """Take an instruction."""
        cycle, moving = self.next, self.moving[self.at]
        k = self.take()
        work = self.work[k]
        entry = [k, None]
        self._order.append(entry)
        if moving:
            self._unended[k] = entry
            self._loads[k] = _Load(
                cycle, work, self._banks(work.low, work.high), self._jobs, None if self._job else self._latest
            )
            self._flying += 1
            self.mover.take(k, work, cycle)
        elif type(work) is Job and k != self._finish:
            if cycle > self._retired and not self._job:
                self._epoch = cycle
            self._jobs += 1
            self._job = (k, work, cycle, self.at - 1)
            self._unended[k] = entry
            self._execute()
            if self.mover.held:
                self.mover.proceed()
        else:
            entry[1] = cycle + lat.FIFO_LATENCY
        self._give()
        self.plan()

    def _execute(self) -> None:
        """Begin the dispatched job, if the end of all that it waits for is known."""
        assert self._job is not None
        k, job, cycle, _ = self._job
        begin, issue = self._latest.read_last, self._issue
        if begin < cycle + lat.BEGIN_LATENCY:
            begin = cycle + lat.BEGIN_LATENCY
        banks = job.used
        for load in self._loads.values():
            if load.after == self._jobs:
                continue  # it is younger
            if load.uops:
                if load.low <= job.uops[1] and job.uops[0] <= load.high:
                    if load.written is None:
                        return
                    if load.written >= cycle:
                        begin = max(begin, load.written + lat.CLEAR_LATENCY)
            elif banks & load.banks:
                if load.written is None:
                    return
                issue = max(issue, load.written + lat.CLEAR_LATENCY)
        self._job = None
        issues, total, interval, multiply = job[:4]
        shown = max(self._issue, begin + lat.FIRST_ISSUE_LATENCY)  # from then on it is at the sequencer's output
        if self._products > issue:
            issue = max(issue, self._products - (self._wait if multiply else 0))
        if issue < begin + lat.FIRST_ISSUE_LATENCY:
            issue = begin + lat.FIRST_ISSUE_LATENCY
        if multiply:
            if issue > self._products:
                self._results.clear()  # they are written
            issue, waited = self._behind_products(issue, job)
            total += waited
        first = issue + interval - 1
        last = issue + total - 1
        each, gone = total // issues, self._gone
        before = last - lat.ISSUES_AHEAD * each if issues > lat.ISSUES_AHEAD else gone[issues - 1]
        gone.extend(range(last - each * (min(issues, lat.ISSUES_AHEAD) - 1), last + 1, each))
        read_last = before + lat.STEP_LATENCY
        if read_last < begin + issues:
            read_last = begin + issues
        self._latest = _Begun(job, begin, read_last, first)
        for load in self._loads.values():
            load.older = load.older or self._latest
        self._issue, retired = last + 1, last + self._latency
        if multiply:
            self._products, retired = last + self._interval, retired + self._product
            if 2 * total < 3 * issues * self._groups:  # otherwise there is room for others
                self.add_read(first + self._entered, last + self._entered + self._groups, PRODUCTS)
        for head, tail, used in job.reads:
            self.add_read(issue + head + self.read, issue + tail + self.read + 1, used)
        if self.uses is not None:
            for head, tail, used in job.windows:
                self.uses.add(issue + head if head else shown, issue + tail, used)
        for b in range(len(self._last)):
            if banks >> b & 1:
                self._last[b] = max(self._last[b], last - job.tails[b]) if job.tails else last
        if retired > self._retired:
            self._retired = retired
        self.issues.append((issue, last + 1))
        self.log.start[k] = first
        self._unended.pop(k)[1] = retired

    def _behind_products(self, issue: int, job: Job) -> tuple[int, int]:
        """(`issue`, when the first micro-op of `job` can be issued as far as earlier results are concerned; cycles that
        others of its first micro-ops wait for these)."""
        waited, results, depth = 0, list(self._results), self._results.maxlen or 0
        own = job.results
        for k, (uses, waits, twice) in enumerate(job.firsts):
            conflict = not set(uses).isdisjoint(results[max(0, len(results) + k - depth) :])
            if conflict and not waits:
                if k:
                    waited += self._wait
                else:
                    issue = max(issue, self._products)
            if (conflict or waits) and twice:
                own = own[-(job.issues - k) :]
                self._results.clear()  # the circuit forgets those before
                break
        self._results.extend(own)
        return issue, waited

    def add_read(self, begin: int, end: int, user: int) -> None:
        """Read ports, or multipliers, are used from cycle `begin` until `end`."""
        reads = self.reads
        if reads and reads[-1][0] > begin:
            insort(reads, (begin, end, user))
        else:
            reads.append((begin, end, user))

    def claims(self, banks: int) -> list[tuple[int, int]]:
        """When unit `ternary` stays out of `banks` for loads in flight: from, until; `NEVER` where that is unknown."""
        found = []
        for load in self._loads.values():
            if not load.uops and load.banks & banks:
                until = NEVER if load.written is None else load.written + lat.CLEAR_LATENCY
                found.append((load.cycle + lat.CLAIM_LATENCY, until))
        return sorted(found)

    def loads_ahead(self, banks: int) -> bool:
        """True where a load that is not taken yet writes `banks`."""
        if self._written is None:
            self._written = [0]
            for at in range(len(self.order) - 1, -1, -1):
                work, mask = self.work[self.order[at]], self._written[-1]
                loads = self.moving[at] and work.mem != _UOP
                self._written.append(mask | self._banks(work.low, work.high) if loads else mask)
            self._written.reverse()
        return bool(self._written[self.at] & banks)

    def ring(self) -> None:
        """It is cycle `alarm`: look again when the mover may write."""
        self._clock, self.alarm = self.alarm, NEVER
        self.mover.proceed()

    def _banks(self, low: int, high: int) -> int:
        bank, last = self._bank, len(self._last) - 1
        if high < low:  # a load of no rows still has a place; the circuit takes all bits of it for its end alone
            low %= bank * len(self._last)
            high = max(low, high)
        return banks_between(min(low // bank, last), min(high // bank, last))

    def _hold(self, k: int) -> int:
        """First cycle in which the load at `k` may be written, `NEVER` while unknown."""
        load = self._loads[k]
        if load.older is None:
            return NEVER
        job, begin, read_last, first = load.older
        free = max(load.cycle, begin) + 1
        if load.uops:
            if load.low <= job.uops[1] and job.uops[0] <= load.high:
                free = max(free, read_last + 1)
            return free + lat.HOLD_LATENCY
        mine = load.banks
        shown = max(begin + lat.SPANS_LATENCY, first + job.uops[1] - job.uops[0] + 1)
        free = max(free, read_last + 1 if mine & job.touched else min(read_last + 1, shown))
        last = max(cycle for b, cycle in enumerate(self._last) if mine >> b & 1)
        if last >= self._epoch:
            wraps = (last - self._epoch) // self._period + 2
            written = self._epoch + wraps * self._period + 1
            # no job is dispatched that keeps the pipeline from draining, so far
            if written > self._retired + lat.DRAIN_LATENCY and self._job is None:
                if self._clock <= self._retired:
                    self.alarm = self._retired + 1
                    return NEVER
                written = self._retired + lat.DRAIN_LATENCY
            free = max(free, written)
        if self.uses is not None:
            free = max(free, self.leaves(mine, load.cycle + lat.CLAIM_LATENCY))
        return free + lat.HOLD_LATENCY

    def _give(self) -> None:
        """Tokens, in the order of the queue."""
        order, log = self._order, self.log
        while order and order[0][1] is not None:
            k, cycle = order.popleft()
            issue, given = log.issue[k], self._given[-1]
            if cycle < issue + lat.FIFO_LATENCY:
                cycle = issue + lat.FIFO_LATENCY
            if cycle <= given:
                cycle = given + 1
            self._given.append(cycle)
            log.end[k] = cycle
            if log.start[k] < 0:
                log.start[k] = cycle
            self.occupy(issue + 1, cycle)
            self.give(k, cycle)
            if k == self._finish:
                self.finished = cycle

    def _moved(self, k: int, first: int, cycle: int, waited: int) -> None:
        self.log.start[k], self.log.memory[k] = first, waited
        self._unended.pop(k)[1] = cycle
        self._loads[k].written = cycle
        self._flying -= 1
        self._slots.append(cycle)
        for old in [at for at, load in self._loads.items() if load.written is not None and load.written < self.latest]:
            del self._loads[old]
        if self._job:
            self._execute()
            self.mover.proceed()
        self._give()
        self.freed()
        self.wake()
