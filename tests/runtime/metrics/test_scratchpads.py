"""runtime/metrics/scratchpads.py: the last entry that a program uses, for programs whose entries are known."""

import numpy as np

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Mem
from tilewright.runtime.metrics import used
from tilewright.runtime.program import Program

TINY = PRESETS["tiny"]


def test_loads_with_padding_results_and_stores():
    program = Program(TINY)
    x, out = program.buffer("x", (8, TINY.block_in)), program.buffer("out", (8, TINY.block_out), kind="output")
    program.load(Mem.INP, 3, x, 0, y_size=2, x_size=2, x_stride=2, pads=(0, 1, 1, 0))  # 3 rows of 3
    program.gemm([(4, 5, 1, 0)], dst=7, reset=True)  # dst 7, 12, 17, 22
    program.store(0, out, 0, x_size=8)
    found = used(program.finish())
    assert found[Mem.INP] == 3 + 9 and found[Mem.ACC] == 23
    assert found[Mem.UOP] >= 1 and Mem.WGT not in found


def test_planes_of_unit_ternary():
    cfg = PRESETS["tiny_two"]
    program = Program(cfg)
    program.ternary([(1, 0, 0, 0)], dst=2, reset=True)
    assert used(program.finish())[Mem.ACC] == 3 + (cfg.ternary_blocks - 1) * cfg.plane_depth


def test_what_is_never_executed_uses_nothing():
    launch = Program(TINY).finish()
    assert used(launch) == {}
    launch.insn[0, 0] |= np.uint64(7)
    assert used(launch) == {}
