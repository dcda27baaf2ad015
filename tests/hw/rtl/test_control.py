"""hw/rtl/control.py: the run from start to done, errors, watchdog, reset."""

import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.regs import Error
from tilewright.hw.rtl.control import Control
from tilewright.hw.rtl.latencies import START_LATENCY


def control():
    return Control(PRESETS["tiny"], faults=2)


async def begin(ctx, dut):
    ctx.set(dut.start, 1)
    await ctx.tick()
    ctx.set(dut.start, 0)
    for _ in range(START_LATENCY - 1):
        assert ctx.get(dut.clear) and ctx.get(dut.running)
        await ctx.tick()
    assert ctx.get(dut.go) and not ctx.get(dut.clear)
    await ctx.tick()
    assert ctx.get(dut.running) and not ctx.get(dut.go) and not ctx.get(dut.halt)


async def drain(ctx, dut):
    for _ in range(5):
        assert ctx.get(dut.halt) and ctx.get(dut.running) and not ctx.get(dut.done)
        await ctx.tick()
    ctx.set(dut.drained, 1)
    await ctx.tick()
    ctx.set(dut.drained, 0)
    assert ctx.get(dut.clear) and not ctx.get(dut.running)
    await ctx.tick()
    assert not ctx.get(dut.clear)


def test_a_run_that_ends_well_and_another(simulate):
    dut = control()

    async def bench(ctx):
        for _ in range(2):
            await begin(ctx, dut)
            assert not ctx.get(dut.done)
            ctx.set(dut.finished, 1)
            await ctx.tick()
            ctx.set(dut.finished, 0)
            assert ctx.get(dut.done) and not ctx.get(dut.running) and not ctx.get(dut.fault.code)

    simulate(dut, bench)


def test_tokens_that_nothing_takes_are_an_error_of_no_instruction(simulate):
    dut = control()

    async def bench(ctx):
        ctx.set(dut.tokens_left, 1)
        await begin(ctx, dut)
        for _ in range(20):
            await ctx.tick()
            assert not ctx.get(dut.fault.code)
        ctx.set(dut.finished, 1)
        await ctx.tick()
        assert ctx.get(dut.done) and not ctx.get(dut.running)
        assert (ctx.get(dut.fault.code), ctx.get(dut.fault.index)) == (Error.TOKENS_LEFT, 0)

    simulate(dut, bench)


def test_the_first_fault_is_kept_until_the_next_start(simulate):
    dut = control()

    async def bench(ctx):
        await begin(ctx, dut)
        ctx.set(dut.faults[1].code, Error.RANGE)
        ctx.set(dut.faults[1].index, 5)
        await ctx.tick()
        ctx.set(dut.faults[0].code, Error.UNDECODABLE)
        ctx.set(dut.faults[0].index, 9)
        await ctx.tick()
        await drain(ctx, dut)
        for fault in dut.faults:
            ctx.set(fault.code, Error.NONE)
        assert ctx.get(dut.done)
        assert (ctx.get(dut.fault.code), ctx.get(dut.fault.index)) == (Error.RANGE, 5)
        await begin(ctx, dut)
        assert ctx.get(dut.fault.code) == Error.NONE

    simulate(dut, bench)


def test_tokens_left_do_not_replace_a_fault(simulate):
    """The engine can finish in the cycle in which the last unit's fault has just been kept."""
    dut = control()

    async def bench(ctx):
        ctx.set(dut.tokens_left, 1)
        await begin(ctx, dut)
        ctx.set(dut.faults[1].code, Error.WRITE_RESPONSE)
        ctx.set(dut.faults[1].index, 5)
        await ctx.tick()
        ctx.set(dut.finished, 1)
        await ctx.tick()
        await drain(ctx, dut)
        assert (ctx.get(dut.fault.code), ctx.get(dut.fault.index)) == (Error.WRITE_RESPONSE, 5)

    simulate(dut, bench)


def test_the_watchdog_names_the_oldest_instruction_that_waits(simulate):
    dut = control()

    async def bench(ctx):
        ctx.set(dut.watchdog, 20)
        for k, (index, waiting) in enumerate([(3, 0), (14, 1), (12, 1)]):
            ctx.set(dut.heads[k].index, index)
            ctx.set(dut.waiting[k], waiting)
        await begin(ctx, dut)
        for n in range(100):
            ctx.set(dut.progress, int(n % 15 == 0))
            await ctx.tick()
            assert not ctx.get(dut.halt)
        ctx.set(dut.progress, 0)
        for _ in range(25):
            await ctx.tick()
        assert (ctx.get(dut.fault.code), ctx.get(dut.fault.index)) == (Error.WATCHDOG, 12)
        await drain(ctx, dut)
        assert ctx.get(dut.done)

    simulate(dut, bench)


@pytest.mark.parametrize("wait", [0, 1, 5])
def test_reset_ends_a_run_without_done(simulate, wait):
    dut = control()

    async def bench(ctx):
        ctx.set(dut.start, 1)
        await ctx.tick()
        ctx.set(dut.start, 0)
        await ctx.tick()
        assert ctx.get(dut.go)
        for _ in range(wait):
            await ctx.tick()
        ctx.set(dut.reset, 1)
        await ctx.tick()
        ctx.set(dut.reset, 0)
        await drain(ctx, dut)
        assert not ctx.get(dut.done) and not ctx.get(dut.fault.code)
        await begin(ctx, dut)

    simulate(dut, bench)


def test_reset_while_idle_clears_the_engine_and_done(simulate):
    dut = control()

    async def bench(ctx):
        await begin(ctx, dut)
        ctx.set(dut.finished, 1)
        await ctx.tick()
        ctx.set(dut.finished, 0)
        ctx.set(dut.reset, 1)
        await ctx.tick()
        ctx.set(dut.reset, 0)
        assert ctx.get(dut.clear) and not ctx.get(dut.done) and not ctx.get(dut.running)
        await ctx.tick()
        assert not ctx.get(dut.clear)

    simulate(dut, bench)
