"""The program that a server runs between two clients: scratchpads keep what they hold otherwise."""

from __future__ import annotations

import numpy as np

from ..hw.config import Config
from ..hw.isa import MICRO_OPS, SCRATCHPADS, AluOp, Op, entry_bytes, instruction, room
from ..runtime.launch import Launch
from ..runtime.program import Program


def wipe(cfg: Config) -> Launch:
    """A launch after which every scratchpad of `cfg` is zero, micro-ops, parameters and tables included."""
    program = Program(cfg, "wipe")
    for mem in SCRATCHPADS:
        row = instruction(Op.LOAD, mem)
        if mem not in MICRO_OPS and row is not None and not row.missing(cfg):
            zero = np.zeros(entry_bytes(cfg, mem), np.uint8)
            entry = program.buffer(mem.name, zero.shape, kind="constant", data=zero)
            program.load(mem, 0, entry, 0, y_size=room(cfg, mem), x_stride=0)  # the same entry again and again
    program.alu_uops(AluOp.ADD, np.zeros((cfg.uop_depth, 2), np.int64), imm=0)
    if "ternary" in cfg.units:
        program.ternary_uops(np.zeros((cfg.uop_depth, 3), np.int64), reset=True)
    return program.finish()
