"""How much of each scratchpad a program uses, from its instructions and micro-ops."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...hw.isa import MICRO_OPS, Isa, Mem, depth, instruction, known_isa
from ..access import scratchpad_accesses
from ..launch import Launch


def used(launch: Launch) -> dict[Mem, int]:
    """Per scratchpad its entries up to the last that `launch` reads or writes; those that it uses alone.

    Instructions that cannot be decoded, and micro-ops that no constant buffer holds, use nothing.
    """
    isa = known_isa(launch.cfg)
    found: dict[Mem, int] = {}
    for f, uops in with_micro_ops(launch, isa):
        if isa.undecodable(f):
            continue
        for access in scratchpad_accesses(launch.cfg, f, uops):
            first, end = access.reach
            if first < end:
                found[access.mem] = max(found.get(access.mem, 0), end)
    return found


def with_micro_ops(launch: Launch, isa: Isa) -> Iterator[tuple[dict[str, int], np.ndarray]]:
    """Every instruction, decoded, with the micro-ops that it executes: int64 (n, 3), columns dst, src, wgt."""
    memory = {mem: np.zeros((depth(launch.cfg, mem), 3), np.int64) for mem in MICRO_OPS}
    words = isa.uop.decode(launch.uops.astype(np.uint64)[:, None])
    constants = np.stack([words[name] for name in ("dst", "src", "wgt")], axis=1)
    none = constants[:0]
    for f in isa.decode(launch.insn):
        row = instruction(f["op"], f.get("mem"))
        if row is not None and row.loads is not None and row.loads in MICRO_OPS:
            loaded = constants[f["dram_base"] : f["dram_base"] + f["x_size"]]
            memory[row.loads][f["sram_base"] : f["sram_base"] + len(loaded)] = loaded
        executes = None if row is None else row.executes
        yield f, none if executes is None else memory[executes][f["uop_bgn"] : f["uop_end"]]
