"""Random legal programs, to test the recorder and to compare definition, behavioural model and circuit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..hw.config import PRESETS, TERNARY_BITS, Config
from ..hw.isa import PAR, AluOp, Mem, Op
from ..hw.units import TERNARY_BANKS
from ..runtime.device import Stats
from ..runtime.launch import Launch
from ..runtime.loader import run
from ..runtime.program import Program
from .idlers import with_idlers, within
from .memory import DeviceMemory
from .random_walk import ENTRIES, Pads, Walk

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
_TABLES = PRESETS["tiny"].extensions | {"lookup", "lane_reduce"}
WIDE = PRESETS["tiny"].replace(
    name="wide", axi_bits=128, batch=4, inp_bytes=2048, acc_bytes=4096, load_ports=2, tables=2, extensions=_TABLES
)
EIGHT = {"block_in": 8, "block_out": 8, "wgt_bytes": 1 << 12, "acc_bytes": 1 << 12, "ppu_lanes": 8}
ROWS = PRESETS["tiny"].replace(
    name="rows", **EIGHT, dsp_packing=True, tables=1, extensions=_TABLES | {"depthwise_rows"}
)

ODD_TWO = ODD.replace(
    name="odd_two",
    acc_bytes=1 << 12,
    queue_depth=4,
    units=("gemm", "ternary"),
    acc_banks=4,
    ternary_blocks=2,
    twgt_bytes=1 << 9,
    extensions=ODD.extensions - {"acc8", "rescale"},
)


class Recorder:
    """Records a program for `cfg` on random inputs `data`, one buffer per loadable memory, and one output buffer.

    `rng` draws the data and every other random value; `extensions` are those of `cfg` except `without`. A subclass may
    observe the calls.
    """

    def __init__(self, cfg: Config, seed: int, words: int = 4096, *, without: frozenset[str] = frozenset()):
        self.cfg, self.program, self.rng = cfg, Program(cfg), np.random.default_rng(seed)
        self.extensions = cfg.extensions - without
        acc = (cfg.batch, cfg.block_out)
        shapes = {Mem.INP: (cfg.batch, cfg.block_in), Mem.WGT: (cfg.block_out, cfg.block_in), Mem.ACC: acc}
        shapes |= {Mem.ACC8: acc, Mem.PAR: (), Mem.TWGT: (cfg.ternary_blocks * cfg.block_out, cfg.block_in)}
        bits = {Mem.INP: cfg.inp_bits, Mem.WGT: cfg.wgt_bits, Mem.ACC: 32, Mem.ACC8: 8, Mem.PAR: 32}
        bits[Mem.TWGT] = TERNARY_BITS
        self.data = {
            mem: self._random(bits[mem], shape)
            for mem, shape in shapes.items()
            if within(self.extensions, cfg.units, {"op": Op.LOAD, "mem": mem})
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
        taps: int = 1,
    ) -> None:
        """Micro-ops (n, 3) within `loops`."""
        mode = {"reset": reset, "overwrite": overwrite, "depthwise": depthwise}
        self.program.gemm_uops(uops, loops, **mode, taps=taps)

    def ternary(
        self, loops: Sequence[tuple[int, int, int, int]], uops: np.ndarray, reset: bool = False, overwrite: bool = False
    ) -> None:
        """Micro-ops (n, 3) within `loops`, on unit `ternary`."""
        self.program.ternary_uops(uops, loops, reset=reset, overwrite=overwrite)

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

    def reload(self, mem: Mem, sram: int, offset: int, y: int, x: int, stride: int) -> None:
        """Load bytes that the program stored before, as entries of `mem`; `offset` counts those, too."""
        self.program.load(mem, sram, self.target, offset, y_size=y, x_size=x, x_stride=stride)


def random_parameters(cfg: Config, rng: np.random.Generator, entries: int) -> np.ndarray:
    """PAR entries, int32 (entries, block_out, 3): every field is anywhere in its range, often at a limit.

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


def record_random(recorder: Recorder, length: int = 25, kind: type[Walk] = Walk) -> None:
    """Record `length` random instructions, between loads that fill the scratchpads and a store of the results."""
    cfg, walk = recorder.cfg, kind(recorder)
    recorder.load(Mem.INP, 0, 0, x=min(ENTRIES, cfg.inp_depth))
    recorder.load(Mem.WGT, 0, 0, x=walk.weights)
    recorder.load(Mem.ACC, walk.first, 0, x=walk.limit)
    if Mem.PAR in recorder.buffers:
        recorder.load(Mem.PAR, 0, 0, x=min(ENTRIES, cfg.par_entries))
    if "lookup" in recorder.extensions:
        recorder.load(Mem.PAR, cfg.par_entries, 0, x=min(ENTRIES, cfg.tables * cfg.table_entries))
    if "ternary" in cfg.units:
        recorder.load(Mem.TWGT, 0, 0, x=walk.ternary_weights)
        everything = [(TERNARY_BANKS, cfg.bank_depth, 0, 0), (cfg.plane_depth, 1, 0, 0)]
        recorder.ternary(everything, np.zeros((1, 3), int), reset=True)
        recorder.load(Mem.ACC, walk.first, 0, x=walk.limit)
    for _ in range(length):
        walk.step()
    if "ternary" in cfg.units:
        recorder.store(0, 300, x=cfg.acc_depth)
    recorder.store(walk.first, 100, x=walk.limit)
    if Mem.PAR in recorder.buffers:
        recorder.store(walk.first, 200, x=walk.limit, par=0)


class _Capture(DeviceMemory):
    """A device that stores the program instead of running it."""

    def __init__(self, cfg: Config):
        super().__init__(1 << 31)
        self.cfg, self.start, self.count = cfg, 0, 0

    def run(self, insn_address: int, insn_count: int) -> Stats:
        self.start, self.count = insn_address, insn_count
        return Stats()


def random_case(cfg: Config, seed: int, *, without: frozenset[str] = frozenset()) -> tuple[np.ndarray, int, int]:
    """(memory, address of the instructions, their number) of random program `seed`, ready to run.

    It uses the extensions of `cfg` except those in `without`.
    """
    recorder = Recorder(cfg, seed, without=without)
    record_random(recorder, int(recorder.rng.integers(5, 60)))
    launch = recorder.program.finish()
    if seed % 3 == 0:
        launch = with_idlers(launch, recorder.rng, 10, recorder.extensions)
    return image_of(launch, recorder.inputs)


def image_of(launch: Launch, inputs: dict[str, np.ndarray]) -> tuple[np.ndarray, int, int]:
    """(memory, address of the instructions, their number) of `launch` with `inputs`, ready to run."""
    capture = _Capture(launch.cfg)
    run(launch, inputs, capture)
    return capture.bytes, capture.start, capture.count
