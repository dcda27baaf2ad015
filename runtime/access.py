"""Which scratchpad entries and DRAM bytes an instruction reads and writes."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ..hw.config import Config
from ..hw.isa import AluOp, Mem, Op, depth, entry_bytes


class Access(NamedTuple):
    """`entries` (a slice or a sorted int64 array) of scratchpad `mem`, read or written."""

    mem: Mem
    write: bool
    entries: slice | np.ndarray


class DramAccess(NamedTuple):
    """`rows` rows of `nbytes` bytes each, `pitch` bytes apart, from byte `start` on, read or written."""

    write: bool
    start: int
    rows: int
    nbytes: int
    pitch: int


_SPACE = {Mem.ACC8: Mem.ACC, Mem.OUT: Mem.ACC, Mem.OUTQ: Mem.ACC}


def _touched(starts: np.ndarray, loops: tuple[tuple[int, int], ...]) -> np.ndarray:
    entries = np.unique(starts)
    for extent, step in loops:
        if extent > 1 and step:
            entries = np.unique(entries[:, None] + np.arange(extent, dtype=np.int64) * step)
    return entries


def _compact(entries: np.ndarray) -> slice | np.ndarray:
    if len(entries) and entries[-1] - entries[0] + 1 == len(entries):
        return slice(int(entries[0]), int(entries[-1]) + 1)
    return entries


@lru_cache(maxsize=4096)
def _index_set(starts: bytes, loops: tuple[tuple[int, int], ...], per_entry: int) -> slice | np.ndarray:
    indices = _touched(np.frombuffer(starts, np.int64), loops)
    return _compact(indices if per_entry == 1 else np.unique(indices // per_entry))


def _indexed(f: dict[str, int], uops: np.ndarray, column: int, name: str, per_entry: int = 1) -> slice | np.ndarray:
    loops = ((f["iter_out"], f[f"{name}_out"]), (f["iter_in"], f[f"{name}_in"]))
    return _index_set(np.ascontiguousarray(uops[:, column]).tobytes(), loops, per_entry)


def tile_entries(f: dict[str, int]) -> int:
    """Scratchpad entries that a decoded LOAD, LOADP or STORE covers, padding included."""
    if f["x_size"] == 0:
        return 0
    if f["op"] == Op.STORE:
        return f["x_size"] * f["y_size"]
    if f["mem"] == Mem.UOP:
        return f["x_size"]
    if f["mem"] == Mem.PAR:
        return f["x_size"] * f["y_size"]
    rows = f["y_pad_0"] + f["y_size"] + f["y_pad_1"]
    return rows * (f["x_pad_0"] + f["x_size"] + f["x_pad_1"])


def scratchpad_accesses(cfg: Config, f: dict[str, int], uops: np.ndarray) -> list[Access]:
    """What the decoded instruction `f` touches on chip; `uops`, int64 (n, 3), are those it executes."""
    op = Op(f["op"])
    if op == Op.FINISH:
        return []
    if op in (Op.LOAD, Op.LOADP, Op.STORE):
        return _transferred(f)
    if not len(uops) or not f["iter_out"] or not f["iter_in"]:
        return []
    out = [
        Access(Mem.UOP, False, slice(f["uop_bgn"], f["uop_end"])),
        Access(Mem.ACC, True, _indexed(f, uops, 0, "dst")),
    ]
    if op == Op.ALU:
        if f["alu_op"] == AluOp.RESCALE:
            out.append(Access(Mem.PAR, False, slice(f["imm"], f["imm"] + 1)))
        elif not f["use_imm"]:
            out.append(Access(Mem.ACC, False, _indexed(f, uops, 1, "src")))
    elif not f["reset"]:
        out.append(Access(Mem.INP, False, _indexed(f, uops, 1, "src")))
        rows = cfg.block_in if op == Op.DWGEMM else 1  # of one entry, counted by the weight index
        out.append(Access(Mem.WGT, False, _indexed(f, uops, 2, "wgt", rows)))
    return out


def _transferred(f: dict[str, int]) -> list[Access]:
    n, mem = tile_entries(f), Mem(f["mem"])
    if not n:
        return []
    out = [Access(_SPACE.get(mem, mem), f["op"] != Op.STORE, slice(f["sram_base"], f["sram_base"] + n))]
    if mem == Mem.OUTQ:
        rows = f["y_size"] if f["par_step"] else 1
        out.append(Access(Mem.PAR, False, _compact(f["par_base"] + f["par_step"] * np.arange(rows, dtype=np.int64))))
    return out


def dram_access(cfg: Config, f: dict[str, int]) -> DramAccess | None:
    """The DRAM bytes of the decoded instruction `f`, relative to where its `dram_base` counts from."""
    op = Op(f["op"])
    if op not in (Op.LOAD, Op.LOADP, Op.STORE) or not f["x_size"]:
        return None
    mem, size = Mem(f["mem"]), entry_bytes(cfg, Mem(f["mem"]))
    rows, pitch = (1, 0) if mem == Mem.UOP else (f["y_size"], f["x_stride"] * size)
    if not rows:
        return None
    return DramAccess(op == Op.STORE, f["dram_base"] * size, rows, f["x_size"] * size, pitch)


def out_of_range(cfg: Config, accesses: list[Access]) -> str | None:
    """What lies outside its scratchpad, as text, or None."""
    for a in accesses:
        span = (a.entries.start, a.entries.stop - 1) if isinstance(a.entries, slice) else a.entries[[0, -1]].tolist()
        wrong = [entry for entry in span if not 0 <= entry < depth(cfg, a.mem)]
        if wrong:
            verb = "writes" if a.write else "reads"
            return f"{verb} {a.mem.name} entry {wrong[-1]}, but {cfg.name} has {depth(cfg, a.mem)}"
    return None
