"""What the tests of RTL modules share: a simulator with a time limit, the two ends of a stream, a memory."""

from types import SimpleNamespace

import numpy as np
import pytest

from tilewright.hw.isa import entry_bytes

DRAM_BYTES = 1 << 14


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


def answers(dut, dram, takes=lambda: True, gives=lambda: True, broken=()):
    """A testbench that answers the requests of `dut` from `dram`, in order; of beats that are `broken` with an error.

    `takes()` is whether it takes a request in a cycle, `gives()` whether it gives a beat.
    """
    size = dut.cfg.axi_bits // 8

    async def bench(ctx):
        todo = []
        while True:
            ctx.set(dut.req.ready, int(takes()))
            valid = bool(todo) and gives()
            ctx.set(dut.beats.valid, int(valid))
            if valid:
                data = int.from_bytes(dram[todo[0] * size : (todo[0] + 1) * size].tobytes(), "little")
                ctx.set(dut.beats.payload, {"data": data, "error": int(todo[0] in broken)})
            ends = (dut.req.valid, dut.req.ready, dut.req.payload, dut.beats.ready)
            _, _, asked, ready, request, taken = await ctx.tick().sample(*ends)
            if valid and taken:
                todo.pop(0)
            if asked and ready:
                assert request.beats > 0
                todo.extend(range(request.addr, request.addr + request.beats))

    return bench


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

    run.put, run.get, run.answers = put, get, answers
    return run


def tile(rng, cfg, mem):
    """A random command for a mover, small, as the fields of its payload."""
    f = {name: int(rng.integers(0, 3)) for name in ("x_pad_0", "x_pad_1", "y_pad_0", "y_pad_1")}
    if rng.random() < 0.4:
        f |= {"x_pad_0": 0, "x_pad_1": 0}
    f |= {"y_size": int(rng.integers(0, 5)), "x_size": int(rng.integers(0, 6)), "pad_value": int(rng.integers(-8, 8))}
    f["x_stride"] = f["x_size"] if rng.random() < 0.5 else int(rng.integers(0, 12))
    f["dram_base"] = int(rng.integers(0, 40)) % (DRAM_BYTES // entry_bytes(cfg, mem) // 2)
    f["sram_base"] = int(rng.integers(0, 8))
    return {"mem": mem.id, **f, "index": int(rng.integers(0, 99)), "push": {"push_next": 1, "push_prev": 0}}


def simple(mem, **fields):
    """A command for one entry, but for what `fields` say."""
    names = ("x_pad_0", "x_pad_1", "y_pad_0", "y_pad_1", "pad_value", "dram_base", "sram_base", "index")
    push = {"push_prev": 0, "push_next": 0}
    return {"mem": mem.id, **dict.fromkeys(names, 0), "y_size": 1, "x_size": 1, "x_stride": 1, "push": push} | fields


def scratchpad(dut, cfg, mem, store):
    """A testbench that keeps in `store` what `dut` writes to `mem`: entry -> its bits, as a number."""
    from tilewright.hw.rtl.ports import lane_bits

    port, lane = getattr(dut, f"write_{mem.name.lower()}"), lane_bits(cfg, mem)

    async def bench(ctx):
        async for _, _, en, addr, word in ctx.tick().sample(port.en, port.addr, port.data):
            for k in range(len(port.en)):
                if en >> k & 1:
                    part = word >> k * lane % len(port.data) & ((1 << lane) - 1)
                    mask = ((1 << lane) - 1) << k * lane
                    store[addr] = store.get(addr, 0) & ~mask | part << k * lane

    return bench


@pytest.fixture
def moves():
    """Commands for the mover and its parts, and what they do to scratchpads."""
    return SimpleNamespace(tile=tile, simple=simple, scratchpad=scratchpad, dram_bytes=DRAM_BYTES)
