"""Random legal programs: what the recorder, the behavioural model and the circuit are tested and compared with."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from ..hw.config import PRESETS, Config
from ..hw.isa import OPERATIONS, PADDABLE, PAR, AluOp, Isa, Mem, Op, Operation, depth, instruction, queue_of
from ..runtime.device import Stats
from ..runtime.launch import Launch
from ..runtime.loader import run
from ..runtime.program import Program
from .memory import DeviceMemory

ENTRIES = 64  # of every input buffer
ODD = Config(
    name="odd",
    batch=2,
    block_in=8,
    block_out=4,
    wgt_bits=4,
    inp_bytes=1 << 10,
    wgt_bytes=1 << 10,
    acc_bytes=1 << 11,
    uop_bytes=128,
    par_entries=16,
    extensions=frozenset({"overwrite", "pad_value", "acc8", "requant", "rescale"}),
)
NARROW = Config(
    name="narrow",
    block_in=4,
    block_out=8,
    inp_bits=4,
    wgt_bits=2,
    out_bits=4,
    inp_bytes=1 << 9,
    wgt_bytes=1 << 10,
    acc_bytes=1 << 12,
    uop_bytes=256,
    axi_bits=32,
    acc_banks=2,
    queue_depth=4,
    extensions=frozenset({"overwrite", "pad_value"}),
)
WIDE = PRESETS["tiny"].replace(name="wide", axi_bits=128, batch=4, inp_bytes=2048, acc_bytes=4096, load_ports=2)

Pads = tuple[int, int, int, int]


class Recorder:
    """Records a program for `cfg` over random inputs `data`, one buffer per loadable memory, and one output buffer.

    `rng` makes the data and whatever else is random; `extensions` are those of `cfg` that are used, all but `without`.
    A subclass may follow the calls.
    """

    def __init__(self, cfg: Config, seed: int, words: int = 4096, *, without: frozenset[str] = frozenset()):
        self.cfg, self.program, self.rng = cfg, Program(cfg), np.random.default_rng(seed)
        self.extensions = cfg.extensions - without
        acc = (cfg.batch, cfg.block_out)
        shapes = {Mem.INP: (cfg.batch, cfg.block_in), Mem.WGT: (cfg.block_out, cfg.block_in), Mem.ACC: acc}
        shapes |= {Mem.ACC8: acc, Mem.PAR: ()}
        bits = {Mem.INP: cfg.inp_bits, Mem.WGT: cfg.wgt_bits, Mem.ACC: 32, Mem.ACC8: 8, Mem.PAR: 32}
        self.data = {
            mem: self._random(bits[mem], shape)
            for mem, shape in shapes.items()
            if _within(self.extensions, {"op": Op.LOAD, "mem": mem})
        }
        self.buffers = {mem: self.program.buffer(mem.name, a.shape, bits[mem]) for mem, a in self.data.items()}
        self.target = self.program.buffer("out", (words, *acc), cfg.out_bits, kind="output")

    def _random(self, bits: int, shape: tuple[int, ...]) -> np.ndarray:
        if not shape:
            return random_parameters(self.cfg, self.rng, ENTRIES)
        return self.rng.integers(-(1 << bits - 1), 1 << bits - 1, (ENTRIES, *shape))

    @property
    def inputs(self) -> dict[str, np.ndarray]:
        """The input tensors by name."""
        return {mem.name: a for mem, a in self.data.items()}

    def load(
        self,
        mem: Mem,
        sram: int,
        offset: int,
        y: int = 1,
        x: int = 1,
        stride: int | None = None,
        pads: Pads = (0, 0, 0, 0),
        pad_value: int = 0,
    ) -> None:
        """Load from the input buffer of `mem`."""
        source, shape = self.buffers[mem], {"y_size": y, "x_size": x, "x_stride": stride}
        self.program.load(mem, sram, source, offset, **shape, pads=pads, pad_value=pad_value)

    def gemm(
        self,
        loops: Sequence[tuple[int, int, int, int]],
        uops: np.ndarray,
        reset: bool = False,
        overwrite: bool = False,
        depthwise: bool = False,
    ) -> None:
        """Micro-ops (n, 3) within `loops`."""
        self.program.gemm_uops(uops, loops, reset=reset, overwrite=overwrite, depthwise=depthwise)

    def alu(self, op: AluOp, loops: Sequence[tuple[int, int, int]], uops: np.ndarray, imm: int | None = None) -> None:
        """Micro-ops (n, 2) within `loops`."""
        self.program.alu_uops(op, uops, loops, imm=imm)

    def store(
        self,
        sram: int,
        offset: int,
        y: int = 1,
        x: int = 1,
        stride: int | None = None,
        par: int | None = None,
        par_step: int = 0,
    ) -> None:
        """Store to the output buffer."""
        shape = {"y_size": y, "x_size": x, "x_stride": stride}
        self.program.store(sram, self.target, offset, **shape, par=par, par_step=par_step)

    def reload(self, sram: int, offset: int, x: int) -> None:
        """Load as input what the program stored before; needs equal blocks and widths."""
        self.program.load(Mem.INP, sram, self.target, offset, x_size=x)


def _within(extensions: frozenset[str], f: dict[str, int]) -> bool:
    """Whether the instruction with the fields `f` needs none but `extensions`."""
    row = instruction(f["op"], f.get("mem"))
    assert row is not None
    return extensions.issuperset(row.extensions + (OPERATIONS[f["alu_op"]].extensions if "alu_op" in f else ()))


def random_parameters(cfg: Config, rng: np.random.Generator, entries: int) -> np.ndarray:
    """PAR entries, int32 (entries, block_out, 3): every field anywhere in its range, often at an edge of it.

    Half of the exponents are such that results are neither all zero nor all at a limit.
    """
    n = entries * cfg.block_out
    columns = {}
    for name, f in PAR.fields.items():
        low, high = f.limits
        edges = [value for value in (low, high, 0, 1, -1, 1 << 30, -(1 << 30)) if low <= value <= high]
        columns[name] = np.where(rng.integers(0, 2, n), rng.choice(edges, n), rng.integers(low, high + 1, n))
    columns["exponent"] = np.where(rng.integers(0, 2, n), rng.integers(-12, 1, n), columns["exponent"])
    return PAR.encode(n, **columns).view("<i4")[:, :3].reshape(entries, cfg.block_out, 3).astype(np.int64)


def record_random(recorder: Recorder, length: int = 25) -> None:
    """Record `length` random instructions, between loads that fill the scratchpads and a store of the results."""
    cfg, walk = recorder.cfg, _Walk(recorder)
    recorder.load(Mem.INP, 0, 0, x=min(ENTRIES, cfg.inp_depth))
    recorder.load(Mem.WGT, 0, 0, x=walk.weights)
    recorder.load(Mem.ACC, walk.first, 0, x=walk.limit)
    if Mem.PAR in recorder.buffers:
        recorder.load(Mem.PAR, 0, 0, x=min(ENTRIES, cfg.par_entries))
    for _ in range(length):
        walk.step()
    recorder.store(walk.first, 100, x=walk.limit)
    if Mem.PAR in recorder.buffers:
        recorder.store(walk.first, 200, x=walk.limit, par=0)


class _Walk:
    """One random instruction after the other."""

    def __init__(self, recorder: Recorder):
        self.to, self.rng, self.cfg = recorder, recorder.rng, recorder.cfg
        self.limit = min(32, self.cfg.acc_depth // 4)  # accumulators in use
        middle = self.cfg.acc_depth // 2 - 6  # so that they are on both sides of a bank's end
        fits = middle + self.limit <= min(self.cfg.acc_depth, self.cfg.inp_depth)
        self.first = middle if fits and self._below(2) else 0
        self.weights = min(ENTRIES if "depthwise" in recorder.extensions else 32, self.cfg.wgt_depth)  # loaded
        has = recorder.extensions.issuperset
        self.operations = [row for row in OPERATIONS.values() if row.reads is None and has(row.extensions)]
        steps = [(("requant",), self._load_par), (("requant",), self._store_quantised)]
        reading = [row for row in OPERATIONS.values() if row.reads is not None]
        steps += [(row.extensions, partial(self._with_entry, row)) for row in reading]
        self.extra = [step for needed, step in [*steps, (("depthwise",), self._depthwise)] if has(needed)]

    def step(self) -> None:
        """Record one."""
        kind = int(self.rng.integers(0, 9 + len(self.extra)))
        reloads = self.cfg.block_in == self.cfg.block_out
        if kind >= 9:
            self.extra[kind - 9]()
        elif kind < 2:
            self._load()
        elif kind < 4:
            self._gemm()
        elif kind < 6:
            self._alu()
        elif kind == 6 and reloads and self.cfg.inp_bits == self.cfg.out_bits:
            self.to.reload(self._below(16), self._below(64), 1 + self._below(7))
        else:
            self._store()

    def _below(self, n: int) -> int:
        return int(self.rng.integers(0, n))

    def _store(self, **parameters: int) -> None:
        x = 1 + self._below(4)
        # a stride below x makes rows overlap
        stride = x + self._below(4) if self._below(4) else self._below(x)
        rows = parameters.pop("rows", 0)
        self.to.store(self.first + self._below(8), self._below(64), rows or 1 + self._below(3), x, stride, **parameters)

    def _store_quantised(self) -> None:
        entries, rows = self.cfg.par_entries, 1 + self._below(3)
        most = min((entries - 1) // max(rows - 1, 1), 63)
        step = self._below(most + 1) if self._below(2) else 0
        self._store(rows=rows, par=self._below(entries - (rows - 1) * step), par_step=step)

    def _load_par(self) -> None:
        x = 1 + self._below(min(3, self.cfg.par_entries))
        y = 1 + self._below(min(3, self.cfg.par_entries // x))
        first = self._below(self.cfg.par_entries - x * y + 1)
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

    def _load(self) -> None:
        mems = [mem for mem in self.to.buffers if mem in PADDABLE]
        mem = mems[self._below(len(mems))]
        pads = (0, 0, 0, 0)
        if mem != Mem.WGT:
            pads = (self._below(2), self._below(2), self._below(2), self._below(2))
        padded = any(pads)
        value = self._below(16) - 8 if padded and "pad_value" in self.to.extensions else 0
        rows = 0 if pads[0] + pads[1] and not self._below(8) else 1 + self._below(3)
        first = self.first if mem in (Mem.ACC, Mem.ACC8) else 0
        self.to.load(
            mem, first + self._below(8), self._below(8), rows, 1 + self._below(3), 3 + self._below(6), pads, value
        )

    def _indices(self, most: tuple[int, ...], accumulators: int = 1) -> tuple[list, np.ndarray]:
        """(loops, micro-ops) that stay below `most`; so many columns count from the first accumulator in use."""
        loops, room = [], np.array(most)
        for _ in range(1 + self._below(4)):
            n, steps = 1 + self._below(3), self.rng.integers(0, 4, len(most))
            if ((n - 1) * steps < room).all():
                room -= (n - 1) * steps
                loops.append((n, *map(int, steps)))
        count = 1 if self._below(2) else 1 + self._below(12)
        uops = self.rng.integers(0, room, (count, len(most)))
        uops[:, :accumulators] += self.first
        return loops, uops

    def _mode(self) -> dict[str, bool]:
        flag = str(self.rng.choice(["", "reset", "overwrite"], p=[0.7, 0.2, 0.1]))
        return {"reset": flag == "reset", "overwrite": flag == "overwrite" and flag in self.to.extensions}

    def _gemm(self) -> None:
        mode = self._mode()
        loops, uops = self._indices((self.limit, 32, 16))
        self.to.gemm(loops, uops, **mode)

    def _alu(self) -> None:
        row = self.operations[self._below(len(self.operations))]
        loops, uops = self._indices((self.limit, self.limit), accumulators=2)
        immediate = self._below(2) or row.imm or row.op == AluOp.SHR
        self.to.alu(row.op, loops, uops, imm=self._below(16) - 8 if immediate else None)


def _idlers() -> list[tuple[str, dict[str, int]]]:
    """(format, fields) of instructions that do nothing."""
    size, far = {"y_size": 3, "x_size": 2, "x_stride": 9}, {"sram_base": 3, "dram_base": 1 << 20}
    kinds = [("LOAD", {"op": Op.LOAD, "mem": mem, **size, "x_size": 0}) for mem in (Mem.INP, Mem.WGT, Mem.ACC)]
    kinds += [("LOAD", {"op": Op.LOAD, "mem": Mem.UOP}), ("LOAD", {"op": Op.LOAD, "mem": Mem.ACC, **far, "x_size": 7})]
    kinds += [("LOAD", {"op": Op.LOAD, "mem": Mem.INP, "x_size": 0, "y_size": 2, "x_pad_0": 3, "y_pad_1": 2, **far})]
    kinds += [("STORE", {"op": Op.STORE, "mem": mem, **far}) for mem in (Mem.UOP, Mem.OUT)]
    kinds += [("STORE", {"op": Op.STORE, "mem": Mem.OUT, **size, empty: 0}) for empty in ("x_size", "y_size")]
    once = {"uop_bgn": 0, "uop_end": 1, "iter_out": 3, "iter_in": 2}
    kinds += [("GEMM", {"op": Op.GEMM, **once, empty: 0}) for empty in ("uop_end", "iter_out", "iter_in")]
    kinds += [("DWGEMM", {"op": Op.DWGEMM, **once, "iter_in": 0})]
    alu = {"op": Op.ALU, "alu_op": AluOp.MIN, **once}
    kinds += [("ALU", alu | {empty: 0}) for empty in ("uop_end", "iter_out", "iter_in")]
    entry = {"use_imm": 1, "imm": -1, "iter_out": 0}
    kinds += [("ALU", alu | entry | {"alu_op": op}) for op, row in OPERATIONS.items() if row.reads is not None]
    par = {"op": Op.LOAD, "mem": Mem.PAR, **far, "x_pad_0": 2}
    kinds += [("LOAD", par | {empty: 2}) for empty in ("x_size", "y_size")]
    kinds += [("STOREQ", {"op": Op.STORE, "mem": Mem.OUTQ, **far, "par_base": 1023, "x_size": 3})]
    return kinds


def with_idlers(launch: Launch, rng: np.random.Generator, count: int, extensions: frozenset[str]) -> Launch:
    """`launch` with `count` instructions, of `extensions` too, in random places that do nothing, without tokens."""
    isa, kinds = Isa(launch.cfg), [(name, f) for name, f in _idlers() if _within(extensions, f)]
    insn, reloc, queues = launch.insn, launch.reloc, [isa.queue(f) for f in isa.decode(launch.insn)]
    for _ in range(count):
        name, fields = kinds[int(rng.integers(len(kinds)))]
        queue = queue_of(fields["op"], fields.get("mem"))
        if queue not in queues:
            continue
        last = len(queues) - 1 - queues[::-1].index(queue)
        at = int(rng.integers(last + 1))  # FINISH is ordered behind the last one of each queue
        queues.insert(at, queue)
        insn = np.insert(insn, at, isa.formats[name].encode(1, **fields), axis=0)
        reloc = np.insert(reloc, at, -1).astype(np.int32)
    return Launch(launch.cfg, launch.name, insn, reloc, launch.buffers)


class _Capture(DeviceMemory):
    """A device that executes nothing: it keeps its memory and the address of the program."""

    def __init__(self, cfg: Config):
        super().__init__(1 << 31)
        self.cfg, self.start, self.count = cfg, 0, 0

    def run(self, insn_address: int, insn_count: int) -> Stats:
        self.start, self.count = insn_address, insn_count
        return Stats()


def random_case(cfg: Config, seed: int, *, without: frozenset[str] = frozenset()) -> tuple[np.ndarray, int, int]:
    """(memory, address of the instructions, their number) of random program `seed`, ready to run.

    It uses the extensions of `cfg` but those in `without`.
    """
    recorder = Recorder(cfg, seed, without=without)
    record_random(recorder, int(recorder.rng.integers(5, 60)))
    launch = recorder.program.finish()
    if seed % 3 == 0:
        launch = with_idlers(launch, recorder.rng, 10, recorder.extensions)
    capture = _Capture(cfg)
    run(launch, recorder.inputs, capture)
    return capture.bytes, capture.start, capture.count
