"""Parameters that the accelerator makes of its accumulators: products with them, to 31 bits."""

import numpy as np
import pytest

from tilewright.compiler.accelerator.direct.on_chip import on_chip
from tilewright.compiler.accelerator.recording import Recording
from tilewright.compiler.accelerator.rows import scales
from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Mem
from tilewright.hw.rounding import doubling_high_multiply
from tilewright.runtime.loader import run

PLUS = PRESETS["pynq_z1_plus"]
COUNT = 5


@pytest.mark.parametrize("seed", range(3))
def test_values_times_values(seed):
    rng = np.random.default_rng(seed)
    multipliers = rng.integers(0, 1 << 31, (COUNT, 1, 16)).astype(np.int32)
    multipliers.reshape(-1)[:3] = 0, 1, (1 << 31) - 1
    values = rng.integers(-(1 << 31), 1 << 31, multipliers.shape).astype(np.int32)
    rec = Recording(PLUS, "double", "scales")
    program = rec.program
    x, y = (program.buffer(name, values.shape, bits=32) for name in "xy")
    out = program.buffer("out", (4, *values.shape), kind="output")
    temp = [program.buffer(name, (size * COUNT, 1, 16), kind="temp") for name, size in (("p", 5), ("w", 12))]
    with on_chip(rec) as chip:
        found = scales.on_chip_scales(rec, chip, 0, -128, 127)
        at = scales.Places(COUNT, 100, 100 + scales.PLANES * COUNT, 0, 7, *temp)
        program.load(Mem.ACC, 0, x, 0, x_size=COUNT)
        program.load(Mem.ACC, COUNT, y, 0, x_size=COUNT)
        program.gemm([(scales.WORD * COUNT, 1, 0, 0)], at.planes, reset=True)
        scales.planes_of(rec, at, 0)
        assert sum(1 for _ in scales.to_inputs(rec, at, scales.WORD)) == 1  # it waits once
        scales.to_parameters(rec, at, found, scales.WORD, whole=False)
        scales.rescale(rec, at, COUNT)
        for byte in range(4):
            program.store(COUNT, out, byte * COUNT, x_size=COUNT)
            program.alu("SHR", [(COUNT, 1, 0)], COUNT, imm=8)
    got = run(program, {"x": multipliers, "y": values})[0]["out"].view(np.uint8).astype(np.int64)
    wanted = doubling_high_multiply(values, multipliers) & 0xFFFFFFFF
    np.testing.assert_array_equal(sum(got[k] << 8 * k for k in range(4)), wanted)


def test_sizes():
    assert scales.entries(PLUS) == 12 and scales.matrices(PLUS) == 72
    assert scales.accumulators(3, PLUS) == 3 * 17
