"""hw/rtl/control.py: start, end and errors of a run; registers and counters over AXI-Lite."""

import pytest

from tests.hw.bench import Watch, assign, script, simulate
from tilewright.hw.config import ISA_VERSION, PRESETS
from tilewright.hw.metrics import COUNTERS, counters
from tilewright.hw.regs import MAGIC, REGISTERS, Error
from tilewright.hw.rtl.control import Control, Counters, Csr
from tilewright.hw.rtl.latencies import START_LATENCY

CFG = PRESETS["tiny"]
BEGIN = [
    ({"start": 1}, {}),
    ({"start": 0}, {"clear": 1, "running": 1}, START_LATENCY - 1),
    ({}, {"go": 1, "clear": 0}),
    ({}, {"running": 1, "go": 0, "halt": 0, "done": 0}, 0),
]
DRAIN = [
    ({}, {"halt": 1, "running": 1, "done": 0}, 5),
    ({"drained": 1}, {}),
    ({"drained": 0}, {"clear": 1, "running": 0}),
    ({}, {"clear": 0}, 0),
]
FINISH = ({"finished": 1}, {})
RESET = ({"reset": 1}, {})


def fault(code, index=0):
    return {"fault.code": code, "fault.index": index}


RUNS = {
    "a run that ends well and another": 2
    * [*BEGIN, FINISH, ({"finished": 0}, {"done": 1, "running": 0, **fault(Error.NONE)}, 0)],
    "tokens that nothing takes are an error of no instruction": [
        ({"tokens_left": 1}, {}, 0),
        *BEGIN,
        ({}, fault(Error.NONE), 20),
        FINISH,
        ({}, {"done": 1, "running": 0, **fault(Error.TOKENS_LEFT)}, 0),
    ],
    "the first fault is kept until the next start": [
        *BEGIN,
        ({"faults.1.code": Error.RANGE, "faults.1.index": 5}, {}),
        ({"faults.0.code": Error.UNDECODABLE, "faults.0.index": 9}, {}),
        *DRAIN,
        ({"faults.0.code": Error.NONE, "faults.1.code": Error.NONE}, {"done": 1, **fault(Error.RANGE, 5)}, 0),
        *BEGIN,
        ({}, fault(Error.NONE), 0),
    ],
    # the engine can finish in the cycle in which the last unit's fault has just been kept
    "tokens left do not replace a fault": [
        ({"tokens_left": 1}, {}, 0),
        *BEGIN,
        ({"faults.1.code": Error.WRITE_RESPONSE, "faults.1.index": 5}, {}),
        FINISH,
        *DRAIN,
        ({}, fault(Error.WRITE_RESPONSE, 5), 0),
    ],
    "the watchdog names the oldest instruction that waits": [
        ({"watchdog": 20, "heads.0.index": 3, "heads.1.index": 14, "heads.2.index": 12}, {}, 0),
        ({"waiting.1": 1, "waiting.2": 1}, {}, 0),
        *BEGIN,
        *([({"progress": 1}, {"halt": 0}), ({"progress": 0}, {"halt": 0}, 14)] * 7),
        ({}, fault(Error.NONE), 6),
        ({}, {}, 4),
        ({}, fault(Error.WATCHDOG, 12), 0),
        *DRAIN,
        ({}, {"done": 1}, 0),
    ],
    **{
        f"reset ends a run without done, after {wait} cycles": [
            *BEGIN[:-1],
            ({}, {}, wait),
            RESET,
            ({"reset": 0}, {}, 0),
            *DRAIN,
            ({}, {"done": 0, **fault(Error.NONE)}, 0),
            *BEGIN,
        ]
        for wait in (0, 1, 5)
    },
    "reset while idle clears the engine and done": [
        *BEGIN,
        FINISH,
        ({"finished": 0, **RESET[0]}, {}),
        ({"reset": 0}, {"clear": 1, "done": 0, "running": 0}),
        ({}, {"clear": 0}, 0),
    ],
}


@pytest.mark.parametrize("name", RUNS)
def test_runs(name):
    dut = Control(CFG, faults=2)
    simulate(dut, script(dut, *RUNS[name]))


async def write(ctx, axil, name, value, strobes=15, address_first=None):
    """One write; `address_first` True or False lets the other half come three cycles later."""
    assign(ctx, axil, awaddr=REGISTERS[name].offset, wdata=value, wstrb=strobes)
    if address_first is not None:
        ctx.set(axil.awvalid if address_first else axil.wvalid, 1)
        await ctx.tick().repeat(3)
    assign(ctx, axil, awvalid=1, wvalid=1)
    await ctx.tick().until(axil.awready & axil.wready)
    assign(ctx, axil, awvalid=0, wvalid=0)
    assert ctx.get(axil.bvalid)
    await ctx.tick()
    assert ctx.get(axil.bvalid)  # until it is taken
    ctx.set(axil.bready, 1)
    await ctx.tick()
    ctx.set(axil.bready, 0)
    assert not ctx.get(axil.bvalid)


async def read(ctx, axil, offset):
    assign(ctx, axil, araddr=offset, arvalid=1)
    await ctx.tick().until(axil.arready)
    ctx.set(axil.arvalid, 0)
    await ctx.tick()
    assert ctx.get(axil.rvalid)
    value = ctx.get(axil.rdata)
    ctx.set(axil.rready, 1)
    await ctx.tick()
    ctx.set(axil.rready, 0)
    assert not ctx.get(axil.rvalid)
    return value


def test_a_running_program_keeps_its_place():
    dut = Csr(CFG)

    async def bench(ctx):
        for running, expected in ((0, 5), (1, 5), (0, 9)):
            ctx.set(dut.running, running)
            for name in ("INSN_COUNT", "INSN_ADDR_LO", "INSN_ADDR_HI", "WATCHDOG"):
                await write(ctx, dut.axil, name, 9 if expected == 9 or running else 5)
            assert (ctx.get(dut.count), ctx.get(dut.addr)) == (expected, expected << 32 | expected)
            assert ctx.get(dut.watchdog) == (9 if running else expected)

    simulate(dut, bench)


def test_registers(rng):
    dut = Csr(CFG)
    values = {name: int(rng.integers(0, 1 << 32)) for name in ("CYCLES", *counters(CFG))}

    async def bench(ctx):
        axil = dut.axil
        assign(ctx, dut, counters=values, done=1)
        assign(ctx, dut.fault, code=Error.RANGE, index=77)
        await write(ctx, axil, "INSN_COUNT", 0x12345678, address_first=True)
        await write(ctx, axil, "INSN_ADDR_LO", 0x89ABCDEF, address_first=False)
        await write(ctx, axil, "INSN_ADDR_HI", 0x12)
        await write(ctx, axil, "WATCHDOG", 0xFFFFFFFF)
        await write(ctx, axil, "WATCHDOG", 0, strobes=0b0101)
        await write(ctx, axil, "VERSION", 0)  # ignored
        assert (ctx.get(dut.addr), ctx.get(dut.count), ctx.get(dut.watchdog)) == (0x1289ABCDEF, 0x12345678, 0xFF00FF00)
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
            **values,
        }
        assert {name: await read(ctx, axil, register.offset) for name, register in REGISTERS.items()} == expected
        assert await read(ctx, axil, 0xFFC) == 0

    simulate(dut, bench)


@pytest.mark.parametrize(("value", "start", "reset"), [(1, 1, 0), (2, 0, 1), (3, 1, 1), (0, 0, 0)])
def test_control_gives_pulses(value, start, reset):
    dut = Csr(CFG)
    pulses = Watch(dut.start, dut.reset)

    async def bench(ctx):
        await write(ctx, dut.axil, "CONTROL", value)

    simulate(dut, bench, background=[pulses])
    assert [p for p in pulses.rows if any(p)] == ([(start, reset)] if value else [])


def test_counters(rng):
    dut, total = Counters(CFG), dict.fromkeys(("CYCLES", *counters(CFG)), 0)
    signals = {name: "insn" if name == "INSNS" else name.lower() for name in COUNTERS}

    async def bench(ctx):
        for cycle in range(51):  # the last drives zeros
            for unit in ("load", "compute", "store"):
                for name, signal in signals.items():
                    value = int(rng.integers(0, 65 if name == "BYTES" else 2)) if cycle < 50 else 0
                    ctx.set(getattr(getattr(dut, unit), signal), value)
                    total[f"{unit.upper()}_{name}"] += value
            ctx.set(dut.running, int(cycle < 50))
            await ctx.tick()
        total["CYCLES"] = 50
        await ctx.tick()
        assert {name: ctx.get(dut.values)[name] for name in total} == total
        ctx.set(dut.clear, 1)
        await ctx.tick()
        assert not any(ctx.get(dut.values)[name] for name in total)

    simulate(dut, bench)
