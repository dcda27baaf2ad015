"""Random programs by seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.hw.config import PRESETS, Config
from tilewright.hw.isa import (
    FLAGS,
    MICRO_OPS,
    OPERATIONS,
    PADDABLE,
    AluOp,
    Field,
    Isa,
    Mem,
    Op,
    Queue,
    depth,
    entry_bytes,
    room,
    row_of,
)
from tilewright.hw.isa.encoding import ITER_BITS
from tilewright.runtime.launch import Launch
from tilewright.sim.memory import put
from tilewright.sim.random_programs import (
    ENTRIES,
    FOUR_TWO,
    NARROW,
    ODD,
    ODD_TWO,
    ROWS,
    WIDE,
    Recorder,
    Walk,
    every_idler,
    image_of,
    record_random,
    with_idlers,
)

_PADS = ("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1")
_NEVER = {"op", "mem", *FLAGS}


def unused(f: dict[str, int]) -> set[str]:
    """The fields of the decoded instruction `f` that may have any value and change nothing."""
    row = row_of(f["op"], f.get("mem"))
    if row.mem is not None:
        return _unused_moving(f)
    return _unused_looping(f) if row.loops else set()


def _unused_moving(f: dict[str, int]) -> set[str]:
    row, every = row_of(f["op"], f["mem"]), set(f) - _NEVER
    padded = any(f[name] for name in _PADS) if row.pads else False
    if row.empty or not f["x_size"]:
        return every - {"x_size"}
    if not row.one_row and not f["y_size"] and not (row.pads and f["y_pad_0"] + f["y_pad_1"]):
        return every - {"y_size", *(_PADS[:2] if row.pads else ())}
    found = set() if row.pads else {name for name in _PADS if name in f}
    if row.one_row:
        found |= {"y_size", "x_stride"}
    elif f["y_size"] <= 1:
        found |= {"x_stride", "par_step"} & every
    if row.pads and not padded:
        found |= {"pad_value"} & every
    return found


def _unused_looping(f: dict[str, int]) -> set[str]:
    steps = {name for name in f if name.endswith(("_out", "_in")) and name[:4] in ("dst_", "src_", "wgt_")}
    trips = {"_out": "iter_out", "_in": "iter_in"}
    found = {"reset"} if f["op"] == Op.ALU else set()
    if f["op"] == Op.ALU:
        found |= {"src_out", "src_in"} if f["use_imm"] else {"imm"}
    if f["uop_bgn"] >= f["uop_end"] or not f["iter_out"] or not f["iter_in"]:
        found |= steps | {name for name in trips.values() if f[name]}
        if f["uop_bgn"] >= f["uop_end"]:
            found |= set(trips.values())
        if f["op"] == Op.ALU and not OPERATIONS[f["alu_op"]].counted and not OPERATIONS[f["alu_op"]].names:
            found.add("imm")  # others decide whether it can be decoded
        return found
    return found | {name for name in steps for end, trip in trips.items() if name.endswith(end) and f[trip] == 1}


def varied(launch: Launch, rng: np.random.Generator, share: float = 0.5) -> Launch:
    """`launch` with another value in such a `share` of the fields that nothing uses."""
    isa = Isa(launch.cfg)
    insn = launch.insn.copy()
    for k, f in enumerate(isa.decode(insn)):
        form = isa.format_of(f)
        assert form is not None
        names = sorted(unused(f) - ({"dram_base"} if launch.reloc[k] >= 0 else set()))
        for name in names:
            if rng.random() < share:
                put(insn[k], form.fields[name], any_value(form.fields[name], rng))
    return Launch(launch.cfg, launch.name, insn, launch.reloc, launch.buffers, patches=launch.patches)


def any_value(field: Field, rng: np.random.Generator) -> int:
    """A value of `field`: a limit, or one of which each doubling is as likely."""
    low, high = field.limits
    if rng.random() < 0.2:
        return low if rng.random() < 0.3 else high
    size = int(rng.integers(field.bits + 1))
    value = int(rng.integers(1 << max(size - 1, 0), 1 << size)) if size else 0
    return min(max(-value if field.signed and rng.random() < 0.5 else value, low), high)


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
        """`usual` or, by `chance`, the largest value, one next to a power of two, or any other."""
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
            operation = OPERATIONS[list(AluOp)[self._below(len(AluOp))]]
            low, high = self.isa.formats[operation.format].fields["imm"].limits
            f |= {"alu_op": operation.op, "imm": low + self._below(high - low + 1)}
            if f["alu_op"] == AluOp.RESCALE:
                f |= {"use_imm": 1, "imm": self._value(fields["imm"], self._below(self.cfg.par_entries))}
            if most := OPERATIONS[f["alu_op"]].immediates(self.cfg):
                f |= {"use_imm": 1, "imm": self._below(most)}
        elif f.get("overwrite"):
            f["reset"] = 0
        return f

    def _ternary(self, fields: Mapping[str, Field]) -> dict[str, int]:
        """Fields of loops, mostly within the first plane of a bank."""
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
                return OPERATIONS[f["alu_op"]].format if "alu_op" in f else name, f

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


_OFTEN = 8  # of so many instructions one reaches far
_PRODUCTS = 1 << 15  # of one instruction, about: the definition computes each by itself


class Reach(Walk):
    """A `Walk` with some instructions near the limits of sizes, trips and steps."""

    def __init__(self, recorder: Recorder):
        super().__init__(recorder)
        self._kinds = [self._load_all, self._loop_long, self._operate_long, self._store_far, self._many]
        self._kinds += [self._ternary_long] * bool(self.ternary_weights)

    def step(self) -> None:
        """Record one instruction that reaches far, or a usual step of a walk."""
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
        """The trips of one loop; each doubling is equally likely."""
        most = max(2, min((1 << ITER_BITS) - 1, _PRODUCTS // cost))
        return int(np.exp2(self.rng.uniform(1, np.log2(most + 0.5))))

    def _loops(self, cost: int) -> list[tuple[int, int, int, int]]:
        """One long loop without steps, outside or inside a short one."""
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
        """Store accumulators, in few long rows or in many short rows."""
        x = 1 + self._below(min(self.cfg.acc_depth, 32))
        y = 1 + self._below(min(self.cfg.acc_depth, 256) // x)
        room = self.to.target.shape[0] - x
        stride = self._below(room // max(y - 1, 1) + 1)
        self.to.store(self._below(self.cfg.acc_depth - x * y + 1), 0, y, x, stride)

    def _load_par(self) -> None:
        """Load parameters with more rows than a walk, but few entries."""
        if self._below(4):
            return super()._load_par()
        entries = self.cfg.par_entries
        x = 1 + self._below(min(entries, ENTRIES))
        y = 1 + self._below(max(1, entries // x))
        self.to.load(Mem.PAR, 0, 0, y, x, self._below((ENTRIES - x) // max(y - 1, 1) + 1))


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
        for mem, entries in ((Mem.INP, cfg.inp_depth), (Mem.WGT, cfg.wgt_depth), (Mem.TWGT, cfg.twgt_depth)):
            to.load(mem, 0, 0, x=min(ENTRIES, entries))
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


TOGETHER = 10  # programs on the same devices: each meets what the ones before left in the scratchpads
_WILD = 5  # of so many groups one is of programs that may end in errors
_IDLERS = 20  # instructions that do nothing, in a third of the programs

BROAD = Config(
    name="broad",
    block_in=8,
    block_out=32,
    axi_bits=512,
    uop_bytes=1 << 10,
    inp_bytes=1 << 11,
    wgt_bytes=1 << 13,
    acc_bytes=1 << 14,
    par_entries=16,
    ppu_lanes=8,
    acc_banks=2,
    extensions=frozenset({"overwrite", "pad_value", "acc8", "requant", "rescale", "lane_reduce"}),
)
CONFIGS = (PRESETS["tiny"], PRESETS["tiny_two"], ODD, NARROW, WIDE, ROWS, ODD_TWO, BROAD, FOUR_TWO)


@dataclass(frozen=True)
class Generated:
    """`count` instructions at byte `address` of `image`, uint8 (n,); one that is not `legal` may end in an error."""

    seed: int
    image: np.ndarray
    address: int
    count: int
    legal: bool = True

    @property
    def words(self) -> np.ndarray:
        """The instructions, uint64 (count, 2): a copy."""
        return self.image[self.address : self.address + 16 * self.count].copy().view(np.uint64).reshape(-1, 2)


def wild(seed: int) -> bool:
    """Whether `generated` makes one that may end in an error of `seed`, and of all seeds of its ten."""
    return seed // TOGETHER % _WILD == _WILD - 1


def generated(cfg: Config, seed: int) -> Generated:
    """Program `seed`, the same for the same seed: one of `Writer`, of `Crowd` or of `Reach`.

    All but the first are legal, and have any values in fields that nothing uses.
    """
    if wild(seed):
        return Generated(seed, *Writer(cfg, seed).program(), legal=False)
    rng = np.random.default_rng([seed, 1])
    if seed % 2 and "ternary" in cfg.units and cfg.extensions >= NEEDS:
        launch, inputs = Crowd(cfg, seed).record()
    else:
        recorder = Recorder(cfg, seed)
        record_random(recorder, int(recorder.rng.integers(5, 60)), Reach)
        launch, inputs = recorder.program.finish(), recorder.inputs
    if seed % 3 == 0:
        launch = with_idlers(launch, rng, _IDLERS, cfg.extensions, every_idler())
    image, address, count = image_of(varied(launch, rng), inputs)
    return Generated(seed, image, address, count)
