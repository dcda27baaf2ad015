"""Random programs with any values in their fields, most of which end in an error."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.hw.config import Config
from tilewright.hw.isa import MICRO_OPS, OPERATIONS, AluOp, Field, Isa, Mem, Op, Queue, entry_bytes, room

_SIZE = 1 << 16  # of memory; STORE writes to its second half
_UOPS, _UOPS_AT = 32, _SIZE // 2 - 1024
_ISSUES = 3000  # of one instruction, at most
_CHANCES = (0, 0, 0.002, 0.02, 0.1)  # that a field has any value, in all instructions of one program
_KINDS = [Op.LOAD] * 4 + [Op.LOADP] * 2 + [Op.STORE] * 3 + [Op.GEMM] * 3 + [Op.ALU] * 3 + [Op.DWGEMM] * 2
_MEMS = [Mem.ACC, Mem.ACC, Mem.UOP, Mem.UOP, Mem.ACC8, Mem.INP, Mem.WGT, Mem.PAR]
_TERNARY = [Op.TERNARY] * 6, [Mem.TUOP, Mem.TUOP, Mem.TWGT]  # of configurations with that unit


class Writer:
    """Writes one program of random instructions into memory."""

    def __init__(self, cfg: Config, seed: int):
        self.cfg, self.isa, self.rng = cfg, Isa(cfg), np.random.default_rng(seed)
        self.chance = float(self.rng.choice(_CHANCES))
        kinds, mems = _TERNARY if "ternary" in cfg.units else ([], [])
        self._kinds, self._mems = _KINDS + kinds, _MEMS + mems
        self.image = self.rng.integers(0, 256, _SIZE, np.uint8)
        self.image[_UOPS_AT : _UOPS_AT + 4 * _UOPS] = self._micro_ops()

    def _below(self, n: int) -> int:
        return int(self.rng.integers(max(1, n)))

    def _value(self, field: Field, usual: int) -> int:
        """`usual`, or anything: the largest value, one beside a power of two, or any other."""
        low, high = field.limits
        if self.rng.random() >= self.chance:
            return max(low, min(usual, high))
        near = (1 << self._below(field.bits + 1)) + self._below(3) - 1
        return int(self.rng.choice([high, min(near, high), low + self._below(high - low + 1)]))

    def _micro_ops(self) -> np.ndarray:
        """Small indices, and accumulators in the upper half."""
        rows, fields = self.rng.integers(0, 5, (_UOPS, 3)), self.isa.uop.fields
        rows[:, 0] += self.rng.integers(0, 2, _UOPS) * (self.cfg.acc_depth // 2)
        values = {name: [self._value(f, int(row)) for row in rows[:, k]] for k, (name, f) in enumerate(fields.items())}
        return self.isa.uop.encode(_UOPS, **values).astype("<u4").reshape(-1).view(np.uint8)

    def _place(self, fields: Mapping[str, Field], mem: Mem, where: int) -> dict[str, int]:
        """`sram_base` and `dram_base`."""
        span = _SIZE // 2 // entry_bytes(self.cfg, mem)
        sram, dram = self._below(room(self.cfg, mem) // 2), where * span + self._below(span - 50)
        if where and self._below(2):  # a place that many instructions store to or load from
            dram = where * span + self._below(256 // entry_bytes(self.cfg, mem))
        if mem in MICRO_OPS:
            sram, dram = self._below(12), _UOPS_AT // 4 + self._below(20)
        return {
            "mem": mem.id,
            "sram_base": self._value(fields["sram_base"], sram),
            "dram_base": self._value(fields["dram_base"], dram),
        }

    def _load(self, fields: Mapping[str, Field]) -> dict[str, int]:
        mem = self._mems[self._below(len(self._mems))]
        f = self._place(fields, mem, self._below(2))
        small = 3 if mem == Mem.PAR else 7
        f |= {name: self._value(fields[name], self._below(small)) for name in ("y_size", "x_size", "x_stride")}
        f |= self._pads(fields)
        return f | ({"pad_value": self._below(256) - 128} if "pad_value" in fields else {})

    def _pads(self, fields: Mapping[str, Field]) -> dict[str, int]:
        """Mostly small; memories without padding ignore them."""
        return {
            name: self._value(fields[name], self._below(2 if self._below(8) else 16))
            for name in fields
            if "_pad_" in name
        }

    def _store(self, fields: Mapping[str, Field]) -> dict[str, int]:
        f = self._place(fields, Mem.OUTQ if "par_base" in fields else Mem.OUT, 1)
        f |= {name: self._value(fields[name], self._below(7)) for name in ("y_size", "x_size")}
        f["x_stride"] = f["x_size"] if self._below(2) else self._value(fields["x_stride"], self._below(9))
        f |= self._pads(fields)
        if "par_base" in fields:
            f["par_base"] = self._value(fields["par_base"], self._below(self.cfg.par_entries))
            f["par_step"] = self._value(fields["par_step"], self._below(2))
        return f

    def _loops(self, fields: Mapping[str, Field]) -> dict[str, int]:
        f = {name: self._value(field, self._below(4)) for name, field in fields.items()}
        f |= {name: self._below(2) for name in ("reset", "overwrite", "use_imm") if name in fields}
        f["uop_bgn"], f["uop_end"] = (
            self._value(fields[n], k + self._below(6)) for n, k in (("uop_bgn", 0), ("uop_end", 6))
        )
        if not self._below(8):  # a large loop of few micro-ops
            f[("iter_out", "iter_in")[self._below(2)]] = self._value(fields["iter_in"], self._below(_ISSUES))
            f |= {name: self._below(2) for name in fields if name[:4] in ("dst_", "src_", "wgt_")}
        if "dst_out" in fields and not self._below(4):
            f["dst_out"] = self._below(self.cfg.acc_depth // 4)
        for name in ("iter_out", "iter_in"):
            if max(0, f["uop_end"] - f["uop_bgn"]) * f["iter_out"] * f["iter_in"] > _ISSUES:
                f[name] = 1
        if "alu_op" in fields:
            f |= {"alu_op": AluOp(self._below(len(AluOp))), "imm": self._below(1 << 16) - (1 << 15)}
            if f["alu_op"] == AluOp.RESCALE:
                f |= {"use_imm": 1, "imm": self._value(fields["imm"], self._below(self.cfg.par_entries))}
            if most := OPERATIONS[f["alu_op"]].immediates(self.cfg):
                f |= {"use_imm": 1, "imm": self._below(most)}
        elif f.get("overwrite"):
            f["reset"] = 0
        return f

    def _ternary(self, fields: Mapping[str, Field]) -> dict[str, int]:
        """As `loops`, mostly within the first plane of a bank."""
        f = self._loops(fields)
        return f | {"dst_in": self._below(2), "dst_out": 0} if self._below(16) else f

    def _instruction(self) -> tuple[str, dict[str, int]]:
        """(format, fields) of one that can be decoded."""
        while True:
            op = self._kinds[self._below(len(self._kinds))]
            name = "STOREQ" if op == Op.STORE and self._below(2) else op.name
            fields = self.isa.formats[name].fields
            make = {Op.LOAD: self._load, Op.LOADP: self._load, Op.STORE: self._store, Op.TERNARY: self._ternary}
            f = {
                **make.get(op, self._loops)(fields),
                "op": op,
                **dict.fromkeys(("pop_prev", "pop_next", "push_prev", "push_next"), 0),
            }
            if not self.isa.undecodable(f):
                return name, f

    def program(self) -> tuple[np.ndarray, int, int]:
        """(memory, address, count): instructions that execute one after the other, whatever their queues.

        Unit ternary has its tokens from STORE, and through it from the compute queue.
        """
        insns, nop, store = [], {"op": Op.LOAD, "mem": Mem.UOP}, {"op": Op.STORE, "mem": Mem.OUT}
        start = {"op": Op.LOAD, "mem": Mem.UOP, "dram_base": _UOPS_AT // 4, "x_size": min(_UOPS, self.cfg.uop_depth)}
        insns.append(("LOAD", start))
        if "ternary" in self.cfg.units:
            insns.append(("LOAD", start | {"mem": Mem.TUOP.id, "push_next": 1}))
            insns.append(("LOAD", nop | {"pop_prev": 1}))
        for _ in range(5 + self._below(35)):
            name, f = self._instruction()
            queue = self.isa.queue(f)
            if queue == Queue.COMPUTE:
                insns.append((name, f))
                continue
            there, back = ("prev", "next") if queue == Queue.LOAD else ("next", "prev")
            insns.append(("LOAD", nop | {f"push_{there}": 1}))
            if queue == Queue.TERNARY:
                insns.append(("STORE", store | {"pop_prev": 1, "push_next": 1}))
            first = len(insns)
            insns.append((name, f))
            for _ in range(self._below(4) if self._below(2) else 0):  # nothing orders those but their queue
                name, f = self._instruction()
                if self.isa.queue(f) == queue:
                    insns.append((name, f))
            insns[first] = insns[first][0], insns[first][1] | {f"pop_{back}": 1}
            insns[-1] = insns[-1][0], insns[-1][1] | {f"push_{back}": 1}
            if queue == Queue.TERNARY:
                insns.append(("STORE", store | {"pop_next": 1, "push_prev": 1}))
            insns.append(("LOAD", nop | {f"pop_{there}": 1}))
        insns.append(("FINISH", {"op": Op.FINISH}))
        words = np.concatenate([self.isa.formats[name].encode(1, **f) for name, f in insns])
        self.image[: words.nbytes] = words.view(np.uint8).reshape(-1)
        return self.image, 0, len(words)
