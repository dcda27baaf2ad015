"""hw/rtl/compute/alu.py against tables and sums in numpy: every lane, every table, groups without a pause."""

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.rtl.compute.alu import Functions
from tilewright.hw.rtl.latencies import RESCALE_LATENCY, groups, multipliers
from tilewright.runtime.layout import pack_table

TINY = PRESETS["tiny"].replace(tables=2, extensions=PRESETS["tiny"].extensions | {"lookup", "lane_reduce"})
LARGE = {"batch": 4, "inp_bytes": 1 << 12, "acc_bytes": 1 << 13}
CONFIGS = {
    "tiny": TINY,
    "one lane at a time": TINY.replace(ppu_lanes=1, tables=1),
    "several rows at once": TINY.replace(**LARGE, ppu_lanes=8, axi_bits=128),
    "rows of several groups": TINY.replace(**LARGE, ppu_lanes=2, axi_bits=32, tables=4),
    "tables alone": TINY.replace(extensions=TINY.extensions - {"lane_reduce"}),
    "reductions alone": TINY.replace(extensions=TINY.extensions - {"lookup"}),
    "pynq_z1_plus": PRESETS["pynq_z1_plus"],
}


def word(values):
    return sum((int(v) & 0xFFFFFFFF) << 32 * k for k, v in enumerate(values))


def wrap(values):
    return (np.asarray(values, np.int64) + (1 << 31)) % (1 << 32) - (1 << 31)


class Bench:
    """Random entries, one after the other or with pauses; what comes back, and when."""

    def __init__(self, cfg, seed=1):
        self.cfg, self.dut, self.rng, self.cycle = cfg, Functions(cfg), np.random.default_rng(seed), 0
        self.tables = self.rng.integers(-(1 << 31), 1 << 31, (cfg.tables, 256))
        self.wanted, self.seen = {}, set()

    async def load(self, ctx, table, values):
        """As a LOAD of PAR does, beat by beat; what an entry has beyond its values is not seen."""
        cfg, write = self.cfg, self.dut.write
        first = cfg.par_entries + table * cfg.table_entries
        for k, entry in enumerate(pack_table(values, cfg)):
            entry.reshape(-1)[cfg.table_words :] = 0x5A5A5A5A
            bits = int.from_bytes(entry.astype("<u4").tobytes(), "little")
            ctx.set(write.addr, first + k)
            for beat in range(len(write.en)):
                ctx.set(write.en, 1 << beat)
                ctx.set(write.data, bits >> beat * cfg.axi_bits & (1 << cfg.axi_bits) - 1)
                await ctx.tick()
        ctx.set(write.en, 0)

    async def parameters(self, ctx):
        """Writes of parameters, which no table takes."""
        write = self.dut.write
        ctx.set(write.en, (1 << len(write.en)) - 1)
        ctx.set(write.data, (1 << len(write.data)) - 1)
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
            result = np.repeat(wrap(rows.max(1) if imm else rows.sum(1)), self.cfg.block_out)
        for field, value in ((name, 1), ("imm", imm), ("a", word(a))):
            ctx.set(getattr(use, field), value)
        for group in range(groups(self.cfg)):
            ctx.set(use.group, group)
            self.wanted[self.cycle + RESCALE_LATENCY] = word(
                result[group * multipliers(self.cfg) :][: multipliers(self.cfg)]
            )
            await ctx.tick()
        ctx.set(getattr(use, name), 0)
        ctx.set(use.a, word(self.operands()))
        ctx.set(use.imm, 0)
        ctx.set(use.group, 0)
        self.seen.add((name, imm))

    async def check(self, ctx):
        """Compares in every cycle: 0 where nothing is due."""
        async for _, _, o in ctx.tick().sample(self.dut.use.o):
            assert o == self.wanted.pop(self.cycle, 0), f"cycle {self.cycle}"
            self.cycle += 1


@pytest.mark.parametrize("name", CONFIGS)
def test_every_value_comes_after_the_latency_of_the_multipliers(simulate, name):
    cfg = CONFIGS[name]
    bench = Bench(cfg)
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


def test_a_table_is_used_after_another_was_loaded_in_its_place(simulate):
    bench = Bench(TINY)

    async def source(ctx):
        for turn in range(3):
            bench.tables[1] = np.arange(256) + turn
            await bench.load(ctx, 1, bench.tables[1])
            await ctx.tick()
            await bench.use(ctx, "lookup", 1)
            await ctx.tick().repeat(RESCALE_LATENCY + 1)  # a token tells that the values are there

    simulate(bench.dut, source, background=[bench.check], cycles=3000)
    assert not bench.wanted
