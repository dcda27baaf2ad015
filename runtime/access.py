"""The scratchpad entries and DRAM bytes that an instruction reads and writes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ..hw.config import Config
from ..hw.isa import (
    INSTRUCTIONS,
    OPERATIONS,
    SCRATCHPADS,
    AluOp,
    Instruction,
    Mem,
    Op,
    depth,
    entry_bytes,
    instruction,
    room,
    row_of,
    table_span,
)
from .arrays import Array
from .symbols import Symbol

_MOST_SPANS = 1 << 16  # per access with a symbol, which bounds the time of comparisons


class Access(NamedTuple):
    """`entries` (a slice or a sorted int64 array) of scratchpad `mem`, read or written.

    `table`: entries of PAR may also belong to tables, which follow the parameters. `misplaced` is an accumulator that
    unit `ternary` cannot name, because it is not in the first plane of its bank; -1 for none. `updates`: the
    instruction reads the entries before it writes them.
    """

    mem: Mem
    write: bool
    entries: slice | Array
    table: bool = False
    misplaced: int = -1
    updates: bool = False

    @property
    def reach(self) -> tuple[int, int]:
        """(first entry, end), the end exclusive."""
        if isinstance(self.entries, slice):
            return self.entries.start, self.entries.stop
        return (int(self.entries[0]), int(self.entries[-1]) + 1) if len(self.entries) else (0, 0)


class DramAccess(NamedTuple):
    """`rows` rows of `nbytes` bytes each, `pitch` bytes apart, from byte `start` on, read or written.

    `symbol`, whose steps are in bytes, adds an offset to `start` that depends on its value in a run.
    """

    write: bool
    start: int
    rows: int
    nbytes: int
    pitch: int
    symbol: Symbol | None = None

    @property
    def end(self) -> int:
        """End address (exclusive) for the largest value of the symbol."""
        return self.start + (self.rows - 1) * self.pitch + self.nbytes + (self.symbol.most if self.symbol else 0)

    def spans(self) -> Array:
        """First byte and end (exclusive) of every row, int64 (n, 2).

        With a symbol: the union over all its values, ascending; one span, gaps included, instead of more than
        `_MOST_SPANS`.
        """
        return _spans(self.rows, self.nbytes, self.pitch, self.symbol) + self.start

    def sure_spans(self) -> Array:
        """Spans, as of `spans`, of bytes that are touched for every value of the symbol; some may be missing."""
        if self.symbol is None:
            return self.spans()
        return _sure_spans(self.rows, self.nbytes, self.pitch, self.symbol) + self.start


@lru_cache(32)  # independent of the start address
def _spans(rows: int, nbytes: int, pitch: int, symbol: Symbol | None) -> Array:
    if symbol is None:
        firsts = np.arange(rows, dtype=np.int64) * pitch
        return np.stack([firsts, firsts + nbytes], axis=1)
    end = (rows - 1) * pitch + nbytes + symbol.most
    if pitch == nbytes:
        rows, nbytes = 1, rows * nbytes
    firsts = np.arange(rows, dtype=np.int64) * pitch
    moved = joined(np.stack([offsets := symbol.offsets(), offsets + nbytes], axis=1))
    if len(moved) * rows > _MOST_SPANS:
        return np.array([[0, end]], np.int64)
    return joined((firsts[:, None, None] + moved).reshape(-1, 2))


@lru_cache(32)
def _sure_spans(rows: int, nbytes: int, pitch: int, symbol: Symbol) -> Array:
    if pitch == nbytes:
        rows, nbytes = 1, rows * nbytes
    firsts = np.arange(rows, dtype=np.int64) * pitch
    offsets = symbol.offsets()
    spans = np.stack([firsts + offsets[-1], firsts + offsets[0] + nbytes], axis=1)
    return spans[spans[:, 0] < spans[:, 1]]


def joined(spans: Array) -> Array:
    """The union of `spans`, int64 (n, 2), as spans that do not touch, ascending."""
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    ends = np.maximum.accumulate(spans[:, 1])
    new = np.r_[True, spans[1:, 0] > ends[:-1]]
    return np.stack([spans[new, 0], ends[np.r_[new[1:], True]]], axis=1)


def _touched(starts: Array, loops: tuple[tuple[int, int], ...], last: int) -> Array:
    """The distinct indices `starts` within loops (trips, step), none of which is above `last`.

    Time and memory: one flag per index up to `last`, for every bit of the trips, which are doubled step by step.
    """
    first = int(starts.min())
    flags = np.zeros(last - first + 1, bool)
    flags[starts - first] = True
    for trips, step in loops:
        done = 1
        while step and done < trips:
            more = min(done, trips - done)
            flags[more * step :] |= flags[: -more * step]
            done += more
    return np.flatnonzero(flags).astype(np.int64) + first


def _compact(entries: Array) -> slice | Array:
    if len(entries) and entries[-1] - entries[0] + 1 == len(entries):
        return slice(int(entries[0]), int(entries[-1]) + 1)
    return entries


def _entries(starts: bytes, loops: tuple[tuple[int, int], ...], last: int, per_entry: int) -> slice | Array:
    indices = _touched(np.frombuffer(starts, np.int64), loops, last)
    return _compact(indices if per_entry == 1 else np.unique(indices // per_entry))


@lru_cache(maxsize=4096)
def _known_entries(starts: bytes, loops: tuple[tuple[int, int], ...], last: int, per_entry: int) -> slice | Array:
    entries = _entries(starts, loops, last, per_entry)
    if isinstance(entries, np.ndarray):
        entries.flags.writeable = False
    return entries


_KNOWN = 1 << 11  # micro-ops and entries of what is remembered: large sets would fill the host's memory


_STEPS = {name: (f"{name}_out", f"{name}_in") for name in ("dst", "src", "wgt")}
_ONE = bytes(8)  # the starts of a kernel of one micro-op


def _indexed(
    f: dict[str, int], uops: Array, column: int, name: str, depth: int, per_entry: int = 1, neighbours: int = 1
) -> slice | Array:
    """The entries that an index of `uops` names in the loops of `f`, `per_entry` indices each, `neighbours` from it on.

    Where one of them is beyond `depth`, all from the smallest to the largest: they are not counted one by one. Kernels
    of one shape differ in their first entry alone: what they touch is entries once, and moved there.
    """
    outer, inner = _STEPS[name]
    loops = ((f["iter_out"], f[outer]), (f["iter_in"], f[inner]), (neighbours, 1))
    last = sum([(trips - 1) * step for trips, step in loops])
    if len(uops) == 1 and per_entry == 1:  # most kernels of some programs: without arrays
        base, key = int(uops[0, column]), _ONE
    else:
        starts = uops[:, column]
        base = int(starts.min()) // per_entry  # the first entry; what follows counts from its first index
        starts = starts - base * per_entry
        last, key = last + int(starts.max()), starts.tobytes()
    if last // per_entry + base >= depth:
        return slice(base, base + last // per_entry + 1)
    entries = (_known_entries if len(uops) + last < _KNOWN else _entries)(key, loops, last, per_entry)
    return slice(entries.start + base, entries.stop + base) if isinstance(entries, slice) else entries + base


def _row(f: dict[str, int]) -> Instruction:
    return row_of(f["op"], f.get("mem"))


def tile_entries(f: dict[str, int]) -> int:
    """Scratchpad entries that a decoded LOAD, LOADP or STORE covers, padding included."""
    row = _row(f)
    if f["x_size"] == 0 or row.one_row:
        return f["x_size"]
    if not row.pads:
        return f["x_size"] * f["y_size"]
    rows = f["y_pad_0"] + f["y_size"] + f["y_pad_1"]
    return rows * (f["x_pad_0"] + f["x_size"] + f["x_pad_1"])


def scratchpad_accesses(cfg: Config, f: dict[str, int], uops: Array) -> list[Access]:
    """Scratchpad accesses of the decoded instruction `f`, which executes the micro-ops `uops`, int64 (n, 3).

    Entries outside their scratchpad are included; `out_of_range` finds them.
    """
    row = _row(f)
    if row.mem is not None:
        return _transferred(row, f)
    if not row.loops or not len(uops) or not f["iter_out"] or not f["iter_in"]:
        return []
    rooms = _rooms(cfg)
    accumulators = _indexed(f, uops, 0, "dst", rooms[Mem.ACC, False])
    if row.op == Op.TERNARY:
        return _ternary(cfg, f, uops, accumulators)
    updates = row.format == "ALU" or not (f["reset"] or f.get("overwrite"))
    out = [Access(Mem.UOP, False, slice(f["uop_bgn"], f["uop_end"]))]
    out.append(Access(Mem.ACC, True, accumulators, updates=updates))
    if row.format == "ALU":
        operation = OPERATIONS[f["alu_op"]] if row.op == Op.ALU else None
        if operation and operation.op == AluOp.LOOKUP:
            out.append(Access(Mem.PAR, False, table_span(cfg, f["imm"]), True))
        elif operation and operation.reads is not None:
            out.append(Access(operation.reads, False, slice(f["imm"], f["imm"] + 1)))
        elif not f["use_imm"]:
            out.append(Access(Mem.ACC, False, _indexed(f, uops, 1, "src", rooms[Mem.ACC, False])))
    elif not f["reset"]:
        taps = 1 + f.get("extra_taps", 0)
        out.append(Access(Mem.INP, False, _indexed(f, uops, 1, "src", rooms[Mem.INP, False], neighbours=taps)))
        # rows of one entry, because the weight index counts rows
        rows = cfg.block_in // (cfg.row_taps if taps > 1 else 1) if row.op == Op.DWGEMM else 1
        out.append(Access(Mem.WGT, False, _indexed(f, uops, 2, "wgt", rooms[Mem.WGT, False], rows)))
    return out


def _ternary(cfg: Config, f: dict[str, int], uops: Array, first: slice | Array) -> list[Access]:
    """The accesses of a TERNARY: its micro-ops name accumulators of the first plane, `first`; it writes all planes."""
    all_planes, misplaced = first, -1
    if not isinstance(first, slice) or first.stop <= cfg.acc_depth:
        entries = first if not isinstance(first, slice) else np.arange(int(first.start), int(first.stop))
        beyond = entries[entries % cfg.bank_depth >= cfg.plane_depth]
        misplaced = int(beyond[0]) if len(beyond) else -1
        if cfg.ternary_blocks > 1 and misplaced < 0:
            all_planes = np.sort((entries + np.arange(cfg.ternary_blocks)[:, None] * cfg.plane_depth).reshape(-1))
    updates = not (f["reset"] or f.get("overwrite"))
    out = [Access(Mem.TUOP, False, slice(f["uop_bgn"], f["uop_end"]))]
    out.append(Access(Mem.ACC, True, all_planes, False, misplaced, updates))
    if not f["reset"]:
        out.append(Access(Mem.INP, False, _indexed(f, uops, 1, "src", cfg.inp_depth)))
        out.append(Access(Mem.TWGT, False, _indexed(f, uops, 2, "wgt", cfg.twgt_depth)))
    return out


def _transferred(row: Instruction, f: dict[str, int]) -> list[Access]:
    n = tile_entries(f)
    if not n or row.scratchpad is None:
        return []
    loads = row.loads is not None
    out = [Access(row.scratchpad, loads, slice(f["sram_base"], f["sram_base"] + n), loads)]
    if "par_base" in f:
        rows = f["y_size"] if f["par_step"] else 1
        out.append(Access(Mem.PAR, False, _compact(f["par_base"] + f["par_step"] * np.arange(rows, dtype=np.int64))))
    return out


def dram_access(cfg: Config, f: dict[str, int], symbol: Symbol | None = None) -> DramAccess | None:
    """The DRAM bytes that the decoded instruction `f` accesses, relative to its buffer; None where it accesses none.

    `symbol` moves its address, in entries.
    """
    row = instruction(f["op"], f.get("mem"))
    if row is None or row.mem is None or not f["x_size"]:
        return None
    access = row_access(cfg, row, f)
    if symbol is not None:
        access = access._replace(symbol=symbol.scaled(entry_bytes(cfg, row.mem)))
    return access if access.rows else None


def row_access(cfg: Config, row: Instruction, f: Mapping[str, Any]) -> DramAccess:
    """The DRAM bytes of fields `f`, integers or arrays of them, of an instruction of `row`, which names a memory.

    It accesses nothing where `x_size` or the number of rows is 0.
    """
    assert row.mem is not None
    size = entry_bytes(cfg, row.mem)
    rows, pitch = (1, 0) if row.one_row else (f["y_size"], f["x_stride"] * size)
    return DramAccess(row.stores is not None, f["dram_base"] * size, rows, f["x_size"] * size, pitch)


def dram_cells(access: DramAccess, granule: int) -> slice | Array:
    """The cells of `granule` bytes that a DRAM access touches, for any value of its symbol."""
    if access.symbol is not None:
        spans: list[list[int]] = (access.spans() // granule).tolist()
        return slice(*spans[0]) if len(spans) == 1 else np.concatenate([np.arange(*span) for span in spans])
    first, per_row = access.start // granule, -(-access.nbytes // granule)
    if access.rows == 1 or access.pitch == access.nbytes:
        return slice(first, first + per_row * access.rows)
    starts = (access.start + np.arange(access.rows, dtype=np.int64) * access.pitch) // granule
    return (starts[:, None] + np.arange(per_row)).reshape(-1)


def dram_granule(cfg: Config) -> int:
    """The largest number of bytes that divides every entry that `cfg` moves, and so every DRAM access."""
    moved = (row.mem for row in INSTRUCTIONS if row.mem is not None and not row.missing(cfg))
    return math.gcd(*(entry_bytes(cfg, mem) for mem in moved))


@lru_cache(8)
def _rooms(cfg: Config) -> dict[tuple[Mem, bool], int]:
    """The number of entries of each scratchpad, without (False) and with (True) tables."""
    return {(mem, table): (room if table else depth)(cfg, mem) for mem in SCRATCHPADS for table in (False, True)}


def out_of_range(cfg: Config, accesses: list[Access]) -> str | None:
    """A message for the first of `accesses` that lies outside its scratchpad; None where all lie inside."""
    rooms = _rooms(cfg)
    for a in accesses:
        touched, entries = a.entries, rooms[a.mem, a.table]
        low, high = (touched.start, touched.stop - 1) if isinstance(touched, slice) else touched[[0, -1]].tolist()
        if not (0 <= low < entries and 0 <= high < entries):
            wrong = [entry for entry in (low, high) if not 0 <= entry < entries]
            verb = "writes" if a.write else "reads"
            return f"{verb} {a.mem.name} entry {wrong[-1]}, but {cfg.name} has {entries}"
        if a.misplaced >= 0:
            plane, bank = cfg.plane_depth, cfg.bank_depth
            return f"names ACC entry {a.misplaced}, but unit ternary takes the first {plane} of every {bank} alone"
    return None
