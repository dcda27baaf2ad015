"""Products of matrices, softmax, norms and attention: what their parts compute, and how they are tiled."""

from dataclasses import replace
from math import isqrt

import numpy as np
import pytest

from tests.compiler.kernels.conftest import PLUS
from tests.compiler.kernels.operators import (
    gather,
    heads,
    integer_norm,
    matmul,
    rms_norm,
    scores,
    softmax,
    tensor,
    write_rows,
)
from tilewright.compiler import graph as g
from tilewright.compiler.accelerator.module import Accelerator
from tilewright.compiler.kernels import norm, table
from tilewright.compiler.kernels import softmax as kernel
from tilewright.compiler.kernels.language import Kernel, cycles, why_not
from tilewright.compiler.kernels.matmul import product_on_alu, product_on_array
from tilewright.compiler.kernels.recording import Recording
from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Mem
from tilewright.hw.rounding import divide_by_power, doubling_high_multiply
from tilewright.runtime.hostops import fixed_point as definition
from tilewright.runtime.hostops.roots import inverse_root
from tilewright.runtime.loader import run
from tilewright.sim.timing import predict

CFG = PRESETS["pynq_z1"]


def recording(op):
    return Kernel(Recording(PLUS, "double", "part"), op)


# products


@pytest.mark.parametrize("shape, turned, points", [
    ((4, 128, 128, 32), False, (-128, 3)), ((1, 100, 90, 2000), True, (0, 0)),
])  # fmt: skip
def test_products_take_little_longer_than_their_macs(shape, turned, points):
    op = matmul(shape, turned, points)
    loaded = 24 * sum(t.nbytes for t in op.inputs) / 16
    assert op.macs / CFG.macs_per_cycle < table.cycles(op, CFG) < 1.35 * op.macs / CFG.macs_per_cycle + loaded


@pytest.mark.parametrize("shape, turned, passes", [
    ((2, 64, 64, 32), True, 0), ((2, 64, 64, 32), False, 1), ((2, 64, 60, 32), True, 1), ((2, 64, 64, 30), False, 2),
])  # fmt: skip
def test_the_second_operand_is_copied_and_transposed_only_where_it_must_be(exact, shape, turned, passes):
    assert len([b for b in exact(matmul(shape, turned)).buffers if b.kind == "temp"]) == passes


def test_images_that_begin_between_entries_of_weights_are_copied(exact):
    op = matmul((1, 24, 24, 16), True)
    first, second = (tensor(name, (1, 16, 1, 24)) for name in "ab")
    y = tensor("y", (1, 32, 1, 24))
    wide = replace(op, inputs=(replace(op.x, shape=(1, 32, 1, 24)), y))
    exact(g.Concat("concat", (first, second), y, 1), wide)


@pytest.mark.parametrize("turned", [False, True])
def test_lanes_behind_the_last_element_do_not_count(exact, turned):
    """Operands that the launch computes have anything there."""
    op = matmul((2, 16, 32, 20), turned, (-128, 3))
    before = [g.Requantize(f"r{n}", (replace(t, name=f"a{n}", zero_point=9),), t) for n, t in enumerate(op.inputs)]
    exact(*before, op)


@pytest.mark.parametrize("shapes", [((1, 64, 1, 9), (4, 16, 1, 9)), ((4, 32, 1, 9), (2, 64, 1, 9))])
def test_heads_of_whole_blocks_stay_where_they_are(exact, shapes):
    op = heads(*shapes, in_place=True)
    before = g.Requantize("a", (tensor("a", shapes[0]),), op.x)
    launch = exact(before, op, g.Requantize("b", (op.output,), tensor("b", shapes[1], 0.2)))
    assert {b.name for b in launch.buffers if b.kind == "temp"} == {"arena"}
    assert Accelerator(CFG).seconds((op,)) == 0


def test_the_faster_unit_multiplies_lanes():
    many, one = scores(16, 63, rows=15), scores(16, 1)
    assert table.chosen(many, PLUS) is product_on_array and table.chosen(one, PLUS) is product_on_alu
    assert cycles(product_on_array, many, PLUS) < cycles(product_on_alu, many, PLUS)
    assert cycles(product_on_array, one, PLUS) > cycles(product_on_alu, one, PLUS)
    assert "with zero points" in why_not(product_on_array, scores(16, 17, points=(1, 0, 0)), PLUS)
    assert "larger than the 1920 inputs" in why_not(product_on_array, scores(16, 500), PLUS)


# softmax

COUNT, VALUES = 12, 20
SOFTMAX = softmax((1, 16, 1, 1))


def wanted(sums, e):
    """The last lines of the definition, on int64 sums and exponentials that broadcast."""
    headroom = 32 - np.frexp(sums.astype(np.float64))[1].astype(np.int64)
    inverse = definition.reciprocal((sums << headroom) - (1 << 31))
    return np.clip(divide_by_power(definition.high_product(inverse, e), 35 - headroom) - 128, -128, 127)


def reciprocals(k, count, *others):
    """(The maker of parameters, parameters, tiles of these extents) of `count` groups."""
    slope, par = k.tiles(Mem.PAR, {}, {"group": count})
    bank = {"entry": kernel.reciprocal_accumulators(count, PLUS)}
    numbers, *tiles, bank = k.tiles(Mem.ACC, {"number": kernel.NUMBERS}, *others, bank, high=k.bank)
    return kernel.Reciprocals(k, kernel.load_constants(k, slope, numbers, 8, -128), par, bank), par, tiles


def divided(sums, e):
    """The bytes of `e`, (COUNT, VALUES, 16), divided by `sums`, (COUNT, 1, 16), by the accelerator."""
    k, group = recording(SOFTMAX), {"group": COUNT}
    x, y = k.program.buffer("sums", sums.shape, bits=32), k.program.buffer("e", (COUNT * VALUES, 1, 16), bits=32)
    out = k.program.buffer("out", (COUNT * VALUES, 1, 16), kind="output")
    at, par, (totals,) = reciprocals(k, COUNT, group)
    k.load(totals, k.array(x, **group))
    assert sum(1 for _ in at.inverse(totals)) == 3 * (kernel.STEPS + 1)
    values = k.tile(Mem.ACC, low=k.bank, group=COUNT, value=VALUES)
    k.load(values, k.array(y, group=COUNT, value=VALUES))
    k.store(k.array(out, group=COUNT, value=VALUES), values, par)
    given = {"sums": sums.astype(np.int32), "e": e.reshape(-1, 1, 16).astype(np.int32)}
    return run(k.program, given)[0]["out"].reshape(e.shape)


@pytest.mark.parametrize("bits", range(kernel.LEAST_BITS, kernel.MOST_BITS + 1))
def test_quotients_by_sums_of_every_size(bits):
    rng = np.random.default_rng(bits)
    low, high = 1 << bits - 1, (1 << bits) - 1
    sums = rng.integers(low, high + 1, (COUNT, 1, 16))
    sums.reshape(-1)[:4] = low, high, low + 1, high - 1
    e = rng.integers(0, 1 << 31, (COUNT, VALUES, 16)) >> rng.integers(0, 31, (COUNT, VALUES, 16))
    e[:, 0] = (1 << 31) - 1  # the exponential of the largest value
    np.testing.assert_array_equal(divided(sums, e), wanted(sums, e))


def test_exponentials_beside_every_boundary():
    """Of each sum, the exponentials that are the last to give one result, and the next."""
    least = 1 << kernel.LEAST_BITS - 1  # the largest value alone
    sums = np.random.default_rng(3).integers(least, 100 * least, (COUNT, 1, 16))
    result = np.arange(VALUES // 2)[None, :, None] * 12 - 128
    low, high = np.zeros((COUNT, VALUES // 2, 16), np.int64), np.full((COUNT, VALUES // 2, 16), (1 << 31) - 1)
    while (high - low > 1).any():
        middle = (low + high) // 2
        above = wanted(sums, middle) > result
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    e = np.concatenate([low, high], 1)
    np.testing.assert_array_equal(divided(sums, e), wanted(sums, e))


def test_parameters_made_of_accumulators_multiply_to_31_bits():
    rng, group = np.random.default_rng(0), {"group": 5}
    multipliers = rng.integers(0, 1 << 31, (5, 1, 16)).astype(np.int32)
    multipliers.reshape(-1)[:3] = 0, 1, (1 << 31) - 1
    values = rng.integers(-(1 << 31), 1 << 31, multipliers.shape).astype(np.int32)
    k = recording(SOFTMAX)
    x, y = (k.program.buffer(name, values.shape, bits=32) for name in "xy")
    out = k.program.buffer("out", (4, *values.shape), kind="output")
    at, _, (factors, products) = reciprocals(k, 5, group, group)
    k.load(factors, k.array(x, **group))
    k.load(products, k.array(y, **group))
    assert sum(1 for _ in at.make(factors)) == 3
    at.rescale(products)
    for byte in range(4):
        k.store(k.array(out, byte=4, **group)[byte], products)
        products >>= 8
    got = run(k.program, {"x": multipliers, "y": values})[0]["out"].view(np.uint8).astype(np.int64)
    found = doubling_high_multiply(values, multipliers) & 0xFFFFFFFF
    np.testing.assert_array_equal(sum(got[n] << 8 * n for n in range(4)), found)


# norms


@pytest.mark.parametrize("near", [0, 1 << 6, 1 << 12, 1 << 14, 1 << 18, (1 << 20) - 16 * 64 + 1])
def test_inverse_roots_are_those_of_the_definition(near):
    k = recording(rms_norm((1, 16)))
    s = np.arange(near, near + 16 * 64, dtype=np.int32).reshape(64, 1, 16)
    x = k.array(k.program.buffer("s", s.shape, bits=32), entry=64)
    y = k.array(k.program.buffer("r", (3, *s.shape), kind="output"), byte=3, entry=64)
    copies = k.load(k.tile(Mem.ACC, copy=norm.COPIES, entry=64), x.repeated(copy=norm.COPIES))
    assert norm.root_tables(k) == norm.root_tables(k) == (0, 1)
    found = norm.inverse_root(copies, norm.root_tables(k))
    for byte in range(3):  # of 20 bits
        k.store(y[byte], found)
        found >>= 8
    low, middle, high = run(k.program, {"s": s})[0]["r"].astype(int)
    np.testing.assert_array_equal((high << 16) + ((middle & 255) << 8) + (low & 255), inverse_root(s.astype(np.int64)))


@pytest.mark.parametrize("value", [0, 1, -128, 127])
def test_norms_of_equal_elements(steps, value):
    """Zeros stay zeros; sums of squares reach 2**20."""
    steps(rms_norm((1, 64)), data={"x": np.full((1, 64), value, np.int8)})
    steps(rms_norm((1, 32), np.zeros(32)))


def row_of(total):
    """16 bytes whose squares add up to `total`, or little less, the largest first."""
    found = []
    for _ in range(16):
        found.append(-min(128, isqrt(total)))
        total -= found[-1] ** 2
    return found


@pytest.mark.parametrize("together", [1, 16])
def test_integer_roots_near_squares(exact, together):
    """Elements times such a weight: another root would change at least one of the results."""
    near = [max(1, k * k + d) for k in (*range(1, 20), *range(20, 129, 7), 127, 128) for d in (-1, 0, 1)]
    x = np.array([row_of(16 * (mean - 1)) for mean in near], np.int8)[: len(near) // together * together]
    for part in (x if together > 3 else x[:6]).reshape(-1, together, 16):
        exact(integer_norm(part.shape, 500_000, 12), cfg=PLUS, data={"x": part})


@pytest.mark.circuit
def test_every_mean_of_squares(exact):
    """Roots change at squares: rows whose means are squares, one less, and what is between; one element alone."""
    x = np.zeros((512, 16), np.int8)
    x[:256, 0], x[:256, 1] = np.arange(-128, 128), np.random.default_rng(6).integers(-128, 128, 256)
    for k, row in enumerate(x[256:], 1):
        row[:] = min(k // 2, 127)
        row[0] = min(127, k // 2 + k % 2)
    x[-1] = -128
    exact(integer_norm((512, 16), 2_222_222), cfg=PLUS, data={"x": x})
    x = np.zeros((256, 64), np.int8)
    x[np.arange(256), np.arange(256) % 64] = np.arange(-128, 128)
    exact(integer_norm((256, 64)), cfg=PLUS, data={"x": x})


def test_constants_of_integer_norms():
    reached = {4: [64, 16, 4, 1], 8: [64, 8, 1], 16: [16, 1], 32: [32, 1]}
    assert {lanes: norm.digits(lanes) for lanes in reached} == reached
    found = norm.reciprocals()
    for r in range(1, 129):
        x = np.arange(0, 258 * r + 1)
        np.testing.assert_array_equal(x * found[128 - r] >> 22, x // r)
        assert (x * found[128 - r]).max() < 1 << 31


# attention


def test_a_row_for_each_of_several_tokens(steps):
    op = gather(31, 40, 16)
    launch = steps(op, data={"token": np.arange(31, 15, -1, dtype=np.int32) - 1})
    assert [*launch.patches.limits] == [f"token[{n}]" for n in range(16)]
    assert table.cycles(gather(31, 40), PLUS) < table.cycles(op, PLUS) == predict(launch).cycles
    assert table.cycles(write_rows(32, 64), PLUS) < table.cycles(write_rows(320, 64), PLUS)
