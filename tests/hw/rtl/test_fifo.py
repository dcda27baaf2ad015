"""hw/rtl/fifo.py: order, capacity, latency."""

import pytest

from tilewright.hw.rtl.fifo import Fifo
from tilewright.hw.rtl.latencies import FIFO_LATENCY


@pytest.mark.parametrize("depth", [1, 2, 5, 16])
@pytest.mark.parametrize("idle", [(0.0, 0.0), (0.6, 0.1), (0.1, 0.6)])
def test_keeps_order(simulate, rng, depth, idle):
    dut = Fifo(shape=16, depth=depth)
    values = rng.integers(0, 1 << 16, 150).tolist()
    got = []

    async def source(ctx):
        await simulate.put(ctx, dut.i, values, rng, idle[0])

    async def sink(ctx):
        got.extend(await simulate.get(ctx, dut.o, len(values), rng, idle[1]))

    simulate(dut, source, sink)
    assert got == values


def test_capacity_latency_and_rate(simulate):
    dut = Fifo(shape=8, depth=4)

    async def bench(ctx):
        ctx.set(dut.i.valid, 1)
        for k in range(5):
            assert ctx.get(dut.i.ready)
            assert ctx.get(dut.level) == k
            assert ctx.get(dut.o.valid) == (k >= FIFO_LATENCY)
            ctx.set(dut.i.payload, k)
            await ctx.tick()
        assert not ctx.get(dut.i.ready)
        ctx.set(dut.i.valid, 0)
        ctx.set(dut.o.ready, 1)
        for k in range(5):
            assert ctx.get(dut.o.valid)
            assert ctx.get(dut.o.payload) == k
            await ctx.tick()
        assert not ctx.get(dut.o.valid)

    simulate(dut, bench)
