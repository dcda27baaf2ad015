"""The ALU's lanes and the multipliers against the model's operations."""

import numpy as np
import pytest
from amaranth.hdl import C
from amaranth.sim import Simulator

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import AluOp
from tilewright.hw.rtl.compute.alu import OP_BITS, Alu, Multiplier, chosen
from tilewright.hw.rtl.latencies import MULTIPLIER_LATENCY, groups, multipliers
from tilewright.sim.model.alu import shift_right

TINY = PRESETS["tiny"]
EDGES = np.array([-(2**31), -(2**31) + 1, -65536, -33, -32, -31, -17, -1, 0, 1, 15, 31, 32, 33, 65535, 2**31 - 1])
MODEL = {
    AluOp.MIN: np.minimum,
    AluOp.MAX: np.maximum,
    AluOp.ADD: np.add,
    AluOp.SHR: shift_right,
    AluOp.MUL: np.multiply,
}


def word(values):
    return int.from_bytes(np.asarray(values, "<i4").tobytes(), "little")


def entry(value, count):
    return np.frombuffer(int(value).to_bytes(4 * count, "little"), "<i4")


def operands(count):
    """Rows of `count` lanes: every pair of edges, then random numbers and random shift amounts."""
    rng = np.random.default_rng(3)
    a, b = (v.reshape(-1) for v in np.meshgrid(EDGES, EDGES))
    a = np.concatenate([a, rng.integers(-(2**31), 2**31, 256)])
    b = np.concatenate([b, rng.integers(-(2**31), 2**31, 128), rng.integers(-40, 40, 128)])
    return a.astype(np.int32).reshape(-1, count), b.astype(np.int32).reshape(-1, count)


@pytest.mark.parametrize("op", [op for op in AluOp if op < AluOp.MUL])
def test_lanes(op):
    alu, count = Alu(TINY), TINY.lanes
    sim = Simulator(alu)

    async def drive(ctx):
        ctx.set(alu.choice, {name: ctx.get(value) for name, value in chosen(C(op, OP_BITS)).items()})
        for a, b in zip(*operands(count)):
            ctx.set(alu.a, word(a))
            ctx.set(alu.b, word(b))
            np.testing.assert_array_equal(entry(ctx.get(alu.o | alu.shifted), count), MODEL[op](a, b), str((a, b)))

    sim.add_testbench(drive)
    sim.run()


def test_without_an_operation_the_other_entry_is_the_result():
    alu, count = Alu(TINY), TINY.lanes
    sim = Simulator(alu)

    async def drive(ctx):
        for a, other in zip(*operands(count)):
            for name, value in (("a", a), ("b", a[::-1]), ("other", other)):
                ctx.set(getattr(alu, name), word(value))
            np.testing.assert_array_equal(entry(ctx.get(alu.o | alu.shifted), count), other)

    sim.add_testbench(drive)
    sim.run()


@pytest.mark.parametrize("ppu_lanes", [1, 2, 4, 16])
def test_multiplier(ppu_lanes):
    cfg = TINY.replace(ppu_lanes=ppu_lanes)
    unit, count, width = Multiplier(cfg), cfg.lanes, multipliers(cfg)
    assert groups(cfg) == max(1, 4 // ppu_lanes)
    a, b = (v[::3] for v in operands(count))
    products, port = [], unit.alu
    sim = Simulator(unit)
    sim.add_clock(1e-6)

    async def drive(ctx):
        ctx.set(port.en, 1)
        for u, v in zip(a, b):
            ctx.set(port.a, word(u))
            ctx.set(port.b, word(v))
            for group in range(groups(cfg)):
                ctx.set(port.group, group)
                await ctx.tick()
        ctx.set(port.en, 0)
        await ctx.tick().repeat(MULTIPLIER_LATENCY)

    async def collect(ctx):
        async for _, _, o in ctx.tick().sample(port.o):
            products.append(entry(o, width))

    sim.add_testbench(drive)
    sim.add_process(collect)
    sim.run()
    got = np.concatenate(products[MULTIPLIER_LATENCY : MULTIPLIER_LATENCY + groups(cfg) * len(a)])
    np.testing.assert_array_equal(got.reshape(a.shape), a * b)
