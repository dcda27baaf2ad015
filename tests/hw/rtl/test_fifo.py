"""hw/rtl/fifo.py: queues and token channels; hw/rtl/ports.py: the first fault stays."""

import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.regs import Error
from tilewright.hw.rtl.fifo import Fifo, TokenChannel
from tilewright.hw.rtl.latencies import FIFO_LATENCY, TOKEN_LATENCY


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


@pytest.mark.parametrize("depth", [1, 3, 1023])
def test_level_follows_random_pushes_and_pops(simulate, rng, depth):
    dut = TokenChannel(PRESETS["tiny"].replace(token_depth=depth))
    script = rng.random((400, 2)) < [[0.7, 0.4]] * 200 + [[0.4, 0.7]] * 200

    async def bench(ctx):
        level = 0
        for push, pop in script:
            ctx.set(dut.push.valid, int(push))
            ctx.set(dut.pop.ready, int(pop))
            assert ctx.get(dut.level) == level
            assert ctx.get(dut.push.ready) == (level < depth)
            assert ctx.get(dut.pop.valid) == (level > 0)
            level += int(push and level < depth) - int(pop and level > 0)
            await ctx.tick()

    simulate(dut, bench)


def test_a_token_can_be_taken_after_the_stated_latency(simulate):
    dut = TokenChannel(PRESETS["tiny"])

    async def bench(ctx):
        ctx.set(dut.push.valid, 1)
        for _ in range(TOKEN_LATENCY):
            assert not ctx.get(dut.pop.valid)
            await ctx.tick()
        assert ctx.get(dut.pop.valid)

    simulate(dut, bench)


@pytest.fixture
def latch():
    """A block with a fault of its own, and a part with another."""
    from amaranth.hdl import Module
    from amaranth.lib import wiring
    from amaranth.lib.wiring import In, Out

    from tilewright.hw.rtl.ports import Fault, fault_of, keep_first

    class Latch(wiring.Component):
        def __init__(self):
            super().__init__({"fault": Out(Fault()), "part": In(Fault()), "wrong": In(1)})

        def elaborate(self, platform):
            m = Module()
            keep_first(m, self.fault, (self.wrong, Error.RANGE, 7), fault_of(self.part))
            return m

    return Latch()


@pytest.mark.parametrize(
    "events, kept",
    [
        ([(0, Error.NONE)], (Error.NONE, 0)),
        ([(1, Error.NONE)], (Error.RANGE, 7)),
        ([(0, Error.WATCHDOG)], (Error.WATCHDOG, 3)),
        ([(1, Error.WATCHDOG)], (Error.RANGE, 7)),
        ([(0, Error.WATCHDOG), (1, Error.NONE)], (Error.WATCHDOG, 3)),
        ([(1, Error.NONE), (0, Error.NONE), (0, Error.WATCHDOG)], (Error.RANGE, 7)),
    ],
)
def test_the_first_is_kept(simulate, latch, events, kept):
    async def bench(ctx):
        ctx.set(latch.part.index, 3)
        for wrong, code in events:
            ctx.set(latch.wrong, wrong)
            ctx.set(latch.part.code, code)
            await ctx.tick()
        assert (ctx.get(latch.fault.code), ctx.get(latch.fault.index)) == kept

    simulate(latch, bench)
