"""Random legal instructions that reach far: whole scratchpads, thousands of trips, rows a whole buffer apart."""

from __future__ import annotations

import numpy as np

from tilewright.hw.isa import PADDABLE, AluOp, Mem, depth
from tilewright.hw.isa.encoding import ITER_BITS
from tilewright.sim.random_programs import ENTRIES, Recorder, Walk

_OFTEN = 8  # of so many instructions one reaches far
_PRODUCTS = 1 << 15  # of one instruction, about: the definition computes each by itself


class Reach(Walk):
    """A `Walk` with some instructions near the limits of sizes, trips and steps."""

    def __init__(self, recorder: Recorder):
        super().__init__(recorder)
        self._kinds = [self._load_all, self._loop_long, self._operate_long, self._store_far, self._many]
        self._kinds += [self._ternary_long] * bool(self.ternary_weights)

    def step(self) -> None:
        """Record one instruction that reaches far, or what a walk records."""
        if self._below(_OFTEN):
            super().step()
        else:
            self._kinds[self._below(len(self._kinds))]()

    def _load_all(self) -> None:
        """To every entry of a scratchpad, all rows from few entries of memory."""
        mems = [mem for mem in self.to.buffers if mem in PADDABLE]
        mem = mems[self._below(len(mems))]
        entries = depth(self.cfg, mem)
        most = 2048 // max(1, self.cfg.lanes * self.cfg.block_in // 16)  # as the definition fills one by one
        x = 1 + self._below(min(ENTRIES, entries))
        y = max(1, min(entries, most) // x)
        stride = self._below((ENTRIES - x) // max(y - 1, 1) + 1)
        self.to.load(mem, self._below(entries - x * y + 1), 0, y, x, stride)

    def _trips(self, cost: int) -> int:
        """Of one loop: each doubling is as likely."""
        most = max(2, min((1 << ITER_BITS) - 1, _PRODUCTS // cost))
        return int(np.exp2(self.rng.uniform(1, np.log2(most + 0.5))))

    def _loops(self, cost: int) -> list[tuple[int, int, int, int]]:
        """One long loop that stays where it is, before or behind a short one."""
        loops = [(self._trips(3 * cost), 0, 0, 0), (1 + self._below(3), 0, 0, 0)]
        return loops[:: 1 - 2 * self._below(2)]

    def _loop_long(self) -> None:
        one = np.array([[self.first, self._below(min(ENTRIES, self.cfg.inp_depth)), self._below(self.weights)]])
        self.to.gemm(self._loops(self.cfg.macs_per_cycle), one, **self._mode())

    def _ternary_long(self) -> None:
        one = np.array([[self._below(self.cfg.plane_depth), self._below(16), self._below(self.ternary_weights)]])
        self.to.ternary(self._loops(self.cfg.macs_per_cycle * self.cfg.ternary_blocks), one, **self._mode())

    def _operate_long(self) -> None:
        op, one = (AluOp.ADD, AluOp.MAX)[self._below(2)], np.array([[self.first, self.first + 1]])
        loops = [(n, dst, src) for n, dst, src, _ in self._loops(16 * self.cfg.lanes)]
        self.to.alu(op, loops, one, imm=self._value("ALU", "imm") if self._below(2) else None)

    def _many(self) -> None:
        """Micro-ops as many as the buffer holds, or some of them."""
        most = min(self.cfg.uop_depth, max(2, _PRODUCTS // self.cfg.macs_per_cycle // 4))
        count = int(np.exp2(self.rng.uniform(0, np.log2(most))))
        columns = (self.limit, min(ENTRIES, self.cfg.inp_depth), self.weights)
        uops = self.rng.integers(0, columns, (count, 3))
        uops[:, 0] += self.first
        self.to.gemm([], uops, **self._mode())

    def _store_far(self) -> None:
        """Any accumulators, in few long rows or many short ones."""
        x = 1 + self._below(min(self.cfg.acc_depth, 32))
        y = 1 + self._below(min(self.cfg.acc_depth, 256) // x)
        room = self.to.target.shape[0] - x
        stride = self._below(room // max(y - 1, 1) + 1)
        self.to.store(self._below(self.cfg.acc_depth - x * y + 1), 0, y, x, stride)

    def _load_par(self) -> None:
        """As a walk does, with more rows; a load of parameters reads few entries."""
        if self._below(4):
            return super()._load_par()
        entries = self.cfg.par_entries
        x = 1 + self._below(min(entries, ENTRIES))
        y = 1 + self._below(max(1, entries // x))
        self.to.load(Mem.PAR, 0, 0, y, x, self._below((ENTRIES - x) // max(y - 1, 1) + 1))
