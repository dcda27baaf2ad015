"""Random legal programs: what the recorder, the behavioural model and the circuit are tested and compared with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..hw.config import Config
from ..hw.isa import AluOp, Isa, Mem, Op, queue_of
from ..runtime.device import Stats
from ..runtime.launch import Launch
from ..runtime.loader import run
from ..runtime.program import Program
from .memory import Memory

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
    extensions=frozenset({"overwrite", "pad_value", "acc8"}),
)

Pads = tuple[int, int, int, int]


class Recorder:
    """Records a program for `cfg` over random inputs `data`, one buffer per loadable memory, and one output buffer.

    `rng` makes the data and whatever else is random. A subclass may follow the calls.
    """

    def __init__(self, cfg: Config, seed: int, words: int = 4096):
        self.cfg, self.program, self.rng = cfg, Program(cfg), np.random.default_rng(seed)
        acc = (cfg.batch, cfg.block_out)
        shapes = {Mem.INP: (cfg.batch, cfg.block_in), Mem.WGT: (cfg.block_out, cfg.block_in), Mem.ACC: acc}
        bits = {Mem.INP: cfg.inp_bits, Mem.WGT: cfg.wgt_bits, Mem.ACC: 32}
        if "acc8" in cfg.extensions and cfg.out_bits == 8:
            shapes[Mem.ACC8], bits[Mem.ACC8] = acc, 8
        self.data = {
            mem: self.rng.integers(-(1 << bits[mem] - 1), 1 << bits[mem] - 1, (ENTRIES, *shape))
            for mem, shape in shapes.items()
        }
        self.buffers = {mem: self.program.buffer(mem.name, a.shape, bits[mem]) for mem, a in self.data.items()}
        self.target = self.program.buffer("out", (words, *acc), cfg.out_bits, kind="output")

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
        self, loops: Sequence[tuple[int, int, int, int]], uops: np.ndarray, reset: bool = False, overwrite: bool = False
    ) -> None:
        """Micro-ops (n, 3) within `loops`."""
        self.program.gemm_uops(uops, loops, reset=reset, overwrite=overwrite)

    def alu(self, op: AluOp, loops: Sequence[tuple[int, int, int]], uops: np.ndarray, imm: int | None = None) -> None:
        """Micro-ops (n, 2) within `loops`."""
        self.program.alu_uops(op, uops, loops, imm=imm)

    def store(self, sram: int, offset: int, y: int = 1, x: int = 1, stride: int | None = None) -> None:
        """Store to the output buffer."""
        self.program.store(sram, self.target, offset, y_size=y, x_size=x, x_stride=stride)

    def reload(self, sram: int, offset: int, x: int) -> None:
        """Load as input what the program stored before; needs equal blocks and widths."""
        self.program.load(Mem.INP, sram, self.target, offset, x_size=x)


def record_random(recorder: Recorder, length: int = 25) -> None:
    """Record `length` random instructions, between loads that fill the scratchpads and a store of the results."""
    cfg, walk = recorder.cfg, _Walk(recorder)
    recorder.load(Mem.INP, 0, 0, x=min(ENTRIES, cfg.inp_depth))
    recorder.load(Mem.WGT, 0, 0, x=min(32, cfg.wgt_depth))
    recorder.load(Mem.ACC, 0, 0, x=walk.limit)
    for _ in range(length):
        walk.step()
    recorder.store(0, 100, x=walk.limit)


class _Walk:
    """One random instruction after the other."""

    def __init__(self, recorder: Recorder):
        self.to, self.rng, self.cfg = recorder, recorder.rng, recorder.cfg
        self.limit = min(32, self.cfg.acc_depth // 4)  # accumulators in use

    def step(self) -> None:
        """Record one."""
        kind, reloads = int(self.rng.integers(0, 9)), self.cfg.block_in == self.cfg.block_out
        if kind < 2:
            self._load()
        elif kind < 4:
            self._gemm()
        elif kind < 6:
            self._alu()
        elif kind == 6 and reloads and self.cfg.inp_bits == self.cfg.out_bits:
            self.to.reload(self._below(16), self._below(64), 1 + self._below(7))
        else:
            x = 1 + self._below(4)
            # a stride below x makes rows overlap
            stride = x + self._below(4) if self._below(4) else self._below(x)
            self.to.store(self._below(8), self._below(64), 1 + self._below(3), x, stride)

    def _below(self, n: int) -> int:
        return int(self.rng.integers(0, n))

    def _load(self) -> None:
        mems = list(self.to.buffers)
        mem = mems[self._below(len(mems))]
        pads = (0, 0, 0, 0)
        if mem != Mem.WGT:
            pads = (self._below(2), self._below(2), self._below(2), self._below(2))
        padded = any(pads)
        value = self._below(16) - 8 if padded and "pad_value" in self.cfg.extensions else 0
        rows = 0 if pads[0] + pads[1] and not self._below(8) else 1 + self._below(3)
        self.to.load(mem, self._below(8), self._below(8), rows, 1 + self._below(3), 3 + self._below(6), pads, value)

    def _indices(self, most: tuple[int, ...]) -> tuple[list, np.ndarray]:
        """(loops, micro-ops) that stay below `most`."""
        loops, room = [], np.array(most)
        for _ in range(1 + self._below(4)):
            n, steps = 1 + self._below(3), self.rng.integers(0, 4, len(most))
            if ((n - 1) * steps < room).all():
                room -= (n - 1) * steps
                loops.append((n, *map(int, steps)))
        count = 1 if self._below(2) else 1 + self._below(12)
        return loops, self.rng.integers(0, room, (count, len(most)))

    def _gemm(self) -> None:
        flag = self.rng.choice(["", "reset", "overwrite"], p=[0.7, 0.2, 0.1])
        if flag == "overwrite" and "overwrite" not in self.cfg.extensions:
            flag = ""
        loops, uops = self._indices((self.limit, 32, 16))
        self.to.gemm(loops, uops, reset=str(flag) == "reset", overwrite=str(flag) == "overwrite")

    def _alu(self) -> None:
        op = AluOp(self._below(5))
        loops, uops = self._indices((self.limit, self.limit))
        self.to.alu(op, loops, uops, imm=self._below(16) - 8 if self._below(2) or op == AluOp.SHR else None)


def with_idlers(launch: Launch, rng: np.random.Generator, count: int) -> Launch:
    """`launch` with `count` instructions in random places that do nothing and exchange no tokens."""
    isa = Isa(launch.cfg)
    size, far = {"y_size": 3, "x_size": 2, "x_stride": 9}, {"sram_base": 3, "dram_base": 1 << 20}
    kinds = [("LOAD", {"op": Op.LOAD, "mem": mem, **size, "x_size": 0}) for mem in (Mem.INP, Mem.WGT, Mem.ACC)]
    kinds += [("LOAD", {"op": Op.LOAD, "mem": Mem.UOP}), ("LOAD", {"op": Op.LOAD, "mem": Mem.ACC, **far, "x_size": 7})]
    kinds += [("LOAD", {"op": Op.LOAD, "mem": Mem.INP, "x_size": 0, "y_size": 2, "x_pad_0": 3, "y_pad_1": 2, **far})]
    kinds += [("STORE", {"op": Op.STORE, "mem": mem, **far}) for mem in (Mem.UOP, Mem.OUT)]
    kinds += [("STORE", {"op": Op.STORE, "mem": Mem.OUT, **size, empty: 0}) for empty in ("x_size", "y_size")]
    for name, op in (("GEMM", Op.GEMM), ("ALU", Op.ALU)):
        one = {"op": op, "uop_bgn": 0, "uop_end": 1, "iter_out": 3, "iter_in": 2}
        kinds += [(name, one | {empty: 0}) for empty in ("uop_end", "iter_out", "iter_in")]
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


class _Placed(Memory):
    """A device that keeps what it should have run."""

    def __init__(self, cfg: Config):
        super().__init__(1 << 31)
        self.cfg, self.start, self.count = cfg, 0, 0

    def run(self, insn_address: int, insn_count: int) -> Stats:
        self.start, self.count = insn_address, insn_count
        return Stats()


def random_case(cfg: Config, seed: int) -> tuple[np.ndarray, int, int]:
    """(memory, address of the instructions, their number) of random program `seed`, ready to run."""
    recorder = Recorder(cfg, seed)
    record_random(recorder, int(recorder.rng.integers(5, 60)))
    launch = recorder.program.finish()
    if seed % 3 == 0:
        launch = with_idlers(launch, recorder.rng, 10)
    placed = _Placed(cfg)
    run(launch, recorder.inputs, placed)
    return placed.bytes, placed.start, placed.count
