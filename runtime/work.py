"""The work of a program, counted without executing it: the same numbers for every device."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..hw.config import Config
from ..hw.isa import Isa, Mem, Op, entry_bytes, instruction
from .device import Stats


def count_work(stats: Stats, cfg: Config, entry_bytes: Mapping[Mem, int], f: dict[str, int]) -> None:
    """Add to `stats` the micro-ops, products and bytes of the decoded instruction `f`."""
    if "uop_bgn" in f:
        uops = max(0, f["uop_end"] - f["uop_bgn"]) * f["iter_out"] * f["iter_in"]
        stats.uops += uops
        if "wgt_out" in f and not f["reset"]:
            stats.macs += uops * (cfg.macs_per_cycle if f["op"] == Op.GEMM else cfg.lanes)
    elif f.get("x_size"):
        row = instruction(f["op"], f["mem"])
        assert row is not None and row.mem is not None
        rows = 1 if row.one_row else f["y_size"]
        moved = stats.bytes_loaded if row.stores is None else stats.bytes_stored
        moved[row.mem.name] += rows * f["x_size"] * entry_bytes[row.mem]


def program_stats(isa: Isa, insn: np.ndarray) -> Stats:
    """The counts of one run of `insn`, uint64 (n, 2); undecodable instructions are not counted."""
    stats, sizes = Stats(), {mem: entry_bytes(isa.cfg, mem) for mem in Mem}
    for f in isa.decode(insn):
        if not isa.undecodable(f):
            stats.insns[isa.mnemonic(f)] += 1
            count_work(stats, isa.cfg, sizes, f)
    return stats
