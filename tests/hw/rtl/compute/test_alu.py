"""hw/rtl/compute/alu.py: element-wise operations, requantisation, LOOKUP and REDUCE."""

import numpy as np
import pytest
from amaranth.hdl import C
from amaranth.sim import Simulator

from tests.hw.bench import Watch, assign, fill_entry, pack, simulate, unpack
from tilewright.hw.config import PRESETS
from tilewright.hw.isa import PAR, AluOp
from tilewright.hw.rtl.compute.alu import Alu, Functions, Multiplier, Rescale, chosen
from tilewright.hw.rtl.latencies import MULTIPLIER_LATENCY, REQUANTISE_LATENCY, RESCALE_LATENCY, groups, multipliers
from tilewright.runtime.layout import pack_table
from tilewright.sim.model.alu import shift_right

TINY = PRESETS["tiny"]

EDGES = np.array([-(2**31), -(2**31) + 1, -65536, -33, -32, -31, -17, -1, 0, 1, 15, 31, 32, 33, 65535, 2**31 - 1])

MODEL = {
    AluOp.MIN: np.minimum,
    AluOp.MAX: np.maximum,
    AluOp.ADD: np.add,
    AluOp.SHR: shift_right,
    AluOp.MUL: np.multiply,
}


def operands(count):
    """Rows of `count` lanes: every pair of edges, then random numbers and random shift amounts."""
    rng = np.random.default_rng(3)
    a, b = (v.reshape(-1) for v in np.meshgrid(EDGES, EDGES))
    a = np.concatenate([a, rng.integers(-(2**31), 2**31, 256)])
    b = np.concatenate([b, rng.integers(-(2**31), 2**31, 128), rng.integers(-40, 40, 128)])
    return a.astype(np.int32).reshape(-1, count), b.astype(np.int32).reshape(-1, count)


@pytest.mark.parametrize("op", [op for op in AluOp if op < AluOp.MUL])
def test_lanes(op):
    alu, count = Alu(TINY), TINY.lanes

    async def drive(ctx):
        ctx.set(alu.choice, {name: ctx.get(value) for name, value in chosen(C(op, 3)).items()})
        for a, b in zip(*operands(count)):
            assign(ctx, alu, a=pack(a), b=pack(b), other=pack(a[::-1]))
            assert unpack(ctx.get(alu.o | alu.shifted), count) == MODEL[op](a, b).tolist(), (a, b)

    combinational(alu, drive)


def test_without_an_operation_the_other_entry_is_the_result():
    alu, count = Alu(TINY), TINY.lanes

    async def drive(ctx):
        for a, other in zip(*(values[::4] for values in operands(count))):
            assign(ctx, alu, a=pack(a), b=pack(a[::-1]), other=pack(other), use=1)
            assert unpack(ctx.get(alu.o | alu.shifted), count) == other.tolist()

    combinational(alu, drive)


def combinational(dut, drive):
    """Simulate a circuit without a clock."""
    sim = Simulator(dut)
    sim.add_testbench(drive)
    sim.run()


@pytest.mark.parametrize("ppu_lanes", [1, 2, 4, 16])
def test_multiplier(ppu_lanes):
    cfg = TINY.replace(ppu_lanes=ppu_lanes)
    unit, count, width = Multiplier(cfg), cfg.lanes, multipliers(cfg)
    assert groups(cfg) == max(1, 4 // ppu_lanes)
    a, b = (v[::3] for v in operands(count))
    products = Watch(unit.alu.o)

    async def drive(ctx):
        ctx.set(unit.alu.en, 1)
        for u, v in zip(a, b):
            assign(ctx, unit.alu, a=pack(u), b=pack(v))
            for group in range(groups(cfg)):
                ctx.set(unit.alu.group, group)
                await ctx.tick()
        ctx.set(unit.alu.en, 0)
        await ctx.tick().repeat(MULTIPLIER_LATENCY)

    simulate(unit, drive, background=[products])
    rows = products.rows[MULTIPLIER_LATENCY : MULTIPLIER_LATENCY + groups(cfg) * len(a)]
    got = np.concatenate([unpack(row[0], width) for row in rows])
    np.testing.assert_array_equal(got.reshape(a.shape), (a * b))


MULTIPLIERS = (0, 1, 1 << 30, (1 << 30) + 1, 3 << 29, (1 << 31) - 1)

CONFIGS = {
    "tiny": TINY,
    "two groups": TINY.replace(ppu_lanes=2),
    "one lane": TINY.replace(ppu_lanes=1),
    "batch over channels": TINY.replace(batch=4, ppu_lanes=8, inp_bytes=1 << 12, acc_bytes=1 << 13),
    "two rows of groups": TINY.replace(batch=2, ppu_lanes=2, axi_bits=128, inp_bytes=1 << 12, acc_bytes=1 << 13),
}


def wrap(value):
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def rounded(t, p):
    """R(t) for the parameters `p` of a channel; ties as each contract wants them."""
    if p["mode"]:
        scaled = t * p["multiplier"] << p["exponent"] + 32  # in units of 2**-63
        return (scaled + (1 << 62)) >> 63
    high = (2 * wrap(t << max(p["exponent"], 0)) * p["multiplier"] + (1 << 31)) >> 32
    step = 1 << max(-p["exponent"], 0)
    size = (2 * abs(high) + step) // (2 * step)
    return size if high >= 0 else -size


def requantised(acc, p):
    return min(max(p["zero_point"] + rounded(wrap(acc + p["bias"]), p), p["low"]), p["high"])


def parameters(rng, count):
    """`count` channels: every exponent, mode and edge of the multiplier, and whatever else at random."""
    out = []
    for k in range(count):
        edge = MULTIPLIERS[k // 128 % 8] if k // 128 % 8 < len(MULTIPLIERS) else int(rng.integers(1 << 30, 1 << 31))
        low, high = (int(v) for v in rng.integers(-128, 128, 2)) if rng.random() < 0.3 else (-128, 127)
        bias = int(rng.choice([0, 1 << 30, -(1 << 30), (1 << 31) - 1, -(1 << 31), rng.integers(-(10**6), 10**6)]))
        exponent = k // 2 % 64 - 32
        values = {"bias": bias, "multiplier": edge, "exponent": exponent, "mode": k % 2, "low": low, "high": high}
        out.append(values | {"zero_point": int(rng.choice([-128, 0, 127, rng.integers(-128, 128)]))})
    return out


def accumulators(rng, p, count):
    """int32 values whose results under `p` are ties, in the range of int8, at the edges, or anything."""
    power, odd = 1 << int(rng.integers(0, 31)), 2 * int(rng.integers(0, 64)) + 1
    near = min((128 << 31 - p["exponent"]) // max(p["multiplier"], 1), (1 << 31) - 1)
    pool = [0, 1, -1, (1 << 31) - 1, -(1 << 31), power, -power, odd * power, -odd * power, near, -near]
    pool += [int(rng.integers(-near - 1, near + 1)) for _ in range(5)] + [v - p["bias"] for v in pool[5:9]]
    pool += [int(v) for v in rng.integers(-(1 << 31), 1 << 31, 4)]
    return [wrap(pool[int(k)] + int(d)) for k, d in zip(rng.integers(0, len(pool), count), rng.integers(-1, 2, count))]


async def fill(ctx, dut, channels):
    """The PAR scratchpad, entry by entry."""
    block = dut.cfg.block_out
    for first in range(0, len(channels), block):
        words = [int.from_bytes(PAR.encode(1, **p)[0].tobytes(), "little") for p in channels[first : first + block]]
        await fill_entry(ctx, dut.write, first // block, pack(words, PAR.width))


class Bench:
    """Random entries to both ports of a unit; what comes back, and when."""

    def __init__(self, cfg, channels, rng):
        self.cfg, self.dut, self.channels, self.rng, self.cycle = cfg, Rescale(cfg), channels, rng, 0
        self.wanted = {"alu": {}, "ppu": {}}  # cycle -> lanes
        self.seen = 0

    def operands(self, entry):
        """Lane by lane: the parameters of its channel, and two values."""
        block = self.cfg.block_out
        pars = [self.channels[entry * block + k % block] for k in range(self.cfg.lanes)]
        return pars, [accumulators(self.rng, p, 1)[0] for p in pars], [accumulators(self.rng, p, 1)[0] for p in pars]

    async def alu(self, ctx, entry, product):
        """One entry, whose groups follow each other."""
        port, count = self.dut.alu, multipliers(self.cfg)
        pars, a, b = self.operands(entry)
        results = [wrap(x * y) if product else wrap(rounded(x, p)) for p, x, y in zip(pars, a, b)]
        assign(ctx, port, a=pack(a), b=pack(b), par=entry, rescale=not product, en=1)
        for group in range(groups(self.cfg)):
            ctx.set(port.group, group)
            self.wanted["alu"][self.cycle + RESCALE_LATENCY] = results[group * count : (group + 1) * count]
            await ctx.tick()
        ctx.set(port.en, 0)

    async def ppu(self, ctx, entry):
        """One entry, whose groups enter when they may."""
        port, count = self.dut.ppu, multipliers(self.cfg)
        pars, a, _ = self.operands(entry)
        results = [requantised(x, p) for p, x in zip(pars, a)]
        assign(ctx, port, a=pack(a), par=entry, en=1)
        for group in range(groups(self.cfg)):
            ctx.set(port.group, group)
            await ctx.tick().until(port.ready)
            at = self.cycle - 1 + REQUANTISE_LATENCY
            self.wanted["ppu"][at] = results[group * count : (group + 1) * count]
        ctx.set(port.en, 0)

    async def check(self, ctx):
        """Compares in every cycle."""
        count, (alu, ppu) = multipliers(self.cfg), (self.dut.alu, self.dut.ppu)
        async for _, _, products, valid, stored in ctx.tick().sample(alu.o, ppu.o_en, ppu.o):
            if self.cycle in self.wanted["alu"]:
                assert unpack(products, count) == self.wanted["alu"].pop(self.cycle)
                self.seen += 1
            assert valid == (self.cycle in self.wanted["ppu"])
            if valid:
                assert unpack(stored, count, 8) == self.wanted["ppu"].pop(self.cycle)
                self.seen += 1
            self.cycle += 1


@pytest.mark.circuit
@pytest.mark.parametrize("exponents", range(4))
def test_all_exponents_and_edges(exponents):
    """A quarter of 1,024 channels each; every lane and every channel sees its own parameters."""
    cfg, rng = TINY.replace(par_entries=64), np.random.default_rng(exponents)
    bench = Bench(cfg, parameters(rng, 1024)[exponents::4], rng)
    dut = bench.dut

    async def source(ctx):
        await fill(ctx, dut, bench.channels)
        for entry in list(range(cfg.par_entries)) * 8:
            await bench.ppu(ctx, entry)
        for entry in list(range(cfg.par_entries)) * 4:
            await bench.alu(ctx, entry, False)
        await ctx.tick().repeat(REQUANTISE_LATENCY + 1)

    simulate(dut, source, background=[bench.check], cycles=3000)
    assert bench.seen == 12 * cfg.par_entries


@pytest.mark.parametrize("name", CONFIGS)
def test_both_users_at_once(rng, name):
    cfg = CONFIGS[name]
    bench = Bench(cfg, parameters(rng, cfg.par_entries * cfg.block_out), rng)
    dut, filled = bench.dut, []

    async def alu(ctx):
        await fill(ctx, dut, bench.channels)
        filled.append(1)
        for _ in range(60):
            for _ in range(int(rng.integers(0, 3))):
                await ctx.tick()
            await bench.alu(ctx, int(rng.integers(cfg.par_entries)), bool(rng.integers(2)))

    async def ppu(ctx):
        while not filled:
            await ctx.tick()
        for _ in range(60):
            for _ in range(int(rng.integers(0, 3))):
                await ctx.tick()
            await bench.ppu(ctx, int(rng.integers(cfg.par_entries)))
        await ctx.tick().repeat(200)

    simulate(dut, alu, ppu, background=[bench.check], cycles=3000)
    assert bench.seen == 120 * groups(cfg)


TABLES_TINY = PRESETS["tiny"].replace(tables=2, extensions=PRESETS["tiny"].extensions | {"lookup", "lane_reduce"})

LARGE = {"batch": 4, "inp_bytes": 1 << 12, "acc_bytes": 1 << 13}

TABLES_CONFIGS = {
    "tiny": TABLES_TINY,
    "one lane at a time": TABLES_TINY.replace(ppu_lanes=1, tables=1),
    "several rows at once": TABLES_TINY.replace(**LARGE, ppu_lanes=8, axi_bits=128),
    "rows of several groups": TABLES_TINY.replace(**LARGE, ppu_lanes=2, axi_bits=32, tables=4),
    "tables alone": TABLES_TINY.replace(extensions=TABLES_TINY.extensions - {"lane_reduce"}),
    "reductions alone": TABLES_TINY.replace(extensions=TABLES_TINY.extensions - {"lookup"}),
    "pynq_z1_plus": PRESETS["pynq_z1_plus"],
}


def wrapped(values):
    return (np.asarray(values, np.int64) + (1 << 31)) % (1 << 32) - (1 << 31)


class TableBench:
    """Random entries, one after the other or with pauses; what comes back, and when."""

    def __init__(self, cfg, seed=1):
        self.cfg, self.dut, self.rng, self.cycle = cfg, Functions(cfg), np.random.default_rng(seed), 0
        self.tables = self.rng.integers(-(1 << 31), 1 << 31, (cfg.tables, 256))
        self.wanted, self.seen = {}, set()

    async def load(self, ctx, table, values):
        """As a LOAD of PAR does, beat by beat; what an entry has beyond its values is not seen."""
        cfg = self.cfg
        first = cfg.par_entries + table * cfg.table_entries
        for k, entry in enumerate(pack_table(values, cfg)):
            entry.reshape(-1)[cfg.table_words :] = 0x5A5A5A5A
            await fill_entry(ctx, self.dut.write, first + k, pack(entry))

    async def parameters(self, ctx):
        """Writes of parameters, which no table takes."""
        write = self.dut.write
        assign(ctx, write, en=(1 << len(write.en)) - 1, data=(1 << len(write.data)) - 1)
        for entry in range(self.cfg.par_entries):
            ctx.set(write.addr, entry)
            await ctx.tick()
        ctx.set(write.en, 0)

    def operands(self):
        kind = self.rng.integers(0, 3)
        low, high = ((-128, 128), (-300, 300), (-(1 << 31), 1 << 31))[kind]
        return self.rng.integers(low, high, self.cfg.lanes)

    async def use(self, ctx, name, imm):
        """An entry, group by group."""
        use, a = self.dut.use, self.operands()
        if name == "lookup":
            result = self.tables[imm][np.clip(a, -128, 127) + 128]
        else:
            rows = a.reshape(-1, self.cfg.block_out)
            result = np.repeat(wrapped(rows.max(1) if imm else rows.sum(1)), self.cfg.block_out)
        assign(ctx, use, **{name: 1}, imm=imm, a=pack(a))
        for group in range(groups(self.cfg)):
            ctx.set(use.group, group)
            self.wanted[self.cycle + RESCALE_LATENCY] = pack(
                result[group * multipliers(self.cfg) :][: multipliers(self.cfg)]
            )
            await ctx.tick()
        assign(ctx, use, **{name: 0}, a=pack(self.operands()), imm=0, group=0)
        self.seen.add((name, imm))

    async def check(self, ctx):
        """Compares in every cycle: 0 where nothing is due."""
        async for _, _, o in ctx.tick().sample(self.dut.use.o):
            assert o == self.wanted.pop(self.cycle, 0), f"cycle {self.cycle}"
            self.cycle += 1


@pytest.mark.circuit
@pytest.mark.parametrize("name", TABLES_CONFIGS)
def test_every_value_comes_after_the_latency_of_the_multipliers(name):
    cfg = TABLES_CONFIGS[name]
    bench = TableBench(cfg)
    kinds = [("lookup", k) for k in range(cfg.tables)] if "lookup" in cfg.extensions else []
    kinds += [("reduce", 0), ("reduce", 1)] if "lane_reduce" in cfg.extensions else []

    async def source(ctx):
        for table in range(cfg.tables if "lookup" in cfg.extensions else 0):
            await bench.load(ctx, table, bench.tables[table])
        await bench.parameters(ctx)
        for _ in range(250):
            await bench.use(ctx, *kinds[bench.rng.integers(len(kinds))])
            if not bench.rng.integers(3):
                await ctx.tick().repeat(int(bench.rng.integers(1, 14)))
        await ctx.tick().repeat(RESCALE_LATENCY + 1)

    simulate(bench.dut, source, background=[bench.check], cycles=20000)
    assert bench.seen == set(kinds) and not bench.wanted


def test_a_table_is_used_after_another_was_loaded_in_its_place():
    bench = TableBench(TABLES_TINY)

    async def source(ctx):
        for turn in range(3):
            bench.tables[1] = np.arange(256) + turn
            await bench.load(ctx, 1, bench.tables[1])
            await ctx.tick()
            await bench.use(ctx, "lookup", 1)
            await ctx.tick().repeat(RESCALE_LATENCY + 1)  # a token tells that the values are there

    simulate(bench.dut, source, background=[bench.check], cycles=3000)
    assert not bench.wanted
