"""What GEMM and ALU instructions need of the pipeline: visits, their interval, the banks and entries they touch."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..hw import execute
from ..hw.config import Config
from ..hw.isa import AluOp, Isa, Op

UopReader = Callable[[int, int], np.ndarray]  # (first entry of DRAM, number) -> uint32 (number,)


class Job(NamedTuple):
    """A GEMM or ALU instruction, or one that only marks its place: `visits` that take `cycles` in all.

    The last visit takes `final` cycles to its handshake and is followed by `rest` in which no other visit is taken.
    `banks` are the banks of accumulators that it reads in every cycle, one bit each. `uops` and `acc` are the first and
    the last micro-op and accumulator that it touches; (0, -1) for none. `end` are the cycles from the last handshake to
    the end beyond those of other instructions.
    """

    visits: int
    cycles: int
    interval: int
    rest: int
    end: int
    banks: int
    uops: tuple[int, int]
    acc: tuple[int, int]


@functools.lru_cache(8)
def known_isa(cfg: Config) -> Isa:
    """The instruction set of `cfg`, made once."""
    return Isa(cfg)


PLACE = Job(1, 1, 1, 0, 0, 0, (0, -1), (0, -1))


class Kernels:
    """The micro-op scratchpad as the program fills it, and the jobs that read it."""

    def __init__(self, cfg: Config, uops: UopReader):
        self.cfg, self._read = cfg, uops
        self._words = np.zeros((cfg.uop_depth, 3), np.int64)
        self._format = known_isa(cfg).uop
        self._bank = cfg.acc_depth // cfg.acc_banks
        self._limits: dict[tuple[int, int], tuple[int, int, int, int]] = {}
        self._wait = execute.multiply_interval(cfg) - 1
        self._spacing = execute.visit_interval(cfg, multiply=True)
        self._latest = -(-execute.multiply_interval(cfg) // self._spacing)  # products that a visit is compared with
        self._late = execute.multiply_interval(cfg) - execute.ACC_STAGES - 1

    def load(self, sram: int, dram: int, count: int) -> None:
        """LOAD of `count` micro-ops."""
        count = min(count, self.cfg.uop_depth - sram)
        if count > 0:
            columns = self._format.decode(self._read(dram, count).astype(np.uint64).reshape(-1, 1))
            self._words[sram : sram + count] = np.stack(list(columns.values()), axis=1)
            self._limits.clear()

    def job(self, op: int, f: dict[str, int]) -> Job:
        """The job of the decoded GEMM or ALU instruction `f`."""
        begin, end, outer, inner = f["uop_bgn"], f["uop_end"], f["iter_out"], f["iter_in"]
        visits = (end - begin) * outer * inner
        if visits <= 0:
            return PLACE
        key = (begin, end)
        found = self._limits.get(key)
        if found is None:
            words = self._words[begin:end]
            found = (*words[:, :2].min(0).tolist(), *words[:, :2].max(0).tolist())
            self._limits[key] = found
        dst_low, src_low, dst_high, src_high = found
        dst_high += (outer - 1) * f["dst_out"] + (inner - 1) * f["dst_in"]
        dst = self._banks(dst_low, dst_high)
        uops, acc = (begin, end - 1), (dst_low, dst_high)
        if op != Op.ALU:
            reads = not (f["reset"] or f.get("overwrite"))
            return Job(visits, visits, 1, 0, 0, dst if reads else 0, uops, acc)
        interval, banks = 1, dst
        if not f["use_imm"]:
            src_high += (outer - 1) * f["src_out"] + (inner - 1) * f["src_in"]
            src = self._banks(src_low, src_high)
            acc, banks = (min(dst_low, src_low), max(dst_high, src_high)), dst | src
            interval += self._same_bank(f, dst, src)
        multiply = f["alu_op"] in (AluOp.MUL, AluOp.RESCALE)
        rest = self._wait if multiply else 0
        cycles = visits * interval if type(interval) is int else round(visits * interval)
        if multiply:
            late = self._conflicts(f)
            cycles += (visits - 1 - late) * (self._spacing - 1) + late * rest
        return Job(
            visits,
            cycles,
            2 if interval > 1 else 1,
            rest,
            self._late if multiply else 0,
            0 if rest else banks,
            uops,
            acc,
        )

    def _banks(self, low: int, high: int) -> int:
        return 1 << low // self._bank | 1 << min(high // self._bank, self.cfg.acc_banks - 1)

    def _same_bank(self, f: dict[str, int], dst: int, src: int) -> float:
        """The share of the visits whose two accumulators are in one bank."""
        if dst == src and dst & (dst - 1) == 0:
            return 1
        if dst & src == 0:
            return 0
        return float((self._indices(f, 0) // self._bank == self._indices(f, 1) // self._bank).mean())

    def _indices(self, f: dict[str, int], column: int) -> np.ndarray:
        """Destinations (0) or sources (1) of an ALU instruction, in the order of its visits."""
        words, name = self._words[f["uop_bgn"] : f["uop_end"], column], ("dst", "src")[column]
        i = np.arange(f["iter_out"])[:, None, None]
        j = np.arange(f["iter_in"])[:, None]
        return (words + i * f[f"{name}_out"] + j * f[f"{name}_in"]).reshape(-1)

    def _conflicts(self, f: dict[str, int]) -> int:
        """Visits of a multiplying instruction that wait because products before them are not written."""
        dst = self._indices(f, 0)
        src = dst if f["use_imm"] else self._indices(f, 1)
        near = range(1, min(self._latest + 1, len(dst)))
        if not any(((dst[k:] == dst[:-k]) | (src[k:] == dst[:-k])).any() for k in near):
            return 0
        count, latest = 0, deque(maxlen=self._latest)
        for d, s in zip(dst.tolist(), src.tolist()):
            if d in latest or s in latest:
                count += 1
                latest.clear()  # all is written then
            latest.append(d)
        return count
