"""A small program whose tokens can be taken away."""

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import AluOp, Mem
from tilewright.runtime.program import Program


@pytest.fixture
def launch():
    """Two tiles of a matrix product through one part of every scratchpad, shifted and stored."""
    program = Program(PRESETS["vta"])
    a = program.buffer("a", (4, 1, 16))
    w = program.buffer("w", (8, 16, 16))
    out = program.buffer("out", (4, 1, 16), kind="output")
    for tile in range(2):
        with program.origin(f"tile{tile}"):
            program.load(Mem.INP, 0, a, 2 * tile, x_size=2)
            program.load(Mem.WGT, 0, w, 0, x_size=8)
            program.gemm([(2, 1, 0, 0)], dst=0, reset=True)
            program.gemm([(2, 1, 0, 4), (2, 0, 1, 2)], dst=0, src=0, wgt=0)
            program.alu(AluOp.SHR, [(2, 1, 1)], dst=0, imm=4)
            program.store(0, out, 2 * tile, x_size=2)
    return program.finish()


@pytest.fixture
def rng(request):
    """Random numbers of a seed that is printed."""
    seed = 7
    print(f"seed {seed}")
    return np.random.default_rng(seed)
