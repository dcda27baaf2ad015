"""One over a square root on the ALU, for sums of squares of every size."""

import numpy as np
import pytest

from tilewright.compiler.accelerator.attention import root
from tilewright.compiler.accelerator.recording import Recording
from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Mem
from tilewright.runtime.kernels.roots import inverse_root
from tilewright.runtime.loader import run

PLUS = PRESETS["pynq_z1_plus"]
COUNT = 64


@pytest.mark.parametrize("near", [0, 1 << 6, 1 << 12, 1 << 14, 1 << 18, (1 << 20) - 16 * COUNT + 1])
def test_it_equals_the_kernel(near):
    rec = Recording(PLUS, "double", "root")
    program, found = rec.program, root.tables(rec, "root")
    s = np.arange(near, near + 16 * COUNT, dtype=np.int32).reshape(COUNT, 1, 16)
    x, y = program.buffer("s", s.shape, bits=32), program.buffer("r", (3, *s.shape), kind="output")
    for k in range(root.COPIES):
        program.load(Mem.ACC, k * COUNT, x, 0, x_size=COUNT)
    first = root.inverse_root(rec, found, 0, COUNT)
    for k in range(3):  # 20 bits, a byte at a time
        program.store(first, y, k * COUNT, x_size=COUNT)
        program.alu("SHR", [(COUNT, 1, 0)], first, imm=8)
    low, middle, high = run(program, {"s": s})[0]["r"].astype(int)
    np.testing.assert_array_equal((high << 16) + ((middle & 255) << 8) + (low & 255), inverse_root(s))


def test_tables_are_loaded_once():
    rec = Recording(PLUS, "double", "root")
    assert root.tables(rec, "a") == root.tables(rec, "b") == root.Tables(0, 1)
    assert len(rec.program.buffers) == 2


def test_more_entries_take_longer():
    assert root.cycles(1, PLUS) < root.cycles(8, PLUS) < 4 * root.cycles(1, PLUS)
