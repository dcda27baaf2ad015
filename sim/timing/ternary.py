"""Unit `ternary` in the timing model (hw/rtl/ternary.py)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ...hw.config import Config
from ...hw.rtl import latencies as lat
from ...hw.units import Queue
from .compute import Compute
from .issues import PLACE, Ahead, Job, Uses
from .program import Columns
from .read_port import NEVER
from .units import Log, Unit

_AHEAD = lat.TERNARY_ISSUES_AHEAD


class _Taken(NamedTuple):
    """An instruction that is taken, its cycle, its position in the queue."""

    k: int
    job: Job
    cycle: int
    at: int


class _Rest(NamedTuple):
    """The rest of an instruction: cycle of its next issue, `runs` left (`Job.runs`), issues gone of the first run."""

    issue: int
    runs: Sequence[tuple[int, int]]
    gone: int

    def before(self, used: int) -> int | None:
        """Issues before the first in one of the banks `used`, None where there is none."""
        count = -self.gone
        for banks, issues in self.runs:
            if banks & used:
                return max(count, 0)
            count += issues
        return None

    @property
    def left(self) -> int:
        """Number of issues that are left."""
        return sum(issues for _, issues in self.runs) - self.gone


class Ternary(Unit):
    """TERNARY, computed as far as it is known which banks the compute queue uses, then again.

    A bank that both use belongs to one of them at a time. An issue of this unit waits for `compute`, of which loads
    alone wait, for issues that have left. `horizon(banks)` is the cycle up to which it is known which jobs of `compute`
    use these banks.
    """

    def __init__(self, program: Columns, log: Log, cfg: Config, compute: Compute, horizon: Callable[[int], int]):
        super().__init__(program, Queue.TERNARY, log, lambda work: False)
        self._compute, self._uses, self._others = compute, Uses(), Uses()
        self._horizon = horizon
        compute.uses, compute.leaves, compute.freed = self._others, self._leaves, self._go_on_now
        self._latency = lat.ternary_latency(cfg)
        self.read = lat.ternary_dot_latency(cfg) - lat.ACC_STAGES  # cycles from an issue to its accumulators' addresses
        works = [self.work[k] for k in self.order]
        self._ahead = Ahead([work if type(work) is Job else None for work in works])
        self._begin = self._read_last = self._issue = -NEVER
        self._gone: deque[int] = deque([-NEVER] * (_AHEAD + 1), _AHEAD + 1)  # cycles of the latest issues
        self._open: Iterator[int] | None = None  # the rest of an instruction, which goes on in cycle `resume`
        self._rest = _Rest(0, [], 0)
        self.resume = NEVER
        self._behind: _Taken | None = None  # the instruction that was taken meanwhile

    def known(self, used: int, now: int) -> int:
        """This unit reads none of the banks `used` before this cycle, where nothing happens before cycle `now`."""
        rest = self._rest
        before = rest.before(used) if self._open else None
        if before is None:
            before = self._ahead(self._behind.at if self._behind else self.at, used)
            if before == NEVER:
                return NEVER
            before += rest.left if self._open else 0
        if self._open:
            return (now if self.resume == NEVER else rest.issue) + before + self.read
        if self.lacks_prev():
            return NEVER  # tokens of STORE are given in order
        begin = self.next if self.next < NEVER else now
        return begin + lat.TERNARY_SEQUENCER_LATENCY + before + self.read

    def free(self, k: int) -> int:
        """When the sequencer is free."""
        return NEVER if self._behind else self._begin + lat.JOB_INTERVAL - 1

    def step(self) -> None:
        """Take an instruction, or go on with the one that was left."""
        if self.next <= self.resume:
            cycle = self.next
            k = self.take()
            work = self.work[k]
            taken = _Taken(k, work if type(work) is Job else PLACE, cycle, self.at - 1)
            if self._open:
                self._behind = taken
            else:
                self._go_on(self._run(taken))
        else:
            self._go_on_now()
        self.plan()

    def _go_on_now(self) -> None:
        if self._open:
            self._go_on(self._open)
            self.wake()

    def _go_on(self, work: Iterator[int]) -> None:
        """Continue `work`, then the instruction taken meanwhile, as far as the users of the banks are known."""
        resume = next(work, None)
        while resume is None and self._behind:
            work, self._behind = self._run(self._behind), None
            resume = next(work, None)
        self._open = None if resume is None else work
        self.resume = NEVER if resume is None else resume

    def _run(self, taken: _Taken) -> Iterator[int]:
        """Issue an instruction. Yields the cycle in which to look again, or `NEVER` to wait until a load is written."""
        k, job, cycle, _ = taken
        self._begin = begin = max(self._read_last, cycle + lat.BEGIN_LATENCY)
        at = max(self._issue, begin + lat.TERNARY_FIRST_ISSUE_LATENCY)
        for number, (banks, left) in enumerate(job.runs):
            while left:
                part = left
                if banks:
                    at, until = self._room(banks, at)
                    known = self._horizon(banks)
                    part = min(left, until - at, known - at)
                    if part <= 0:
                        self._rest = _Rest(at, job.runs[number:], job.runs[number][1] - left)
                        yield max(known, at) if until > at else NEVER
                        continue
                self._leave(k, job, banks, at, part)
                at, left = at + part, left - part
        self._issue = at
        # the last one is read when the output has stepped on from the one `_AHEAD` before
        self._read_last = max(self._gone[0], begin + job.issues)
        self.log.end[k] = end = at - 1 + self._latency
        self.occupy(cycle + 1, end)
        self.give(k, end)

    def _leave(self, k: int, job: Job, banks: int, at: int, count: int) -> None:
        """From cycle `at` on `count` issues of the instruction leave, one per cycle."""
        if banks:
            self._uses.add(at, at + count - 1 + self._latency, banks)
        if job.banks & banks:
            self._compute.add_read(at + self.read, at + count + self.read, job.banks & banks)
        if self.log.start[k] < 0:
            self.log.start[k] = at
        self._gone.extend(range(at + max(count - _AHEAD - 1, 0), at + count))

    def _room(self, banks: int, cycle: int) -> tuple[int, int]:
        """The first cycle from `cycle` on in which `compute` leaves room in `banks`, and the end of it; the same cycle
        twice where it is not known when a load is written."""
        before = -1
        while before < cycle:
            before = cycle = self._others.free(banks, cycle)
            until = self._others.next(banks, cycle)
            for begin, end in self._compute.claims(banks):
                if begin > cycle:
                    until = min(until, begin)
                elif end == NEVER:
                    return cycle, cycle
                else:
                    cycle = max(cycle, end)
        return cycle, until

    def _leaves(self, banks: int, cycle: int) -> int:
        """First cycle from `cycle` on in which a load of `compute` into `banks` may be written."""
        left = self._uses.latest(banks)
        issue, runs, gone = self._rest if self._open else self._following()
        for used, count in runs:
            issue, _ = self._room(used, issue)
            if issue >= cycle:
                break
            following = issue + count - gone
            if used & banks:
                left = max(left, min(following, cycle) - 1 + self._latency)
            issue, gone = following, 0
        return max(cycle, left + 1)

    def _following(self) -> _Rest:
        """The next instruction; of no issues where it is not known when it comes."""
        work = self.work[self.order[self.at]] if self.next < NEVER else PLACE
        return _Rest(max(self._issue, self.next + lat.TERNARY_SEQUENCER_LATENCY), work.runs, 0)
