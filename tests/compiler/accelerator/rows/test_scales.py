"""Parameters that the accelerator makes of its accumulators: products with them, to 31 bits."""

import numpy as np
import pytest

from tilewright.compiler.graph import Softmax, Tensor
from tilewright.compiler.kernels import softmax as reciprocal
from tilewright.compiler.kernels.language import Kernel
from tilewright.compiler.kernels.recording import Recording
from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Mem
from tilewright.hw.rounding import doubling_high_multiply
from tilewright.runtime.loader import run

PLUS = PRESETS["pynq_z1_plus"]
COUNT = 5
OP = Softmax("op", (Tensor("x", (1, 16)),), Tensor("y", (1, 16), scale=1 / 256, zero_point=-128), 1)


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
    k = Kernel(rec, OP)
    group = {"group": COUNT}
    slope, par = k.tiles(Mem.PAR, {}, group)
    bank = {"entry": reciprocal.reciprocal_accumulators(COUNT, PLUS)}
    numbers, factors, products, tile = k.tiles(Mem.ACC, {"number": reciprocal.NUMBERS}, group, group, bank)
    at = reciprocal.Reciprocals(k, reciprocal.load_constants(k, slope, numbers), par, tile)
    k.load(factors, k.array(x, **group))
    k.load(products, k.array(y, **group))
    assert sum(1 for _ in at.make(factors)) == 3
    at.rescale(products)
    for byte in range(4):
        k.store(k.array(out, byte=4, **group)[byte], products)
        products >>= 8
    got = run(program, {"x": multipliers, "y": values})[0]["out"].view(np.uint8).astype(np.int64)
    wanted = doubling_high_multiply(values, multipliers) & 0xFFFFFFFF
    np.testing.assert_array_equal(sum(got[k] << 8 * k for k in range(4)), wanted)


def test_sizes():
    assert reciprocal.parameter_entries(PLUS) == 12
    assert reciprocal.reciprocal_accumulators(3, PLUS) >= 3 * (5 + 12)  # planes and words of each
