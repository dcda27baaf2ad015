"""GEMM and ALU instructions as the pipeline sees them: micro-op issues, their interval, and the banks that they use."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ...hw.config import Config
from ...hw.isa import OPERATIONS, Op, known_isa, ops_of
from ...hw.rtl import latencies as lat
from .read_port import NEVER

_KEPT = 1024  # uses: those before them have ended


class Uses:
    """The uses of one unit: from a cycle to another, both included, of some banks, one bit each."""

    def __init__(self) -> None:
        self._uses: list[tuple[int, int, int]] = []  # in the order in which they begin

    def add(self, begin: int, end: int, banks: int) -> None:
        """The unit uses `banks` from cycle `begin` to `end`."""
        insort(self._uses, (begin, end, banks))
        del self._uses[:-_KEPT]

    def free(self, banks: int, cycle: int) -> int:
        """The first cycle from `cycle` on in which none of the `banks` is used."""
        for begin, end, used in self._uses:
            if used & banks and begin <= cycle <= end:
                cycle = end + 1
        return cycle

    def next(self, banks: int, cycle: int) -> int:
        """The first cycle after `cycle` in which a use of one of the `banks` begins, `NEVER` if none does."""
        return next((begin for begin, _, used in self._uses if used & banks and begin > cycle), NEVER)

    def latest(self, banks: int) -> int:
        """The last cycle in which one of the `banks` is used; -1 where none was."""
        return max((end for _, end, used in self._uses if used & banks), default=-1)


UopReader = Callable[[int, int], np.ndarray]  # (first entry of DRAM, number) -> uint32 (number,)


class Multiply(NamedTuple):
    """A micro-op issue that multiplies: the accumulators that it uses, whether it waits for products of its own
    instruction, and whether it takes two cycles, because its accumulators are in one bank."""

    uses: tuple[int, ...]
    waits: bool
    twice: bool


class Job(NamedTuple):
    """A GEMM or ALU instruction, or one that issues nothing: `issues` micro-op issues take `cycles` in all, the first
    one `interval`.

    With `multiply` it is MUL or RESCALE. `banks` are the banks of accumulators that it reads in every cycle, one bit
    each; `touched` those that it reads or writes at all. `uops` are its first and last micro-op, the last before the
    first for none. `tails` are the cycles from the last micro-op issue that touches each bank to the last one of all,
    `heads` those from the first one of all to the first that does; empty for a job of one bank. `runs` are (banks,
    number) of the micro-op issues of TERNARY one behind the other that touch the same bank, in order. `reads` are
    (first, last, banks) of the cycles in which it reads banks, from its first one on, and `windows` of those in which
    banks are its own, where another unit computes, too. `firsts` are the first micro-op issues that multiply, and
    `results` the accumulators that the last ones write, in order: those with which the circuit compares the next.
    """

    issues: int
    cycles: int
    interval: int
    multiply: bool
    banks: int
    touched: int
    uops: tuple[int, int]
    tails: tuple[int, ...] = ()
    heads: tuple[int, ...] = ()
    runs: tuple[tuple[int, int], ...] = ()
    reads: tuple[tuple[int, int, int], ...] = ()
    windows: tuple[tuple[int, int, int], ...] = ()
    firsts: tuple[Multiply, ...] = ()
    results: tuple[int, ...] = ()

    def spans(self) -> Iterator[tuple[int, int, int]]:
        """(head, tail, banks) of the banks that it touches."""
        if not self.heads:
            yield 0, 0, self.touched
            return
        for bank, (head, tail) in enumerate(zip(self.heads, self.tails)):
            if self.touched >> bank & 1:
                yield head, tail, 1 << bank

    @property
    def used(self) -> int:
        """The banks of `touched` that a micro-op issue touches, where all were looked at."""
        return sum(banks for _, tail, banks in self.spans() if tail < self.cycles)


PRODUCTS = 1 << 8  # beside the banks of accumulators: the multipliers
WRITES = 1 << 9  # see `Ahead`
_MOST_LOOKED_AT = 1 << 16  # micro-op issues, to find the last one of a bank
_MOST_RUNS = 1 << 10  # of a TERNARY; with more it counts as touching all its banks in every micro-op issue
_ROUNDING = 1e-6  # of a product with a mean
_MOST_READS = 1 << 12  # of a job, apart from each other; with more a bank is read from the first to the last
_MULTIPLY = frozenset(op for op, row in OPERATIONS.items() if row.multiplies)
_ELEMENTWISE = frozenset(ops_of("ALU"))
PLACE = Job(1, 1, 1, False, 0, 0, (0, -1), runs=((0, 1),))


def products_ahead(cfg: Config) -> int:
    """The latest micro-op issues that multiply whose accumulators the circuit compares with those of the next."""
    return (lat.multiply_interval(cfg) - 1) // lat.issue_interval(cfg, multiply=True)


def banks_between(low: int, high: int) -> int:
    """One bit for each bank from number `low` to number `high`."""
    return (2 << high) - (1 << low)


def _merged(banks: int, begin: np.ndarray, end: np.ndarray, more: int) -> list[tuple[int, int, int]]:
    """Intervals (first, last, `banks`) from each `begin` to `more` cycles after `end`; adjacent ones are merged."""
    apart = np.flatnonzero(begin[1:] > end[:-1] + more + 1)
    firsts, lasts = begin[np.append(0, apart + 1)], end[np.append(apart, len(end) - 1)] + more
    return [(first, last, banks) for first, last in zip(firsts.tolist(), lasts.tolist())]


class Ahead:
    """The cycles of the jobs in front of others in one queue; `jobs` are its instructions, None where it is no job.

    `sums` are the cycles of the jobs before each position.
    """

    def __init__(self, jobs: Sequence[Job | None]):
        self.jobs = jobs
        self.sums = [0]
        for job in jobs:
            self.sums.append(self.sums[-1] + (job.cycles if job else 0))
        self._users: dict[int, list[int]] = {}

    def __call__(self, at: int, used: int) -> int:
        """Cycles of the jobs from position `at` on, before the first that reads banks or multiplies, as `used` says;
        `NEVER` if none does. With `WRITES` in `used` it may write the banks, too."""
        users = self._users.get(used)
        if users is None:
            users, writes = [NEVER], used & WRITES
            for k in range(len(self.jobs) - 1, -1, -1):
                job = self.jobs[k]
                uses = job is not None and (job.touched if writes else job.banks | PRODUCTS * job.multiply) & used
                users.append(self.sums[k] if uses else users[-1])
            users.reverse()
            self._users[used] = users
        return users[at] - self.sums[at] if users[at] < NEVER else NEVER


class Kernels:
    """The micro-op scratchpad `words`, uint32 (n,), as the program fills it, and the jobs that read it."""

    def __init__(self, cfg: Config, uops: UopReader, words: np.ndarray):
        self.cfg, self._read, self._words = cfg, uops, words
        fields = known_isa(cfg).uop.fields
        self._fields = [(fields[name].lo, (1 << fields[name].bits) - 1) for name in ("dst", "src")]
        self._bank = cfg.bank_depth
        self._limits: dict[tuple[int, int], tuple[int, int, int, int]] = {}
        self._spacing = lat.issue_interval(cfg, multiply=True)
        self._conflict = lat.multiply_interval(cfg)
        self._shared = "ternary" in cfg.units  # the banks

    def load(self, sram: int, dram: int, count: int) -> bool:
        """LOAD of `count` micro-ops; returns whether any of them changes."""
        count = min(count, self.cfg.uop_depth - sram)
        if count <= 0:
            return False
        held, block = self._words[sram : sram + count], self._read(dram, count)
        if (held == block).all():
            return False
        held[:] = block
        self._limits.clear()
        return True

    def job(self, op: int, f: dict[str, int]) -> Job:
        """The job of the decoded GEMM or ALU instruction `f`."""
        begin, end, outer, inner = f["uop_bgn"], f["uop_end"], f["iter_out"], f["iter_in"]
        issues = (end - begin) * outer * inner
        if issues <= 0:  # it waits for loads of the micro-ops that it names, all the same
            return PLACE._replace(uops=(begin, end - 1))
        key = (begin, end)
        found = self._limits.get(key)
        if found is None:
            dst, src = (self._column(begin, end, k).tolist() for k in (0, 1))
            found = self._limits[key] = min(dst), max(dst), min(src), max(src)
        dst_low, dst_high, src_low, src_high = found
        dst_high += (outer - 1) * f["dst_out"] + (inner - 1) * f["dst_in"]
        dst = self._banks(dst_low, dst_high)
        uops, touched = (begin, end - 1), dst
        if op not in _ELEMENTWISE:
            reads = not (f["reset"] or f.get("overwrite"))
            tails, heads = self._ends(f, dst, 1, (0,))
            job = Job(issues, issues, 1, False, dst if reads else 0, dst, uops, tails, heads)
            return job._replace(runs=self._runs(f, dst, issues)) if op == Op.TERNARY else self._shown(job, f)
        interval, banks = 1, dst
        if not f["use_imm"]:
            src_high += (outer - 1) * f["src_out"] + (inner - 1) * f["src_in"]
            src = self._banks(src_low, src_high)
            touched = banks = dst | src
            interval += self._same_bank(f, dst, src)
        cycles = round(issues * interval)
        multiply, again, firsts, results = f["alu_op"] in _MULTIPLY, [], (), ()
        if multiply:
            again, firsts, results = self._products(f, issues)
            cycles += (issues - 1 - len(again)) * (self._spacing - 1) + len(again) * (self._conflict - 1)
        tails, heads = self._ends(f, touched, cycles / issues, (0,) if f["use_imm"] else (0, 1))
        first, banks = 2 if interval > 1 else 1, 0 if multiply else banks
        job = Job(issues, cycles, first, multiply, banks, touched, uops, tails, heads, firsts=firsts, results=results)
        return self._shown(job, f, again)

    def _ends(
        self, f: dict[str, int], touched: int, interval: float, columns: tuple[int, ...]
    ) -> tuple[tuple[int, ...], ...]:
        """`Job.tails` and `Job.heads` from the first and last micro-op issues.

        A bank that these do not touch has 0 if there are more issues than were looked at, else all cycles.
        """
        if touched & (touched - 1) == 0:
            return (), ()
        uops = f["uop_end"] - f["uop_bgn"]
        inner = max(1, min(f["iter_in"], _MOST_LOOKED_AT // uops))  # the last trips, and the first
        outer = max(1, min(f["iter_out"], _MOST_LOOKED_AT // (uops * inner))) if inner == f["iter_in"] else 1
        end, ends, seen = f | {"iter_out": outer, "iter_in": inner}, [], outer * inner * uops
        missed = seen if seen == uops * f["iter_in"] * f["iter_out"] else 0
        for last in (True, False):
            banks = []
            for column in columns:
                name = ("dst", "src")[column]
                moved = (f["iter_out"] - outer) * f[f"{name}_out"] + (f["iter_in"] - inner) * f[f"{name}_in"]
                banks.append((self._indices(end, column) + moved * last) // self._bank)
            found = [np.logical_or.reduce([each == bank for each in banks]) for bank in range(self.cfg.acc_banks)]
            away = [int(np.argmax(each[::-1] if last else each)) if each.any() else missed for each in found]
            ends.append(tuple(int(n * interval + _ROUNDING) for n in away))
        return tuple(ends)

    def _runs(self, f: dict[str, int], touched: int, issues: int) -> tuple[tuple[int, int], ...]:
        if touched & (touched - 1) and issues <= _MOST_LOOKED_AT:
            banks = self._indices(f, 0) // self._bank
            starts = np.flatnonzero(np.diff(banks, prepend=-1))
            if len(starts) <= _MOST_RUNS:
                counts = np.diff(starts, append=issues)
                return tuple(zip((1 << banks[starts]).tolist(), counts.tolist()))
        return ((touched, issues),)

    def _shown(self, job: Job, f: dict[str, int], again: Sequence[int] = ()) -> Job:
        """`job` with its `reads` and `windows`; `again` are the micro-op issues of it that wait for products."""
        usual = lat.multiply_latency(self.cfg) if job.multiply else lat.issue_latency(self.cfg)
        last = job.cycles - 1
        heads = ((h + job.interval - 1, last - t, b & job.banks) for h, t, b in job.spans())
        reads = tuple(head for head in heads if head[2] and head[0] <= head[1])
        windows = tuple((h, last - t + usual, b) for h, t, b in job.spans())
        if job.touched & (job.touched - 1) and job.issues <= _MOST_LOOKED_AT:
            found = self._leaving(job, f, again)
            exact = [span for each in found for span in _merged(*each, 0)]
            reads = tuple(exact) if job.banks and len(exact) <= _MOST_READS else reads
            windows = tuple(span for bank, begin, end in found for span in _merged(bank, begin, end, usual))
        return job._replace(reads=reads, windows=windows if self._shared else ())

    def _leaving(self, job: Job, f: dict[str, int], again: Sequence[int]) -> list[tuple[int, np.ndarray, np.ndarray]]:
        """For each bank in use: first and last cycles of the micro-op issues that touch it, counted from the job's."""
        banks = [self._indices(f, 0) // self._bank]
        steps = np.full(job.issues, self._spacing if job.multiply else 1)
        steps[0] = 1
        if not f.get("use_imm", 1):
            banks.append(self._indices(f, 1) // self._bank)
            steps += banks[0] == banks[1]
        steps[list(again)] += self._conflict - self._spacing
        end, found = np.cumsum(steps) - 1, []
        for bank in range(self.cfg.acc_banks):
            at = np.flatnonzero(np.logical_or.reduce([each == bank for each in banks]))
            if len(at):
                found.append((1 << bank, (end - steps)[at] + 1, end[at]))
        return found

    def _products(self, f: dict[str, int], issues: int) -> tuple[list[int], tuple[Multiply, ...], tuple[int, ...]]:
        """The micro-op issues that wait for products, because they use an accumulator of those right before;
        `Job.firsts`; `Job.results`.

        One that waits and then takes two cycles lets the circuit forget those before.
        """
        dst, flying = self._indices(f, 0), products_ahead(self.cfg)
        uses = (dst,) if f["use_imm"] else (dst, self._indices(f, 1))
        latest = np.full(issues, -1)  # the micro-op issue whose accumulator each uses again
        for back in range(min(issues - 1, flying), 0, -1):
            for used in uses:
                again = np.flatnonzero(used[back:] == dst[:-back]) + back
                latest[again] = again - back
        twice = np.zeros(issues, bool) if f["use_imm"] else uses[0] // self._bank == uses[-1] // self._bank
        waits, start = [], 0
        for k in np.flatnonzero(latest >= 0).tolist():
            if latest[k] >= start:
                waits.append(k)
                start = k if twice[k] else start
        indices = np.stack([each[:flying] for each in uses], 1).tolist()
        firsts = [Multiply(tuple(used), k in waits[:flying], bool(twice[k])) for k, used in enumerate(indices)]
        return waits, tuple(firsts), tuple(dst[max(start, issues - flying) :].tolist())

    def _indices(self, f: dict[str, int], column: int) -> np.ndarray:
        """Index `column` (0 for dst, 1 for src) of every micro-op issue, in order."""
        name = ("dst", "src")[column]
        words = self._column(f["uop_bgn"], f["uop_end"], column)
        outer = np.arange(f["iter_out"])[:, None, None] * f[f"{name}_out"]
        return (words + outer + np.arange(f["iter_in"])[:, None] * f[f"{name}_in"]).reshape(-1)

    def _column(self, begin: int, end: int, column: int) -> np.ndarray:
        """Index `column` of micro-ops, int64."""
        lo, mask = self._fields[column]
        return (self._words[begin:end] >> lo & mask).astype(np.int64)

    def _banks(self, low: int, high: int) -> int:
        return banks_between(low // self._bank, min(high // self._bank, self.cfg.acc_banks - 1))

    def _same_bank(self, f: dict[str, int], dst: int, src: int) -> float:
        """The share of the micro-op issues whose two accumulators are in one bank."""
        if dst == src and dst & (dst - 1) == 0:
            return 1
        if dst & src == 0:
            return 0
        d, s = self._indices(f, 0), self._indices(f, 1)
        return float((d // self._bank == s // self._bank).mean())
