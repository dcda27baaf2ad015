"""Random legal programs, to test the recorder and to compare definition, behavioural model and circuit."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod

import numpy as np

from ..hw.config import PRESETS, TERNARY_BITS, Config
from ..hw.isa import (
    INSTRUCTIONS,
    OPERATIONS,
    PADDABLE,
    PAR,
    AluOp,
    Isa,
    Mem,
    Op,
    Operation,
    depth,
    entry_bytes,
    instruction,
    loads_of,
    queue_of,
    room,
    row_of,
)
from ..hw.units import TERNARY_BANKS
from ..runtime.device import Stats
from ..runtime.launch import Launch
from ..runtime.loader import run
from ..runtime.program import Program
from .memory import DeviceMemory

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
        value = self._below(most) if most else self._value(row.format, "imm") if immediate else None
        self.to.alu(row.op, loops, uops, imm=value)


def within(extensions: frozenset[str], units: tuple[str, ...], f: dict[str, int]) -> bool:
    """True where `extensions` and `units` suffice for the instruction with the fields `f`."""
    row = row_of(f["op"], f.get("mem"))
    if row.unit and row.unit not in units:
        return False
    return extensions.issuperset(row.extensions + (OPERATIONS[f["alu_op"]].extensions if "alu_op" in f else ()))


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
    pads = {"x_size": 0, "y_size": 2, "y_pad_0": 1, "x_pad_1": 2}
    par = {"op": Op.LOAD, "mem": Mem.PAR, **far, "x_pad_0": 2}
    kinds += [("LOAD", par | {empty: 2}) for empty in ("x_size", "y_size")]
    kinds += [("STOREQ", {"op": Op.STORE, "mem": Mem.OUTQ, **far, "par_base": 1023, "x_size": 3})]
    kinds += [("LOAD", {"op": Op.LOAD, "mem": mem.id, **far, **pads}) for mem in (Mem.TWGT, Mem.TUOP)]
    kinds += [("TERNARY", {"op": Op.TERNARY, **once, empty: 0}) for empty in ("uop_end", "iter_out", "iter_in")]
    return kinds


def every_idler() -> list[tuple[str, dict[str, int]]]:
    """(format, fields) of instructions that do nothing, of every kind and for each reason."""
    kinds = []
    for row in INSTRUCTIONS:
        if row.mem is not None:
            kinds += [(row.format, row.fields | {"x_size": 0, "y_size": 1})]
            kinds += [(row.format, row.fields | {"x_size": 1, "y_size": 0})] * (not row.one_row and not row.empty)
        operations: list[dict[str, int]] = [{}]
        if row.op == Op.ALU:
            operations = [{"alu_op": op, "use_imm": 1} for op in OPERATIONS]
        for chosen in operations if row.loops else ():
            once = row.fields | chosen | {"uop_end": 1, "iter_out": 1, "iter_in": 1}
            form = OPERATIONS[chosen["alu_op"]].format if chosen else row.format
            kinds += [(form, once | {empty: 0}) for empty in ("uop_end", "iter_out", "iter_in")]
    return kinds


def with_idlers(
    launch: Launch,
    rng: np.random.Generator,
    count: int,
    extensions: frozenset[str],
    kinds: Sequence[tuple[str, dict[str, int]]] = (),
) -> Launch:
    """`launch` with `count` instructions that do nothing, without tokens, at random positions; some of `extensions`.

    `kinds` are (format, fields) of those to choose from; a few that are typical where there are none.
    """
    isa = Isa(launch.cfg)
    kinds = [kind for kind in kinds or _idlers() if within(extensions, launch.cfg.units, kind[1])]
    insn, reloc, queues = launch.insn, launch.reloc, [isa.queue(f) for f in isa.decode(launch.insn)]
    order = np.arange(len(insn))
    for _ in range(count):
        name, fields = kinds[int(rng.integers(len(kinds)))]
        queue = queue_of(fields["op"], fields.get("mem"))
        if queue not in queues:
            continue
        last = len(queues) - 1 - queues[::-1].index(queue)
        at = int(rng.integers(last + 1))  # FINISH is ordered behind the last one of each queue
        queues.insert(at, queue)
        insn = np.insert(insn, at, isa.formats[name].encode(1, **fields), axis=0)
        reloc, order = np.insert(reloc, at, -1).astype(np.int32), np.insert(order, at, -1)
    return Launch(launch.cfg, launch.name, insn, reloc, launch.buffers, patches=launch.patches.moved(order))


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
# two narrow ports, a clock of its own for the multipliers, and nothing that the post-processing unit does
PORTS = PRESETS["tiny"].replace(
    name="ports",
    axi_bits=32,
    load_ports=2,
    array_clock=2,
    extensions=PRESETS["tiny"].extensions - {"requant", "rescale"},
)
EIGHT = {"block_in": 8, "block_out": 8, "wgt_bytes": 1 << 12, "acc_bytes": 1 << 12, "ppu_lanes": 8}
ROWS = PRESETS["tiny"].replace(
    name="rows", **EIGHT, dsp_packing=True, tables=1, extensions=_TABLES | {"depthwise_rows"}
)
# an entry of weights of 4 bits is 9 beats, or 4.5 of two ports
FOUR = PRESETS["tiny"].replace(name="four", **EIGHT, axi_bits=32, extensions=PRESETS["tiny"].extensions | {"wgt4"})
FOUR_TWO = FOUR.replace(name="four_two", load_ports=2)
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
        acc, shapes = (cfg.batch, cfg.block_out), dict[Mem, tuple[int, ...]]()
        shapes |= {Mem.INP: (cfg.batch, cfg.block_in), Mem.WGT: (cfg.block_out, cfg.block_in), Mem.ACC: acc}
        shapes |= {Mem.ACC8: acc, Mem.PAR: (), Mem.TWGT: (cfg.ternary_blocks * cfg.block_out, cfg.block_in)}
        bits = {Mem.INP: cfg.inp_bits, Mem.WGT: cfg.wgt_bits, Mem.ACC: 32, Mem.ACC8: 8, Mem.PAR: 32}
        bits[Mem.TWGT] = TERNARY_BITS
        shapes[Mem.WGT4], bits[Mem.WGT4] = (cfg.wgt4_entry_bytes,), 8  # any bytes are scales and weights
        self.data = {
            mem: self._random(bits[mem], shape)
            for mem, shape in shapes.items()
            if within(self.extensions, cfg.units, loads_of(mem)[0].fields)
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
