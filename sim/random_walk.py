"""One random legal instruction after the other, of any kind that a configuration has."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from ..hw.isa import OPERATIONS, PADDABLE, AluOp, Isa, Mem, Op, Operation, depth, entry_bytes, instruction, room
from ..hw.units import TERNARY_BANKS

if TYPE_CHECKING:
    from .random_programs import Recorder

ENTRIES = 64  # of every input buffer
ISSUES = 300  # of one instruction, at most
Pads = tuple[int, int, int, int]


class Walk:
    """Records random instructions with `recorder`, whose scratchpads are filled."""

    def __init__(self, recorder: Recorder):
        self.to, self.rng, self.cfg = recorder, recorder.rng, recorder.cfg
        self.formats = Isa(recorder.cfg).formats
        self.limit = min(32, self.cfg.acc_depth // 4)  # accumulators in use
        middle = self.cfg.acc_depth // 2 - 6  # so that they lie in both banks
        fits = middle + self.limit <= min(self.cfg.acc_depth, self.cfg.inp_depth)
        self.first = middle if fits and self._below(2) else 0
        self.weights = min(ENTRIES if "depthwise" in recorder.extensions else 32, self.cfg.wgt_depth)  # loaded
        has = recorder.extensions.issuperset
        self.operations = [row for row in OPERATIONS.values() if row.reads is None and has(row.extensions)]
        steps = [(("requant",), self._load_par), (("requant",), self._store_quantised)]
        reading = [row for row in OPERATIONS.values() if row.reads is not None]
        steps += [(row.extensions, partial(self._with_entry, row)) for row in reading]
        steps += [(("depthwise",), self._depthwise), (("depthwise_rows",), self._depthwise_rows)]
        self.extra = [step for needed, step in steps if has(needed)]
        self.ternary_weights = min(32, depth(self.cfg, Mem.TWGT))  # loaded
        self.extra += [self._ternary] * 4 if self.ternary_weights else []

    def step(self) -> None:
        """Record one instruction, or so many of a kind that they fill their queue."""
        kind = int(self.rng.integers(0, 9 + len(self.extra)))
        for _ in range(1 if self._below(150) else self.cfg.queue_depth + self._below(16)):
            self._record(kind)

    def _record(self, kind: int) -> None:
        if kind >= 9:
            self.extra[kind - 9]()
        elif kind < 2:
            self._load()
        elif kind < 4:
            self._gemm()
        elif kind < 6:
            self._alu()
        elif kind == 6:
            self._reload()
        else:
            self._store()

    def _below(self, n: int) -> int:
        return int(self.rng.integers(0, n))

    def _rare(self) -> bool:
        return not self._below(4)

    def _value(self, name: str, field: str) -> int:
        """Around 0, or any value of `field` of the format `name`, often at a limit."""
        low, high = self.formats[name].fields[field].limits
        if not self._rare():
            return self._below(16) - 8
        return int(self.rng.choice([low, high, -1, low + self._below(high - low + 1)]))

    def _stride(self, rows: int, usual: int, room: int) -> int:
        """`usual`, or any that keeps `rows` rows within `room`: entries from the last one's begin."""
        most = room // (rows - 1) if rows > 1 else (1 << 16) - 1
        return self._below(most + 1) if self._rare() else min(usual, most)

    def _reload(self) -> None:
        """Bytes that were stored, whatever they are, as entries of any memory."""
        mems = list(self.to.buffers)
        mem = mems[self._below(len(mems))]
        x = 1 + self._below(min(6, depth(self.cfg, mem)))
        first = self.first if mem in (Mem.ACC, Mem.ACC8) else 0
        span = max(1, 64 * self.cfg.out_entry_bytes // entry_bytes(self.cfg, mem))
        sram = first + self._below(min(8, depth(self.cfg, mem) - first - x + 1))
        y = 1 + self._below(min(3, (depth(self.cfg, mem) - sram) // x))
        self.to.reload(mem, sram, self._below(span), y, x, self._stride(y, x + self._below(3), 2 * span))

    def _store(self, **parameters: int) -> None:
        x = 1 + self._below(4) if not self._rare() else 1 + self._below(12)
        # a stride below x makes rows overlap
        stride = x + self._below(4) if self._below(4) else self._below(x)
        rows = parameters.pop("rows", 0) or 1 + self._below(12 if self._rare() else 3)
        while rows * x > self.limit:
            x, rows = (x + 1) // 2, rows if x > 1 else self.limit
        sram = self.first + self._below(min(self.limit - rows * x + 1, 1 << 30 if self._rare() else 8))
        self.to.store(sram, self._below(64), rows, x, self._stride(rows, stride, 1000), **parameters)

    def _store_quantised(self) -> None:
        entries, rows = self.cfg.par_entries, 1 + self._below(3)
        most = min((entries - 1) // max(rows - 1, 1), 63)
        step = self._below(most + 1) if self._below(2) else 0
        self._store(rows=rows, par=self._below(entries - (rows - 1) * step), par_step=step)

    def _load_par(self) -> None:
        entries = room(self.cfg, Mem.PAR) if "lookup" in self.to.extensions else self.cfg.par_entries
        x = 1 + self._below(min(3, entries))
        y = 1 + self._below(min(3, entries // x))
        first = self._below(entries - x * y + 1)
        self.to.load(Mem.PAR, first, self._below(8), y, x, x + self._below(6))

    def _with_entry(self, row: Operation) -> None:
        assert row.reads is not None
        loops, uops = self._indices((self.limit, 1))
        self.to.alu(row.op, loops, uops, imm=self._below(depth(self.cfg, row.reads)))

    def _depthwise(self) -> None:
        rows = self.weights * self.cfg.block_in
        if self._below(3):
            loops, uops = self._indices((self.limit, 32, min(rows, self.cfg.wgt_depth)))
        else:  # one loop, whose step reaches rows that a micro-op cannot name
            n = 2 + self._below(2)
            step = min((rows - 1) // (n - 1), self.cfg.wgt_depth - 1)
            loops, uops = self._indices((self.limit - n, 32 - n, min(rows - (n - 1) * step, self.cfg.wgt_depth)))
            loops = [(n, 1, self._below(2), step)]
        self.to.gemm(loops, uops, **self._mode(), depthwise=True)

    def _depthwise_rows(self) -> None:
        taps = 2 + self._below(self.cfg.row_taps - 1)
        groups = self.weights * self.cfg.block_in // self.cfg.row_taps
        loops, uops = self._indices((self.limit, 33 - taps, min(groups, self.cfg.wgt_depth)))
        self.to.gemm(loops, uops, **self._mode(), depthwise=True, taps=taps)

    def _load(self) -> None:
        mems = [mem for mem in self.to.buffers if mem in PADDABLE]
        mem = mems[self._below(len(mems))]
        room = depth(self.cfg, mem)
        first = (self.first if mem in (Mem.ACC, Mem.ACC8) else 0) + self._below(8)
        sram = self._below(room) if self._rare() else first
        pads = [self._below(16) if not self._below(8) else self._below(2) for _ in range(4)]
        rows, x = (1 + self._below(12 if self._rare() else 3) for _ in range(2))
        if pads[0] + pads[1] and not self._below(8):
            rows = 0
        while (pads[0] + rows + pads[1]) * (pads[2] + x + pads[3]) > room - sram:
            pads, rows, x, sram = [pad // 2 for pad in pads], (rows + 1) // 2, (x + 1) // 2, sram // 2
        valued = "pad_value" in self.to.extensions and instruction(Op.LOADP, mem) is not None
        value = self._value("LOADP", "pad_value") if any(pads) and valued else 0
        offset = self._below(8)
        stride = self._stride(rows, 3 + self._below(6), ENTRIES - offset - x)
        self.to.load(mem, sram, offset, rows, x, stride, (pads[0], pads[1], pads[2], pads[3]), value)

    def _indices(self, most: tuple[int, ...], accumulators: int = 1) -> tuple[list, np.ndarray]:
        """(loops, micro-ops) that stay below `most`; the first `accumulators` columns start at the first one in use."""
        loops, room = [], np.array(most)
        count = left = 1 if self._below(2) else 1 + self._below(12)
        for _ in range(1 + self._below(4)):
            n = 1 + self._below(3) if not self._rare() else 1 + self._below(max(1, ISSUES // left))
            reach = (room - 1) // max(n - 1, 1) + 1  # of steps, that stay inside
            steps = self.rng.integers(0, np.minimum(reach, 1000 if self._rare() else 4))
            if n * left <= ISSUES:
                room -= (n - 1) * steps
                left *= n
                loops.append((n, *map(int, steps)))
        uops = self.rng.integers(0, room, (count, len(most)))
        uops[:, :accumulators] += self.first
        return loops, uops

    def _mode(self) -> dict[str, bool]:
        flag = str(self.rng.choice(["", "reset", "overwrite"], p=[0.7, 0.2, 0.1]))
        return {"reset": flag == "reset", "overwrite": flag == "overwrite" and flag in self.to.extensions}

    def _gemm(self) -> None:
        mode = self._mode()
        inputs, weights = (min(ENTRIES, self.cfg.inp_depth), self.weights) if self._rare() else (32, 16)
        loops, uops = self._indices((self.limit, inputs, weights))
        self.to.gemm(loops, uops, **mode)

    def _ternary(self) -> None:
        """At either end of the first plane of a bank, or of several: where others use the bank, too, and where not."""
        mode, plane, bank = self._mode(), self.cfg.plane_depth, self.cfg.bank_depth
        inputs, most = (min(ENTRIES, self.cfg.inp_depth) if self._rare() else 32), min(self.limit, plane)
        loops, uops = self._indices((most, inputs, self.ternary_weights), accumulators=0)
        first, issues = self._below(TERNARY_BANKS), len(uops) * prod(n for n, *_ in loops)
        if self._rare() and first < TERNARY_BANKS - 1 and issues * 2 <= ISSUES:
            loops = [(2, bank, 0, 0), *loops]
        uops[:, 0] += first * bank + self._below(2) * (plane - most)
        self.to.ternary(loops, uops, **mode)

    def _alu(self) -> None:
        row = self.operations[self._below(len(self.operations))]
        loops, uops = self._indices((self.limit, self.limit), accumulators=2)
        immediate, most = self._below(2) or row.imm or row.op == AluOp.SHR, row.immediates(self.cfg)
        value = self._below(most) if most else self._value("ALU", "imm") if immediate else None
        self.to.alu(row.op, loops, uops, imm=value)
