"""hw/rtl/control.py: start, end and errors of a run; registers and counters over AXI-Lite."""

import pytest

from tilewright.hw.config import ISA_VERSION, PRESETS
from tilewright.hw.metrics import counters as counters_of
from tilewright.hw.regs import MAGIC, REGISTERS, Error
from tilewright.hw.rtl.control import Control, Counters, Csr
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


CFG = PRESETS["tiny"]


COUNTERS = ("CYCLES", *counters_of(CFG))


async def write(ctx, axil, name, value, strobes=15, address_first=None):
    """One write; `address_first` True or False lets the other half come three cycles later."""
    ctx.set(axil.awaddr, REGISTERS[name].offset)
    ctx.set(axil.wdata, value)
    ctx.set(axil.wstrb, strobes)
    if address_first is not None:
        ctx.set(axil.awvalid if address_first else axil.wvalid, 1)
        for _ in range(3):
            await ctx.tick()
    ctx.set(axil.awvalid, 1)
    ctx.set(axil.wvalid, 1)
    while not (ctx.get(axil.awready) and ctx.get(axil.wready)):
        await ctx.tick()
    await ctx.tick()
    ctx.set(axil.awvalid, 0)
    ctx.set(axil.wvalid, 0)
    assert ctx.get(axil.bvalid)
    await ctx.tick()
    assert ctx.get(axil.bvalid)  # until it is taken
    ctx.set(axil.bready, 1)
    await ctx.tick()
    ctx.set(axil.bready, 0)
    assert not ctx.get(axil.bvalid)


async def read(ctx, axil, offset):
    ctx.set(axil.araddr, offset)
    ctx.set(axil.arvalid, 1)
    while not ctx.get(axil.arready):
        await ctx.tick()
    await ctx.tick()
    ctx.set(axil.arvalid, 0)
    await ctx.tick()
    assert ctx.get(axil.rvalid)
    value = ctx.get(axil.rdata)
    ctx.set(axil.rready, 1)
    await ctx.tick()
    ctx.set(axil.rready, 0)
    assert not ctx.get(axil.rvalid)
    return value


def test_a_running_program_keeps_its_place(simulate):
    dut = Csr(CFG)

    async def bench(ctx):
        for running, expected in ((0, 5), (1, 5), (0, 9)):
            ctx.set(dut.running, running)
            for name in ("INSN_COUNT", "INSN_ADDR_LO", "INSN_ADDR_HI", "WATCHDOG"):
                await write(ctx, dut.axil, name, 9 if expected == 9 or running else 5)
            assert (ctx.get(dut.count), ctx.get(dut.addr)) == (expected, expected << 32 | expected)
            assert ctx.get(dut.watchdog) == (9 if running else expected)

    simulate(dut, bench)


def test_registers(simulate, rng):
    dut = Csr(CFG)
    counters = {name: int(rng.integers(0, 1 << 32)) for name in COUNTERS}

    async def bench(ctx):
        axil = dut.axil
        ctx.set(dut.counters, counters)
        ctx.set(dut.fault.code, Error.RANGE)
        ctx.set(dut.fault.index, 77)
        ctx.set(dut.done, 1)
        await write(ctx, axil, "INSN_COUNT", 0x12345678, address_first=True)
        await write(ctx, axil, "INSN_ADDR_LO", 0x89ABCDEF, address_first=False)
        await write(ctx, axil, "INSN_ADDR_HI", 0x12)
        await write(ctx, axil, "WATCHDOG", 0xFFFFFFFF)
        await write(ctx, axil, "WATCHDOG", 0, strobes=0b0101)
        await write(ctx, axil, "VERSION", 0)  # ignored
        assert ctx.get(dut.addr) == 0x1289ABCDEF
        assert ctx.get(dut.count) == 0x12345678
        assert ctx.get(dut.watchdog) == 0xFF00FF00
        expected = {
            "VERSION": MAGIC << 16 | ISA_VERSION,
            "FINGERPRINT_LO": CFG.fingerprint & 0xFFFFFFFF,
            "FINGERPRINT_HI": CFG.fingerprint >> 32,
            "CONTROL": 6,
            "INSN_COUNT": 0x12345678,
            "INSN_ADDR_LO": 0x89ABCDEF,
            "INSN_ADDR_HI": 0x12,
            "ERROR": Error.RANGE,
            "ERROR_INSN": 77,
            "WATCHDOG": 0xFF00FF00,
            **counters,
        }
        assert expected.keys() == REGISTERS.keys()
        for name, value in expected.items():
            assert await read(ctx, axil, REGISTERS[name].offset) == value, name
        assert await read(ctx, axil, 0xFFC) == 0

    simulate(dut, bench)


@pytest.mark.parametrize(("value", "start", "reset"), [(1, 1, 0), (2, 0, 1), (3, 1, 1), (0, 0, 0)])
def test_control_gives_pulses(simulate, value, start, reset):
    dut, seen = Csr(CFG), []

    async def bench(ctx):
        await write(ctx, dut.axil, "CONTROL", value)

    async def watch(ctx):
        async for _, _, *pulses in ctx.tick().sample(dut.start, dut.reset):
            seen.append(tuple(pulses))

    simulate(dut, bench, background=[watch])
    assert [p for p in seen if any(p)] == ([(start, reset)] if value else [])


def test_counters(simulate, rng):
    dut = Counters(CFG)
    names = ("busy", "token_wait", "memory_wait", "insn", "bytes")
    total = dict.fromkeys(COUNTERS, 0)

    async def bench(ctx):
        ctx.set(dut.running, 1)
        for _ in range(50):
            for unit in ("load", "compute", "store"):
                for name in names:
                    value = int(rng.integers(0, 65 if name == "bytes" else 2))
                    ctx.set(getattr(getattr(dut, unit), name), value)
                    total[f"{unit}_{name}s".upper() if name == "insn" else f"{unit}_{name}".upper()] += value
            total["CYCLES"] += 1
            await ctx.tick()
        ctx.set(dut.running, 0)
        for unit in ("load", "compute", "store"):
            for name in names:
                ctx.set(getattr(getattr(dut, unit), name), 0)
        await ctx.tick()
        await ctx.tick()
        values = ctx.get(dut.values)
        assert {name: values[name] for name in COUNTERS} == total
        ctx.set(dut.clear, 1)
        await ctx.tick()
        values = ctx.get(dut.values)
        assert not any(values[name] for name in COUNTERS)

    simulate(dut, bench)
