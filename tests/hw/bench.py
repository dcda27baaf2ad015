"""The vocabulary of the tests of circuits: simulate, offer, take, watch, script; numbers as words; a memory.

A testbench is a coroutine function of the simulation's context. `script` makes one of a table, a row per step.
"""

import functools

import numpy as np

from tilewright.hw.isa import Isa, entry_bytes

DRAM_BYTES = 1 << 14


def simulate(dut, *testbenches, background=(), cycles=20_000):
    """Simulate `dut` until the testbenches end; those in the background need not end."""
    from amaranth.sim import Simulator

    sim = Simulator(dut)

    def function(testbench):  # a simulator takes no callable objects
        async def body(ctx):
            await testbench(ctx)

        return body

    async def limit(ctx):
        await ctx.delay(cycles * 1e-8)
        raise AssertionError(f"a testbench did not end in {cycles} cycles")

    sim.add_clock(1e-8, phase=5e-9)
    sim.add_clock(5e-9, phase=5e-9, domain="array", if_exists=True)
    for testbench in (limit, *background):
        sim.add_testbench(function(testbench), background=True)
    for testbench in testbenches:
        sim.add_testbench(function(testbench))
    sim.run()


def script(dut, *rows):
    """A testbench of rows (inputs, outputs, cycles): set the inputs, see the outputs in each of the cycles.

    Inputs and outputs are values by name, which reaches into ports by dots ("fault.code", "heads.2.index"). One cycle
    is the default; with 0 the outputs are seen at once and no clock edge follows.
    """

    def named(name):
        return functools.reduce(
            lambda at, key: at[int(key)] if key.isdigit() else getattr(at, key), name.split("."), dut
        )

    async def bench(ctx):
        for number, (inputs, outputs, *cycles) in enumerate(rows):
            for name, value in inputs.items():
                ctx.set(named(name), value)
            for cycle in range(max(*cycles, 1) if cycles else 1):
                for name, value in outputs.items():
                    assert ctx.get(named(name)) == value, f"row {number}, cycle {cycle}: {name}"
                if cycles != [0]:
                    await ctx.tick()

    return bench


def assign(ctx, port, **values):
    """Set several members of `port`."""
    for name, value in values.items():
        ctx.set(getattr(port, name), value)


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


def offer(stream, values, rng=None, idle=0.3):
    """`put` as a testbench."""

    async def bench(ctx):
        await put(ctx, stream, values, rng, idle)

    return bench


class Take:
    """`get` as a testbench; what came is in `values`."""

    def __init__(self, stream, count, rng=None, idle=0.3):
        self.facts, self.values = (stream, count, rng, idle), []

    async def __call__(self, ctx):
        self.values.extend(await get(ctx, *self.facts))


class Watch:
    """A testbench that samples signals in every cycle: `rows` has their values, a tuple for each cycle."""

    def __init__(self, *signals):
        self.signals, self.rows = signals, []

    async def __call__(self, ctx):
        async for _, _, *values in ctx.tick().sample(*self.signals):
            self.rows.append(tuple(values))

    def at(self, column=0):
        """The cycles in which a signal is not 0."""
        return [cycle for cycle, row in enumerate(self.rows) if row[column]]

    def sum(self, column=0):
        """The sum of a signal over all cycles."""
        return sum(row[column] for row in self.rows)


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


def pack(values, bits=32):
    """`values` of `bits` bits as one number, the first in the lowest bits."""
    flat = np.asarray(values, object).reshape(-1)
    return sum((int(v) & (1 << bits) - 1) << k * bits for k, v in enumerate(flat))


def unpack(number, count, bits=32):
    """The `count` signed values of `bits` bits in `number`."""
    parts = [int(number) >> k * bits & (1 << bits) - 1 for k in range(count)]
    return [v - (v >> bits - 1 << bits) for v in parts]


def random_bits(rng, bits):
    """A random number of `bits` bits."""
    return int.from_bytes(rng.bytes(-(-bits // 8)), "little") & ((1 << bits) - 1)


def instruction(cfg, name, **fields):
    """The word of an instruction in the format `name`."""
    low, high = Isa(cfg).formats[name].encode(**fields)[0].tolist()
    return low | high << 64


def written(cfg, mem, old, en, word):
    """The entry `old` of a scratchpad after a write of the lanes `en`."""
    from tilewright.hw.rtl.ports import entry_bits, lane_bits, word_bits

    lane, width = lane_bits(cfg, mem), word_bits(cfg, mem)
    for k in range(entry_bits(cfg, mem) // lane):
        if en >> k & 1:
            part = word >> k * lane % width & ((1 << lane) - 1)
            old = old & ~(((1 << lane) - 1) << k * lane) | part << k * lane
    return old


async def fill_entry(ctx, write, address, entry):
    """Write the number `entry` to a scratchpad at `address`, a lane in each cycle."""
    size = len(write.data)
    ctx.set(write.addr, address)
    for lane in range(len(write.en)):
        assign(ctx, write, en=1 << lane, data=entry >> lane * size & (1 << size) - 1)
        await ctx.tick()
    ctx.set(write.en, 0)


def random_tile(rng, cfg, mem):
    """A random command for a mover, small, as the fields of its payload."""
    f = {name: int(rng.integers(0, 3)) for name in ("x_pad_0", "x_pad_1", "y_pad_0", "y_pad_1")}
    if rng.random() < 0.4:
        f |= {"x_pad_0": 0, "x_pad_1": 0}
    f |= {"y_size": int(rng.integers(0, 5)), "x_size": int(rng.integers(0, 6)), "pad_value": int(rng.integers(-8, 8))}
    f["x_stride"] = f["x_size"] if rng.random() < 0.5 else int(rng.integers(0, 12))
    f["dram_base"] = int(rng.integers(0, 40)) % (DRAM_BYTES // entry_bytes(cfg, mem) // 2)
    f["sram_base"] = int(rng.integers(0, 8))
    return {"mem": mem.id, **f, "index": int(rng.integers(0, 99)), "push": {"push_next": 1, "push_prev": 0}}


def one_entry(mem, **fields):
    """A command for one entry, but for what `fields` say."""
    names = ("x_pad_0", "x_pad_1", "y_pad_0", "y_pad_1", "pad_value", "dram_base", "sram_base", "index")
    push = {"push_prev": 0, "push_next": 0}
    return {"mem": mem.id, **dict.fromkeys(names, 0), "y_size": 1, "x_size": 1, "x_stride": 1, "push": push} | fields


def kept(dut, cfg, mem, store):
    """A testbench that keeps in `store` what `dut` writes to `mem`: entry -> its bits, as a number."""
    port = getattr(dut, f"write_{mem.name.lower()}")

    async def bench(ctx):
        async for _, _, en, addr, word in ctx.tick().sample(port.en, port.addr, port.data):
            if en:
                store[addr] = written(cfg, mem, store.get(addr, 0), en, word)

    return bench
