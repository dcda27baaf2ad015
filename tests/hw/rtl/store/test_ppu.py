"""hw/rtl/store_data.py with the multipliers: entries and their tags in order, at full rate, whoever waits."""

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import data, wiring

from tilewright.hw.config import PRESETS
from tilewright.hw.rtl.compute.alu import Rescale
from tilewright.hw.rtl.latencies import groups, ppu_latency
from tilewright.hw.rtl.store_data import Ppu

TINY = PRESETS["tiny"]
CONFIGS = {
    "one group": TINY,
    "two groups": TINY.replace(ppu_lanes=2),
    "four groups": TINY.replace(ppu_lanes=1),
    "batch": TINY.replace(batch=2, ppu_lanes=4, inp_bytes=1 << 12, acc_bytes=1 << 13),
}
TAG = data.StructLayout({"part": 3, "ends": 1})


def built(cfg):
    """(module, unit, multipliers); all parameters are zero, so that outputs are the zero points: 0."""
    m, dut, rescale = Module(), Ppu(cfg, tag=TAG), Rescale(cfg)
    m.submodules.dut, m.submodules.rescale = dut, rescale
    wiring.connect(m, dut.port, rescale.ppu)
    return m, dut, rescale


async def identity(ctx, rescale):
    """Parameters of entry 0 that leave small values as they are: one half of the multiplier's range, exponent 1."""
    channel = (1 << 30) << 32 | 1 << 63 | 128 << 77 | 127 << 85
    entry = sum(channel << 96 * c for c in range(rescale.cfg.block_out))
    for beat in range(len(rescale.write.en)):
        ctx.set(rescale.write.en, 1 << beat)
        ctx.set(rescale.write.data, entry >> beat * 64 & (1 << 64) - 1)
        await ctx.tick()
    ctx.set(rescale.write.en, 0)


def word(values, bits):
    return sum((int(v) & (1 << bits) - 1) << k * bits for k, v in enumerate(values))


@pytest.mark.parametrize("name", CONFIGS)
def test_entries_and_tags_stay_in_order(simulate, rng, name):
    cfg = CONFIGS[name]
    (module, dut, rescale), count = built(cfg), 60
    values = rng.integers(-128, 128, (count, cfg.lanes))
    tags = [{"part": int(p), "ends": int(e)} for p, e in rng.integers(0, (8, 2), (count, 2))]
    got = []

    async def source(ctx):
        await identity(ctx, rescale)
        entries = [{"data": word(v, 32), "par": 0, "tag": t} for v, t in zip(values, tags)]
        await simulate.put(ctx, dut.i, entries, rng)

    async def sink(ctx):
        got.extend(await simulate.get(ctx, dut.o, count, rng))
        await ctx.tick()
        assert ctx.get(dut.idle)

    async def alu(ctx):
        while True:
            ctx.set(rescale.alu.en, int(rng.random() < 0.3))
            await ctx.tick()

    simulate(module, source, sink, background=[alu], cycles=3000)
    assert [item.data for item in got] == [word(v, 8) for v in values]
    assert [{"part": item.tag.part, "ends": item.tag.ends} for item in got] == tags


@pytest.mark.parametrize("name", CONFIGS)
def test_latency_and_interval(simulate, name):
    cfg = CONFIGS[name]
    (module, dut, _), count, at = built(cfg), 40, []

    async def source(ctx):
        await simulate.put(ctx, dut.i, [{"data": 0, "par": 0, "tag": {"part": 0, "ends": 0}}] * count)

    async def watch(ctx):
        ctx.set(dut.o.ready, 1)
        for cycle in range(ppu_latency(cfg) + count * groups(cfg)):
            _, _, valid = await ctx.tick().sample(dut.o.valid)
            at.extend([cycle] * valid)

    simulate(module, source, watch, cycles=400)
    assert at == [ppu_latency(cfg) + k * groups(cfg) for k in range(count)]


def test_what_nobody_takes_is_kept(simulate):
    """The multipliers never wait, so the unit stops to begin entries in time."""
    (module, dut, rescale), taken = built(TINY), []

    async def source(ctx):
        await identity(ctx, rescale)
        entries = [{"data": word([k] * 4, 32), "par": 0, "tag": {"part": k % 8, "ends": 0}} for k in range(50)]
        await simulate.put(ctx, dut.i, entries)

    async def sink(ctx):
        await ctx.tick().repeat(100)
        taken.extend(await simulate.get(ctx, dut.o, 50))

    simulate(module, source, sink, cycles=400)
    assert [item.data for item in taken] == [word([k] * 4, 8) for k in range(50)]
    np.testing.assert_array_equal([item.tag.part for item in taken], np.arange(50) % 8)
