"""What the tests of RTL modules share: a simulator with a time limit, and the two ends of a stream."""

import numpy as np
import pytest


async def put(ctx, stream, values, rng=None, idle=0.3):
    """Offer `values` to `stream` one after another; with `rng`, after random pauses."""
    for value in values:
        while rng is not None and rng.random() < idle:
            await ctx.tick()
        ctx.set(stream.payload, value)
        ctx.set(stream.valid, 1)
        await ctx.tick().until(stream.ready)
        ctx.set(stream.valid, 0)


async def get(ctx, stream, count, rng=None, idle=0.3):
    """Take `count` values from `stream`; with `rng`, after random pauses."""
    out = []
    while len(out) < count:
        ctx.set(stream.ready, 0)
        while rng is not None and rng.random() < idle:
            await ctx.tick()
        ctx.set(stream.ready, 1)
        (value,) = await ctx.tick().sample(stream.payload).until(stream.valid)
        out.append(value)
    ctx.set(stream.ready, 0)
    return out


@pytest.fixture
def rng():
    return np.random.default_rng(1)


@pytest.fixture
def simulate():
    """`simulate(dut, *testbenches, background=(), cycles=...)` runs until the testbenches end."""
    from amaranth.sim import Simulator

    def run(dut, *testbenches, background=(), cycles=20_000):
        sim = Simulator(dut)
        sim.add_clock(1e-8)
        ended = []

        def wrap(testbench):
            async def body(ctx):
                await testbench(ctx)
                ended.append(testbench)

            return body

        for testbench in background:
            sim.add_testbench(testbench, background=True)
        for testbench in testbenches:
            sim.add_testbench(wrap(testbench))
        sim.run_until(cycles * 1e-8)
        assert len(ended) == len(testbenches), "a testbench did not end in time"

    run.put, run.get = put, get
    return run
