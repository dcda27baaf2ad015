"""Exponentials divided by sums, for sums of every size: the bytes of the kernel."""

import numpy as np
import pytest

from tilewright.compiler.accelerator.direct.on_chip import on_chip
from tilewright.compiler.accelerator.recording import Recording
from tilewright.compiler.accelerator.rows import reciprocal, scales
from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Mem
from tilewright.hw.rounding import divide_by_power
from tilewright.runtime import softmax
from tilewright.runtime.loader import run

PLUS = PRESETS["pynq_z1_plus"]
COUNT, VALUES = 12, 20
LEAST = 1 << reciprocal.LEAST_BITS - 1  # the largest value alone


def wanted(sums, e):
    """The kernel's last lines, on int64 sums and exponentials that broadcast."""
    headroom = 32 - np.frexp(sums.astype(np.float64))[1].astype(np.int64)
    inverse = softmax.reciprocal((sums << headroom) - (1 << 31))
    return np.clip(divide_by_power(softmax.high_product(inverse, e), 35 - headroom) - 128, -128, 127)


def divided(sums, e):
    """The bytes of `e`, (COUNT, VALUES, 16), divided by `sums`, (COUNT, 1, 16), by the accelerator."""
    rec = Recording(PLUS, "double", "reciprocal")
    program, size = rec.program, reciprocal.accumulators(COUNT, PLUS)
    x, y = program.buffer("sums", sums.shape, bits=32), program.buffer("e", (COUNT * VALUES, 1, 16), bits=32)
    out = program.buffer("out", (COUNT * VALUES, 1, 16), kind="output")
    temp = [program.buffer(name, (n * COUNT, 1, 16), kind="temp") for name, n in (("p", 5), ("w", 12))]
    with on_chip(rec) as chip:
        made = scales.on_chip_scales(rec, chip, -128, -128, 127)
        found = reciprocal.constants(rec, "op", made, COUNT, 1000)
        program.load(Mem.ACC, 900, x, 0, x_size=COUNT)
        planes = size - scales.accumulators(COUNT, PLUS)
        at = scales.Places(COUNT, planes, planes + scales.PLANES * COUNT, 0, 0, *temp)
        assert sum(1 for _ in reciprocal.inverse(rec, found, at, 900, 0)) == 3 * (reciprocal.STEPS + 1)
        program.load(Mem.ACC, 1024, y, 0, x_size=COUNT * VALUES)
        program.store(1024, out, 0, y_size=COUNT, x_size=VALUES, par=0, par_step=1)
    given = {"sums": sums.astype(np.int32), "e": e.reshape(-1, 1, 16).astype(np.int32)}
    return run(program, given)[0]["out"].reshape(e.shape)


@pytest.mark.parametrize("bits", range(reciprocal.LEAST_BITS, reciprocal.MOST_BITS + 1))
def test_sums_of_every_size(bits):
    rng = np.random.default_rng(bits)
    low, high = 1 << bits - 1, (1 << bits) - 1
    sums = rng.integers(low, high + 1, (COUNT, 1, 16))
    sums.reshape(-1)[:4] = low, high, low + 1, high - 1
    e = rng.integers(0, 1 << 31, (COUNT, VALUES, 16)) >> rng.integers(0, 31, (COUNT, VALUES, 16))
    e[:, 0] = (1 << 31) - 1  # the exponential of the largest value
    np.testing.assert_array_equal(divided(sums, e), wanted(sums, e))


def test_exponentials_beside_every_boundary():
    """Of each sum, the exponentials that are the last to give one result, and the next."""
    rng = np.random.default_rng(3)
    sums = rng.integers(LEAST, 100 * LEAST, (COUNT, 1, 16))
    result = np.arange(VALUES // 2)[None, :, None] * 12 - 128
    low, high = np.zeros((COUNT, VALUES // 2, 16), np.int64), np.full((COUNT, VALUES // 2, 16), (1 << 31) - 1)
    while (high - low > 1).any():
        middle = (low + high) // 2
        above = wanted(sums, middle) > result
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    e = np.concatenate([low, high], 1)
    np.testing.assert_array_equal(divided(sums, e), wanted(sums, e))
