"""hw/rtl/fifo.py: tokens are neither lost nor invented."""

import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.rtl.fifo import TokenChannel
from tilewright.hw.rtl.latencies import TOKEN_LATENCY


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
