"""Random programs that press all units into few accumulators of the same banks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.hw.config import Config
from tilewright.hw.isa import OPERATIONS, AluOp, Mem
from tilewright.runtime.launch import Launch
from tilewright.sim.random_programs import ENTRIES, Recorder

_NEAR = 16  # accumulators of a bank that a crowd presses into, at most
_OPERATIONS = (AluOp.ADD, AluOp.MAX, AluOp.SHR, AluOp.MUL, AluOp.RESCALE)

NEEDS = frozenset({"overwrite", "requant"})


class Crowd:
    """Random work of all units in few accumulators of the same banks, nearly all of it without tokens between them.

    The configuration has unit `ternary` and the extensions `NEEDS`. In every plane of a bank the first entries belong
    to that unit, those behind to the compute queue.
    """

    def __init__(self, cfg: Config, seed: int):
        self.cfg, self.to = cfg, Recorder(cfg, seed)
        self._rng = r = self.to.rng
        cut, banks = int(r.integers(1, 5)), r.permutation(4)
        starts = [bank * cfg.bank_depth for bank in banks[: r.integers(1, 5)]]
        self.ternary = [start + k for start in starts[: r.integers(1, 5)] for k in range(cut)]
        first = cut if r.random() < 0.8 else 0  # or both in the same entries
        self.runs = [start + t * cfg.plane_depth + first for start in starts for t in range(cfg.ternary_blocks)]
        self.length = min(cfg.plane_depth, _NEAR) - first
        self.weights = min(8, cfg.twgt_depth)

    def _below(self, n: int) -> int:
        return int(self._rng.integers(n))

    def _accumulators(self, n: int) -> np.ndarray:
        return self._rng.choice(self.runs, n) + self._rng.integers(0, self.length, n)

    def _mode(self) -> dict[str, bool]:
        chosen = float(self._rng.random())
        return {"reset": chosen < 0.15, "overwrite": 0.15 <= chosen < 0.3}

    def _uops(self, dst: Callable[[int], np.ndarray], wgt: int) -> np.ndarray:
        n = 1 + self._below(5)
        same = np.resize(dst(1 if self._below(2) else n), n)
        return np.stack([same, self._rng.integers(0, 16, n), self._rng.integers(0, wgt, n)], 1)

    def _loops(self) -> list[tuple[int, int, int, int]]:
        return [(1 + self._below(8), 0, self._below(3), 0) for _ in range(self._below(3))]

    def _gemm(self) -> None:
        self.to.gemm(self._loops(), self._uops(self._accumulators, 16), **self._mode())

    def _product(self) -> None:
        self.to.ternary(
            self._loops(), self._uops(lambda n: self._rng.choice(self.ternary, n), self.weights), **self._mode()
        )

    def _alu(self) -> None:
        known = [op for op in _OPERATIONS if self.cfg.extensions.issuperset(OPERATIONS[op].extensions)]
        op = known[self._below(len(known))]
        n = 1 + self._below(5)
        imm = self._below(8) if op in (AluOp.SHR, AluOp.RESCALE) or self._below(2) else None
        self.to.alu(op, [], np.stack([self._accumulators(n), self._accumulators(n) % self.cfg.inp_depth], 1), imm)

    def _load(self) -> None:
        """Padding comes before the data, so that a load is written as soon as it may."""
        at = self._below(self.length - 1)
        pads, x = self._below(self.length - at), 1
        x = 1 + self._below(self.length - at - pads)
        self.to.load(Mem.ACC, self._rng.choice(self.runs) + at, self._below(8), x=x, pads=(0, 0, pads, 0))

    def _operand(self) -> None:
        mem = (Mem.INP, Mem.WGT, Mem.TWGT)[self._below(3)]
        self.to.load(mem, self._below(6), self._below(8), x=1 + self._below(2))

    def _store(self) -> None:
        first = self._rng.choice(self.runs) if self.cfg.plane_depth > _NEAR else self._below(self.cfg.acc_depth - 3)
        self.to.store(first, self._below(64), x=1 + self._below(3), par=self._below(8))

    def record(self) -> tuple[Launch, dict[str, np.ndarray]]:
        """The launch and its inputs."""
        to, cfg = self.to, self.cfg
        for mem, depth in ((Mem.INP, cfg.inp_depth), (Mem.WGT, cfg.wgt_depth), (Mem.TWGT, cfg.twgt_depth)):
            to.load(mem, 0, 0, x=min(ENTRIES, depth))
        to.load(Mem.PAR, 0, 0, x=min(ENTRIES, cfg.par_entries))
        size = min(cfg.bank_depth, 32)
        parts = [bank * cfg.bank_depth for bank in range(4)]
        for start in parts:
            to.load(Mem.ACC, start, 0, x=size)
        kinds = [self._gemm, self._product, self._alu, self._load, self._store, self._operand]
        for kind in self._rng.choice(6, 5 + self._below(60), p=self._rng.dirichlet([3, 3, 1, 1, 1, 0.5])):
            kinds[kind]()
        for k, start in enumerate(parts):
            to.store(start, 100 + k * size, x=size)
            to.store(start, 300 + k * size, x=size, par=1)
        return to.program.finish(), to.inputs
