"""hw/rtl/compute/alu.py against formulas in Python's integers, at the edges of all parameters and between."""

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import PAR
from tilewright.hw.rtl.compute.alu import Rescale
from tilewright.hw.rtl.latencies import REQUANTISE_LATENCY, RESCALE_LATENCY, groups, multipliers

TINY = PRESETS["tiny"]
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


def word(values, bits=32):
    return sum((int(v) & (1 << bits) - 1) << k * bits for k, v in enumerate(values))


def values_of(number, count, bits):
    parts = [number >> k * bits & (1 << bits) - 1 for k in range(count)]
    return [v - (v >> bits - 1 << bits) for v in parts]


async def fill(ctx, dut, channels):
    """The PAR scratchpad, beat by beat."""
    cfg, write = dut.cfg, dut.write
    for entry in range(0, len(channels), cfg.block_out):
        bits = 0
        for k, p in enumerate(channels[entry : entry + cfg.block_out]):
            bits |= sum(int(w) << 64 * n for n, w in enumerate(PAR.encode(1, **p)[0])) << k * PAR.width
        ctx.set(write.addr, entry // cfg.block_out)
        for beat in range(len(write.en)):
            ctx.set(write.en, 1 << beat)
            ctx.set(write.data, bits >> beat * cfg.axi_bits & (1 << cfg.axi_bits) - 1)
            await ctx.tick()
    ctx.set(write.en, 0)


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
        for name, value in (("a", word(a)), ("b", word(b)), ("par", entry), ("rescale", not product), ("en", 1)):
            ctx.set(getattr(port, name), value)
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
        for name, value in (("a", word(a)), ("par", entry), ("en", 1)):
            ctx.set(getattr(port, name), value)
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
                assert values_of(products, count, 32) == self.wanted["alu"].pop(self.cycle)
                self.seen += 1
            assert valid == (self.cycle in self.wanted["ppu"])
            if valid:
                assert values_of(stored, count, 8) == self.wanted["ppu"].pop(self.cycle)
                self.seen += 1
            self.cycle += 1


@pytest.mark.parametrize("exponents", range(4))
def test_all_exponents_and_edges(simulate, exponents):
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
def test_both_users_at_once(simulate, rng, name):
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
