"""hw/rtl/compute/exclusion.py: who may enter a bank, and for how long its owner has it."""

import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.rtl.compute.exclusion import Exclusion
from tilewright.hw.rtl.latencies import issue_latency, multiply_latency

TWO = PRESETS["tiny_two"]


@pytest.mark.parametrize("multiply", [0, 1])
def test_a_bank_is_busy_from_the_issue_to_its_write(simulate, multiply):
    """While the issue stands at the output, and then as many cycles as it takes; the other banks are free."""
    dut, latency = Exclusion(TWO), (multiply_latency if multiply else issue_latency)(TWO)

    async def bench(ctx):
        ctx.set(dut.issue, 0b0100)
        ctx.set(dut.multiply, multiply)
        for _ in range(3):
            assert ctx.get(dut.busy) == 0b0100
            await ctx.tick()
        ctx.set(dut.issue, 0)
        for _ in range(latency - 1):
            assert ctx.get(dut.busy) == 0b0100
            await ctx.tick()
        assert ctx.get(dut.busy) == 0b0100  # it is being written
        await ctx.tick()
        assert ctx.get(dut.busy) == 0

    simulate(dut, bench)


def test_a_quick_issue_waits_behind_a_slow_one_and_ends_after_it(simulate):
    """GEMM in the bank of a MUL stands at the output until the results of that come, so the bank stays busy."""
    dut = Exclusion(TWO)

    async def bench(ctx):
        ctx.set(dut.issue, 1)
        ctx.set(dut.multiply, 1)
        await ctx.tick()
        ctx.set(dut.multiply, 0)
        for _ in range(multiply_latency(TWO)):
            assert ctx.get(dut.busy) == 1
            await ctx.tick()
        ctx.set(dut.issue, 0)
        for _ in range(issue_latency(TWO) - 1):
            await ctx.tick()
            assert ctx.get(dut.busy) == 1

    simulate(dut, bench)


def test_loads_keep_their_banks_until_they_are_written(simulate):
    """A cycle later than they say."""
    dut = Exclusion(TWO)

    async def bench(ctx):
        ctx.set(dut.loads, 0b0011)
        assert ctx.get(dut.busy) == 0
        for _ in range(40):
            await ctx.tick()
            assert ctx.get(dut.busy) == 0b0011
        ctx.set(dut.loads, 0b0010)
        assert ctx.get(dut.busy) == 0b0011
        await ctx.tick()
        assert ctx.get(dut.busy) == 0b0010

    simulate(dut, bench)
