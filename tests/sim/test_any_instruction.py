"""Definition, model and circuit end alike on instructions with any values in their fields: same memory, or same error
at the same instruction."""

import shutil
from copy import deepcopy

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import MICRO_OPS, OPERATIONS, AluOp, Isa, Mem, Op, Queue, entry_bytes, room
from tilewright.sim.dram import Dram
from tilewright.sim.faults.compare import is_an_error_too, result_of
from tilewright.sim.model.device import ModelDevice
from tilewright.sim.random_programs import ODD, ODD_TWO, ROWS
from tilewright.sim.rtl import RtlDevice
from tilewright.sim.spec import SpecDevice

needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="g++ is missing: no circuit can be built")
SIZE = 1 << 16  # of memory; STORE writes to its second half
UOPS, UOPS_AT = 32, SIZE // 2 - 1024
ISSUES = 3000  # of one instruction, at most
CHANCES = (0, 0, 0.002, 0.02, 0.1)  # that a field has any value, in all instructions of one program
KINDS = [Op.LOAD] * 4 + [Op.LOADP] * 2 + [Op.STORE] * 3 + [Op.GEMM] * 3 + [Op.ALU] * 3 + [Op.DWGEMM] * 2
MEMS = [Mem.ACC, Mem.ACC, Mem.UOP, Mem.UOP, Mem.ACC8, Mem.INP, Mem.WGT, Mem.PAR]
TERNARY = [Op.TERNARY] * 6, [Mem.TUOP, Mem.TUOP, Mem.TWGT]  # of configurations with that unit


class Writer:
    """Writes one program of random instructions into memory."""

    def __init__(self, cfg, seed):
        self.cfg, self.isa, self.rng = cfg, Isa(cfg), np.random.default_rng(seed)
        self.chance = float(self.rng.choice(CHANCES))
        kinds, mems = TERNARY if "ternary" in cfg.units else ([], [])
        self.kinds, self.mems = KINDS + kinds, MEMS + mems
        self.image = self.rng.integers(0, 256, SIZE, np.uint8)
        self.image[UOPS_AT : UOPS_AT + 4 * UOPS] = self.micro_ops()

    def below(self, n):
        return int(self.rng.integers(max(1, n)))

    def value(self, field, usual):
        """`usual`, or anything: the largest value, one beside a power of two, or any other."""
        low, high = field.limits
        if self.rng.random() >= self.chance:
            return max(low, min(usual, high))
        near = (1 << self.below(field.bits + 1)) + self.below(3) - 1
        return int(self.rng.choice([high, min(near, high), low + self.below(high - low + 1)]))

    def micro_ops(self):
        """Small indices, and accumulators in the upper half."""
        rows, fields = self.rng.integers(0, 5, (UOPS, 3)), self.isa.uop.fields
        rows[:, 0] += self.rng.integers(0, 2, UOPS) * (self.cfg.acc_depth // 2)
        values = {name: [self.value(f, int(row)) for row in rows[:, k]] for k, (name, f) in enumerate(fields.items())}
        return self.isa.uop.encode(UOPS, **values).astype("<u4").reshape(-1).view(np.uint8)

    def place(self, fields, mem, where):
        """`sram_base` and `dram_base`."""
        span = SIZE // 2 // entry_bytes(self.cfg, mem)
        sram, dram = self.below(room(self.cfg, mem) // 2), where * span + self.below(span - 50)
        if where and self.below(2):  # a place that many instructions store to or load from
            dram = where * span + self.below(256 // entry_bytes(self.cfg, mem))
        if mem in MICRO_OPS:
            sram, dram = self.below(12), UOPS_AT // 4 + self.below(20)
        return {
            "mem": mem.id,
            "sram_base": self.value(fields["sram_base"], sram),
            "dram_base": self.value(fields["dram_base"], dram),
        }

    def load(self, fields):
        mem = self.mems[self.below(len(self.mems))]
        f = self.place(fields, mem, self.below(2))
        small = 3 if mem == Mem.PAR else 7
        f |= {name: self.value(fields[name], self.below(small)) for name in ("y_size", "x_size", "x_stride")}
        f |= self.pads(fields)
        return f | ({"pad_value": self.below(256) - 128} if "pad_value" in fields else {})

    def pads(self, fields):
        """Mostly small; memories without padding ignore them."""
        return {
            name: self.value(fields[name], self.below(2 if self.below(8) else 16)) for name in fields if "_pad_" in name
        }

    def store(self, fields):
        f = self.place(fields, Mem.OUTQ if "par_base" in fields else Mem.OUT, 1)
        f |= {name: self.value(fields[name], self.below(7)) for name in ("y_size", "x_size")}
        f["x_stride"] = f["x_size"] if self.below(2) else self.value(fields["x_stride"], self.below(9))
        f |= self.pads(fields)
        if "par_base" in fields:
            f["par_base"] = self.value(fields["par_base"], self.below(self.cfg.par_entries))
            f["par_step"] = self.value(fields["par_step"], self.below(2))
        return f

    def loops(self, fields):
        f = {name: self.value(field, self.below(4)) for name, field in fields.items()}
        f |= {name: self.below(2) for name in ("reset", "overwrite", "use_imm") if name in fields}
        f["uop_bgn"], f["uop_end"] = (
            self.value(fields[n], k + self.below(6)) for n, k in (("uop_bgn", 0), ("uop_end", 6))
        )
        if not self.below(8):  # a large loop of few micro-ops
            f[("iter_out", "iter_in")[self.below(2)]] = self.value(fields["iter_in"], self.below(ISSUES))
            f |= {name: self.below(2) for name in fields if name[:4] in ("dst_", "src_", "wgt_")}
        if "dst_out" in fields and not self.below(4):
            f["dst_out"] = self.below(self.cfg.acc_depth // 4)
        for name in ("iter_out", "iter_in"):
            if max(0, f["uop_end"] - f["uop_bgn"]) * f["iter_out"] * f["iter_in"] > ISSUES:
                f[name] = 1
        if "alu_op" in fields:
            f |= {"alu_op": AluOp(self.below(len(AluOp))), "imm": self.below(1 << 16) - (1 << 15)}
            if f["alu_op"] == AluOp.RESCALE:
                f |= {"use_imm": 1, "imm": self.value(fields["imm"], self.below(self.cfg.par_entries))}
            if most := OPERATIONS[f["alu_op"]].immediates(self.cfg):
                f |= {"use_imm": 1, "imm": self.below(most)}
        elif f.get("overwrite"):
            f["reset"] = 0
        return f

    def ternary(self, fields):
        """As `loops`, mostly within the first plane of a bank."""
        f = self.loops(fields)
        return f | {"dst_in": self.below(2), "dst_out": 0} if self.below(16) else f

    def instruction(self):
        """(format, fields) of one that can be decoded."""
        while True:
            op = self.kinds[self.below(len(self.kinds))]
            name = "STOREQ" if op == Op.STORE and self.below(2) else op.name
            fields = self.isa.formats[name].fields
            make = {Op.LOAD: self.load, Op.LOADP: self.load, Op.STORE: self.store, Op.TERNARY: self.ternary}
            f = {
                **make.get(op, self.loops)(fields),
                "op": op,
                **dict.fromkeys(("pop_prev", "pop_next", "push_prev", "push_next"), 0),
            }
            if not self.isa.undecodable(f):
                return name, f

    def program(self):
        """(memory, address, count): instructions that execute one after the other, whatever their queues.

        Unit ternary has its tokens from STORE, and through it from the compute queue.
        """
        insns, nop, store = [], {"op": Op.LOAD, "mem": Mem.UOP}, {"op": Op.STORE, "mem": Mem.OUT}
        start = {"op": Op.LOAD, "mem": Mem.UOP, "dram_base": UOPS_AT // 4, "x_size": min(UOPS, self.cfg.uop_depth)}
        insns.append(("LOAD", start))
        if "ternary" in self.cfg.units:
            insns.append(("LOAD", start | {"mem": Mem.TUOP.id, "push_next": 1}))
            insns.append(("LOAD", nop | {"pop_prev": 1}))
        for _ in range(5 + self.below(35)):
            name, f = self.instruction()
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
            for _ in range(self.below(4) if self.below(2) else 0):  # nothing orders those but their queue
                name, f = self.instruction()
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


def circuit(cfg, seed):
    return RtlDevice(cfg, dram=Dram.random(seed), watchdog=20_000)


def definition(cfg, seed):
    return SpecDevice(cfg)


def compare(cfg, seeds, other):
    """Run program after program on the model and on `other`; both start from zero after an error.

    Returns how many ended well.
    """
    devices, well = None, 0
    for seed in seeds:
        print(f"{cfg.name} seed {seed}")
        devices = devices or (ModelDevice(cfg), other(cfg, seed))
        image, address, count = Writer(cfg, seed).program()
        before = deepcopy(devices[0])
        model, got = (result_of(device, image, address, count) for device in devices)
        same = got == model or (other is circuit and is_an_error_too(before, image, address, count, model, got))
        assert same, f"{cfg.name} seed {seed}: the model {model.text or 'ends'}, the other {got.text or 'ends'}"
        if model.error:
            devices = None
        else:
            well += 1
    return well


@pytest.mark.parametrize("other", [definition, pytest.param(circuit, marks=needs_compiler)])
@pytest.mark.parametrize("cfg", [PRESETS["tiny"], ODD, ROWS, PRESETS["tiny_two"]], ids=lambda c: c.name)
def test_both_end_alike(cfg, other):
    well = compare(cfg, range(150), other)
    assert 30 < well < 120


@pytest.mark.slow
@pytest.mark.parametrize("other", [definition, pytest.param(circuit, marks=needs_compiler)])
@pytest.mark.parametrize("chunk", range(10))
@pytest.mark.parametrize("cfg", [PRESETS["tiny"], ODD, PRESETS["tiny_two"], ODD_TWO], ids=lambda c: c.name)
def test_both_end_alike_on_many(cfg, chunk, other):
    compare(cfg, range(1000 + 200 * chunk, 1200 + 200 * chunk), other)
