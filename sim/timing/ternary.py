"""Unit `ternary` in the timing model (hw/rtl/ternary/)."""

from __future__ import annotations

from collections import deque

from ...hw.config import Config
from ...hw.rtl import latencies as lat
from ...hw.units import Queue
from .banks import Uses
from .compute import Compute
from .issues import PLACE, Ahead, Job
from .program import Columns
from .read_port import NEVER
from .units import Log, Unit


class Ternary(Unit):
    """TERNARY: micro-op issues beside those of the compute queue, each unit in banks of accumulators of its own.

    A bank that both use belongs to one of them for a whole instruction here; in the circuit an issue of `compute`
    comes between those of an instruction of this unit.
    """

    def __init__(self, program: Columns, log: Log, cfg: Config, compute: Compute):
        super().__init__(program, Queue.TERNARY, log, lambda work: False)
        self._compute, self._uses, self._others = compute, Uses(), Uses()
        compute.uses, compute.others, compute.freed = self._others, self._uses, self.execute
        self._latency = lat.ternary_latency(cfg)
        self.read = (
            lat.ternary_dot_latency(cfg) - lat.ACC_STAGES
        )  # cycles from a micro-op issue to its accumulators' addresses
        works = [self.work[k] for k in self.order]
        self._ahead = Ahead([work if type(work) is Job else None for work in works])
        self._job: tuple[int, Job, int, int] | None = None  # dispatched, waits for loads whose end is unknown
        self._begin = self._read_last = self._issue = -NEVER
        self._gone: deque[int] = deque([-NEVER] * lat.TERNARY_ISSUES_AHEAD, lat.TERNARY_ISSUES_AHEAD)  # latest issues

    @property
    def pending(self) -> bool:
        """True if a job waits for loads whose end is unknown."""
        return self._job is not None

    def ahead(self, used: int) -> int:
        """Cycles of the jobs not begun yet, before the first that reads the banks `used`; `NEVER` if none."""
        return self._ahead(self._job[3] if self._job else self.at, used)

    def free(self, k: int) -> int:
        """When the sequencer is free."""
        return NEVER if self._job else self._begin + lat.JOB_INTERVAL - 1

    def step(self) -> None:
        """Take an instruction."""
        cycle = self.next
        k = self.take()
        work = self.work[k]
        self._job = (k, work if type(work) is Job else PLACE, cycle, self.at - 1)
        self.execute()
        self.plan()

    def execute(self) -> None:
        """Begin the dispatched job, if the end of all that it waits for is known."""
        if self._job is None:
            return
        k, job, cycle, _ = self._job
        loaded = self._compute.loaded(job.touched)
        if loaded == NEVER:
            return
        self._job = None
        begin = max(self._read_last, cycle + lat.BEGIN_LATENCY)
        issue = max(self._issue, begin + lat.TERNARY_FIRST_ISSUE_LATENCY, loaded)
        if job.touched:
            issue = self._others.free(job.touched, issue, job.issues + self._latency)
        last = issue + job.issues - 1
        issues, gone = job.issues, self._gone
        before = last - lat.TERNARY_ISSUES_AHEAD if issues > lat.TERNARY_ISSUES_AHEAD else gone[issues - 1]
        gone.extend(range(last - min(issues, lat.TERNARY_ISSUES_AHEAD) + 1, last + 1))
        self._begin, self._read_last = begin, max(before, begin + issues)
        self._issue, end = last + 1, last + self._latency
        if job.touched:
            self._uses.add(issue, end, job.touched)
        if job.banks:
            self._compute.add_read(issue + self.read, last + self.read + 1, job.banks)
        self.log.start[k], self.log.end[k] = issue, end
        self.occupy(cycle + 1, end)
        self.give(k, end)
        self.wake()
