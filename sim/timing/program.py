"""A program as the timing model sees it: queue, tokens, transfers and micro-op issues of every instruction."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...hw.config import Config
from ...hw.errors import ExecutionError, UnsupportedError
from ...hw.isa import (
    FLAGS,
    INSTRUCTIONS,
    LOADS,
    LOOPS,
    PADDABLE,
    STORES,
    Isa,
    Mem,
    Op,
    Queue,
    depth,
    entry_bytes,
    instruction,
    known_isa,
    ops_of,
    rows_of,
)
from ...hw.rtl.latencies import BURST_BEATS, REQUEST_DEPTH, capacity
from ...hw.stages import bus_bits
from ...hw.units import queues
from .issues import PLACE, Kernels, UopReader

_FLAGS = np.uint64(sum(1 << 3 + k for k in range(len(FLAGS))))
REQUESTS_AHEAD = capacity(REQUEST_DEPTH)  # that wait between the mover's planner and the read port
SKIPPABLE = ("gemm", "alu", "dma")


def _queue(op: int, mem: int) -> int:
    """The queue of an instruction, declared or not."""
    row = instruction(op, mem) or next(iter(rows_of(op)), None)
    return Queue.COMPUTE if row is None else row.queue


_QUEUES = np.array([[_queue(op, mem) for mem in range(8)] for op in range(8)])
_ONE_ROW = [row.mem for row in INSTRUCTIONS if row.one_row and row.mem is not None]
_PADDED = list(PADDABLE)
_UOPS = (Mem.UOP, Mem.TUOP)  # of the micro-ops of the compute unit, and of unit `ternary`


class Move(NamedTuple):
    """A LOAD: `rows` requests of `length` units from unit `first` on, `step` apart; a beat is `per_beat` units.

    A unit is a beat, or an entry where that is smaller; for WGT4 the scales of an entry, where these are smaller. Units
    of a beat are written one per cycle, or all of them `at_once`. `lead`, `between` and `tail` are the padding entries
    before, between and after the rows (`between` in all, for rows adjacent in DRAM); `final` are the cycles of the last
    entry.
    `low` and `high` are the first and the last scratchpad entry.
    Rows of whole bursts are merged into one request here, like rows without gaps. The circuit's planner issues one for
    each row, ahead of the read port: `ahead` are the beats of these rows that are still to come when the planner is
    done, 0 where nothing was merged.
    """

    mem: int
    rows: int
    first: int
    step: int
    length: int
    per_beat: int
    lead: int
    between: int
    tail: int
    final: int
    low: int
    high: int
    empty: bool
    ahead: int
    at_once: bool


class Write(NamedTuple):
    """A STORE: `rows` of `entries` accumulators from `base` on, to units from `first` on, `step` apart (see `Move`).

    `quantised`: through the post-processing unit.
    """

    rows: int
    entries: int
    base: int
    first: int
    step: int
    length: int
    per_beat: int
    quantised: bool


@dataclass
class Columns:
    """A program by instruction: `queue`, `flags` (by flag), `work`; `order` are the positions of each queue."""

    count: int
    queue: np.ndarray
    flags: list[list[bool]]
    work: list[Any]  # Move, Job or Write, as the queue has them
    order: list[list[int]]
    finish: int
    bytes_moved: np.ndarray


MicroOps = dict[Mem, np.ndarray]  # on chip, uint32 (n,) of each buffer


def no_micro_ops(cfg: Config) -> MicroOps:
    """The micro-op buffers before the first program."""
    return {mem: np.zeros(cfg.uop_depth, np.uint32) for mem in _UOPS}


def columns(
    cfg: Config,
    words: np.ndarray,
    uops: UopReader,
    skip: Iterable[str] = (),
    *,
    fast: bool = True,
    held: MicroOps | None = None,
) -> Columns:
    """The columns of the instructions `words`, uint64 (n, 2), with absolute addresses.

    `uops` reads micro-ops from DRAM, `held` are those on chip, which the program changes; by default there are none.
    `skip` names what takes no time: `gemm`, `alu`, `dma`, one or several. With
    `fast`, equal instructions are looked at once. Raises `ExecutionError` for a program without FINISH,
    `UnsupportedError` for another name in `skip`.
    """
    skip = frozenset((skip,) if isinstance(skip, str) else skip)
    for name in sorted(skip - set(SKIPPABLE)):
        raise UnsupportedError(f"skip: {name!r} cannot be skipped; {', '.join(SKIPPABLE)} can")
    isa = known_isa(cfg)
    words = np.ascontiguousarray(words, np.uint64).reshape(-1, 2)
    n = len(words)
    low = words[:, 0].astype(np.int64)
    op, mem = low & 7, low >> 7 & 7
    queue = _QUEUES[op, mem]
    flags = [(low >> 3 + k & 1).astype(bool).tolist() for k in range(len(FLAGS))]
    work: list = [PLACE] * n
    moved = np.zeros(n, np.int64)
    for kind in LOADS:
        rows = np.flatnonzero(op == kind)
        if len(rows):
            fields = isa.formats[kind.name].decode(words[rows])
            fields["mem"] = _loaded(kind, fields["mem"])
            _moves(cfg, fields, rows, work, moved, "dma" in skip)
    for kind in STORES:
        rows = np.flatnonzero(op == kind)
        if len(rows):
            _writes(cfg, isa.formats[kind.name].decode(words[rows]), rows, work, moved, "dma" in skip)
    kernels = {mem: Kernels(cfg, uops, words) for mem, words in (held or no_micro_ops(cfg)).items()}
    _jobs(isa, words, op, work, kernels, skip, fast)
    ends = np.flatnonzero(op == Op.FINISH)
    if not len(ends):
        raise ExecutionError("the program has no FINISH, so it does not end; finish it")
    order = [np.flatnonzero(queue == q).tolist() for q in queues(cfg)]
    return Columns(n, queue, flags, work, order, int(ends[0]), moved)


def _units(cfg: Config, mem: int) -> tuple[int, int]:
    """(units per entry, units per beat) of transfers of `mem`."""
    bits, beat = entry_bytes(cfg, Mem(mem)) * 8, bus_bits(cfg, mem)
    if mem == Mem.WGT4:
        scales = bits // (cfg.block_in + 1)
        return (bits // min(scales, beat), max(beat // scales, 1))
    return (bits // beat, 1) if bits >= beat else (1, beat // bits)


@functools.lru_cache(8)
def _sizes(cfg: Config) -> np.ndarray:
    """Units per entry, units per beat and bytes per entry of the memories of `cfg`, by number, int64 (3, numbers)."""
    sizes = np.ones((3, max(Mem) + 1), np.int64)
    for mem in (mem for mem in Mem if depth(cfg, mem)):
        sizes[:, mem] = *_units(cfg, mem), entry_bytes(cfg, mem)
    return sizes


def _loaded(op: int, ids: np.ndarray) -> np.ndarray:
    """The memories that instructions of opcode `op` with these ids fill."""
    rows = [instruction(op, k) for k in range(8)]
    return np.array([k if row is None or row.mem is None else row.mem for k, row in enumerate(rows)])[ids]


def _moves(cfg: Config, f: dict, at: np.ndarray, work: list, moved: np.ndarray, skip: bool) -> None:
    flat, padded = np.isin(f["mem"], _ONE_ROW), np.isin(f["mem"], _PADDED)
    pads = {k: np.where(padded, f[k], 0) for k in ("x_pad_0", "x_pad_1", "y_pad_0", "y_pad_1")}
    x, y = f["x_size"], np.where(flat, 1, f["y_size"])
    dense = flat | (f["x_stride"] == x)
    empty = x == 0
    width, height = pads["x_pad_0"] + x + pads["x_pad_1"], pads["y_pad_0"] + y + pads["y_pad_1"]
    nothing = empty | (height == 0)
    rows = np.where(nothing | (y == 0), 0, np.where(dense, 1, y))
    unit, per_beat, nbytes = _sizes(cfg)[:, f["mem"]]
    side = pads["x_pad_0"] + pads["x_pad_1"]
    lead = np.where(rows == 0, np.where(nothing, 1, width * height), pads["y_pad_0"] * width + pads["x_pad_0"])
    between = np.where(rows == 0, 0, side * np.where(dense, y - 1, np.minimum(y - 1, 1)))
    tail = np.where(rows == 0, 0, pads["x_pad_1"] + pads["y_pad_1"] * width)
    length = np.where(dense, x * y, x) * unit
    moved[at] = np.where(nothing, 0, x * y * nbytes)
    cells = np.where(nothing, 0, width * height)
    if skip:
        rows, lead, between, tail = rows * 0, rows * 0 + 1, rows * 0, rows * 0
    first, step = f["dram_base"] * unit, f["x_stride"] * unit
    whole = (rows > 1) & (per_beat == 1) & (between == 0) & ((first | step | length) % BURST_BEATS == 0)
    ahead = np.where(whole, np.minimum(rows - 1, REQUESTS_AHEAD) * length, 0)
    rows, length = np.where(whole, 1, rows), np.where(whole, rows * length, length)
    # an entry that begins within a beat has its scales there, with the end of the entry before
    at_once, last = (f["mem"] == Mem.WGT4) & (per_beat > 1), f["dram_base"] + (y - 1) * f["x_stride"] + x - 1
    final = np.where(at_once, unit // 2 + (last % 2 == 0) + (length == unit) * (last % 2), unit)
    fields = (f["mem"], rows, first, step, length, per_beat, lead, between, tail)
    fields += (np.where(tail > 0, 1, final), f["sram_base"], f["sram_base"] + cells - 1, empty, ahead, at_once)
    for k, move in zip(at.tolist(), map(Move, *(v.tolist() for v in fields))):
        work[k] = move


def _writes(cfg: Config, f: dict, at: np.ndarray, work: list, moved: np.ndarray, skip: bool) -> None:
    x, y = f["x_size"], f["y_size"]
    dense = x == f["x_stride"]
    entries = np.where(y == 0, 0, np.where(dense, x * y, x))
    unit, per_beat = _units(cfg, Mem.OUT)
    moved[at] = x * y * cfg.out_entry_bytes
    if skip:
        entries = entries * 0
    rows = np.where(dense | (entries == 0), 1, y)
    step = f["x_stride"] * unit
    beat = np.full_like(rows, per_beat)
    fields = (rows, entries, f["sram_base"], f["dram_base"] * unit, step, entries * unit, beat, f["mem"] == Mem.OUTQ)
    for k, write in zip(at.tolist(), map(Write, *(v.tolist() for v in fields))):
        work[k] = write


def _jobs(
    isa: Isa,
    words: np.ndarray,
    op: np.ndarray,
    work: list,
    kernels: dict[Mem, Kernels],
    skip: Iterable[str],
    fast: bool,
) -> None:
    """The jobs of GEMM, ALU and TERNARY, in program order: their accumulators depend on the micro-ops loaded so far."""
    known, fields = {}, {}
    ids = (words[:, 0] >> np.uint64(7) & np.uint64(7)).astype(int)
    loads = (op == Op.LOAD) & np.isin(_loaded(Op.LOAD, ids), _UOPS)
    at = np.flatnonzero(loads | np.isin(op, LOOPS))
    bare = words[at] & np.array([~_FLAGS, ~np.uint64(0)], np.uint64)
    keys = list(zip(*bare.T.tolist()))
    first = dict(zip(reversed(keys), range(len(keys) - 1, -1, -1)))  # instructions that differ
    rows = np.array(list(first.values()), int)
    for kind in (Op.LOAD, *LOOPS):
        of_kind = rows[op[at[rows]] == kind] if kind != Op.LOAD else rows[loads[at[rows]]]
        if len(of_kind):
            skipped = kind != Op.LOAD and ("alu" if kind in ops_of("ALU") else "gemm") in skip
            for k, f in zip(of_kind.tolist(), isa.decode(bare[of_kind])):
                fields[keys[k]] = kind, skipped, f
    for k, key in zip(at.tolist(), keys):
        job = known.get(key) if fast else None
        if job is None:
            kind, skipped, f = fields[key]
            if kind == Op.LOAD:
                mem = Mem.UOP if f["mem"] == Mem.UOP else Mem.TUOP
                if kernels[mem].load(f["sram_base"], f["dram_base"], f["x_size"]):
                    known.clear()
                continue
            mem = Mem.TUOP if kind == Op.TERNARY else Mem.UOP
            job = known[key] = PLACE if skipped else kernels[mem].job(kind, f)
        work[k] = job
