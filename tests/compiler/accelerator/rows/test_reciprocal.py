"""Exponentials divided by sums, for sums of every size: the bytes of the kernel."""

import numpy as np
import pytest

from tilewright.compiler.graph import Softmax, Tensor
from tilewright.compiler.kernels import reciprocal
from tilewright.compiler.kernels.language import Kernel
from tilewright.compiler.kernels.recording import Recording
from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Mem
from tilewright.hw.rounding import divide_by_power
from tilewright.runtime.hostops import fixed_point as softmax
from tilewright.runtime.loader import run

PLUS = PRESETS["pynq_z1_plus"]
COUNT, VALUES = 12, 20
OP = Softmax("op", (Tensor("x", (1, 16)),), Tensor("y", (1, 16), scale=1 / 256, zero_point=-128), 1)
LEAST = 1 << reciprocal.LEAST_BITS - 1  # the largest value alone


def wanted(sums, e):
    """The kernel's last lines, on int64 sums and exponentials that broadcast."""
    headroom = 32 - np.frexp(sums.astype(np.float64))[1].astype(np.int64)
    inverse = softmax.reciprocal((sums << headroom) - (1 << 31))
    return np.clip(divide_by_power(softmax.high_product(inverse, e), 35 - headroom) - 128, -128, 127)


def divided(sums, e):
    """The bytes of `e`, (COUNT, VALUES, 16), divided by `sums`, (COUNT, 1, 16), by the accelerator."""
    rec = Recording(PLUS, "double", "reciprocal")
    program = rec.program
    x, y = program.buffer("sums", sums.shape, bits=32), program.buffer("e", (COUNT * VALUES, 1, 16), bits=32)
    out = program.buffer("out", (COUNT * VALUES, 1, 16), kind="output")
    k, group = Kernel(rec, OP), {"group": COUNT}
    slope, par = k.tiles(Mem.PAR, {}, group)
    tiles = {"number": reciprocal.NUMBERS}, group, {"entry": reciprocal.accumulators(COUNT, PLUS)}
    numbers, totals, bank = k.tiles(Mem.ACC, *tiles, high=k.bank)
    at = reciprocal.Reciprocals(k, reciprocal.load_constants(k, slope, numbers), par, bank)
    k.load(totals, k.array(x, **group))
    assert sum(1 for _ in at.inverse(totals)) == 3 * (reciprocal.STEPS + 1)
    values = k.tile(Mem.ACC, low=k.bank, group=COUNT, value=VALUES)
    k.load(values, k.array(y, group=COUNT, value=VALUES))
    k.store(k.array(out, group=COUNT, value=VALUES), values, par)
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
