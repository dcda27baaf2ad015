"""How much of each scratchpad a program uses, from its instructions and micro-ops."""

from __future__ import annotations

import numpy as np

from ...hw.config import Config
from ...hw.isa import MICRO_OPS, Instruction, Mem, Op, known_isa, row_of
from ..access import tile_entries
from ..launch import Launch


def used(launch: Launch) -> dict[Mem, int]:
    """Per scratchpad its entries up to the last that `launch` loads, writes or stores; those that it uses alone.

    Instructions that cannot be decoded, and micro-ops that no constant buffer holds, use nothing.
    """
    return _Use(launch).found


class _Use:
    """The instructions of a launch in the order of the program."""

    def __init__(self, launch: Launch):
        self.launch, self.cfg, self.isa = launch, launch.cfg, known_isa(launch.cfg)
        self.found: dict[Mem, int] = {}
        self._accumulators = {mem: np.full(self.cfg.uop_depth, -1, np.int64) for mem in MICRO_OPS}
        for k, f in enumerate(self.isa.decode(launch.insn)):
            if self.isa.undecodable(f):
                continue
            row = row_of(f["op"], f.get("mem"))
            if row.scratchpad is not None:
                self._transferred(k, row, f)
            elif row.executes is not None:
                self._executed(row.executes, f)

    def _reach(self, mem: Mem, end: int) -> None:
        self.found[mem] = max(self.found.get(mem, 0), end)

    def _transferred(self, k: int, row: Instruction, f: dict[str, int]) -> None:
        entries = tile_entries(f)
        if not entries or row.scratchpad is None:
            return
        self._reach(row.scratchpad, f["sram_base"] + entries)
        if "par_base" in f and f["y_size"]:
            self._reach(Mem.PAR, f["par_base"] + f["par_step"] * (f["y_size"] - 1) + 1)
        if row.loads is not None and row.loads in MICRO_OPS:
            data = self.launch.buffers[self.launch.reloc[k]].data
            if data is not None:
                words = data.view("<u4")[f["dram_base"] :][:entries].astype(np.uint64)
                named = self.isa.uop.decode(words[:, None])["dst"]
                self._accumulators[row.loads][f["sram_base"] :][: len(named)] = named

    def _executed(self, mem: Mem, f: dict[str, int]) -> None:
        named = self._accumulators[mem][f["uop_bgn"] : f["uop_end"]]
        if not len(named) or not f["iter_out"] or not f["iter_in"] or named.max() < 0:
            return
        last = int(named.max()) + (f["iter_out"] - 1) * f["dst_out"] + (f["iter_in"] - 1) * f["dst_in"]
        self._reach(Mem.ACC, last + 1 + _planes_behind(self.cfg, f))


def _planes_behind(cfg: Config, f: dict[str, int]) -> int:
    """Entries from the accumulator that a micro-op names to the last one that it writes."""
    return (cfg.ternary_blocks - 1) * cfg.plane_depth if f["op"] == Op.TERNARY else 0
