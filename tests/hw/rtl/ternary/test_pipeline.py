"""hw/rtl/ternary.py: sums in the accumulators, one issue per cycle, and the banks in use."""

import numpy as np
import pytest
from amaranth.hdl import Module

from tilewright.hw.config import PRESETS
from tilewright.hw.rtl.latencies import ternary_latency
from tilewright.hw.rtl.ternary import TernaryExecute

TWO = PRESETS["tiny_two"]
ROWS = TWO.replace(
    name="rows", batch=2, block_in=8, ternary_blocks=2, twgt_bytes=1 << 10, acc_bytes=1 << 12, extensions={"requant"}
)
SINGLE = TWO.replace(name="single", block_in=1, twgt_bytes=256, extensions={"requant"})


def bench(cfg, operands, seed=1):
    m = Module()
    m.submodules.dut = dut = TernaryExecute(cfg)
    held = operands(m, cfg, np.random.default_rng(seed))
    held.connect(m, dut.inp, dut.wgt, dut.read, dut.write)
    return m, dut, held


def issue(cfg, dst, src=0, wgt=0, *, reset=0, overwrite=0, last=0):
    bank, place = divmod(dst, cfg.bank_depth)
    flags = {"reset": reset, "clear": reset | overwrite, "last": last}
    return {"banks": 1 << bank, "place": place, "src": src, "wgt": wgt, **flags}


async def put(ctx, dut, payload):
    """One issue; returns the cycles that it waited."""
    ctx.set(dut.issues.payload, payload)
    ctx.set(dut.issues.valid, 1)
    waited = 0
    while not ctx.get(dut.issues.ready):
        await ctx.tick()
        waited += 1
    await ctx.tick()
    ctx.set(dut.issues.valid, 0)
    return waited


@pytest.mark.parametrize("cfg", [TWO, ROWS, SINGLE], ids=lambda cfg: cfg.name)
@pytest.mark.parametrize("gaps", [0.0, 0.4])
@pytest.mark.parametrize("entries", [1, 3])
def test_every_issue_finds_what_those_before_it_left(simulate, operands, rng, cfg, gaps, entries):
    """On few accumulators, so that results are taken from every stage; without gaps none waits."""
    m, dut, held = bench(cfg, operands)
    places = [int(rng.integers(0, 4)) * cfg.bank_depth + int(rng.integers(0, 2)) for _ in range(entries)]

    async def main(ctx):
        await held.fill(ctx)
        for _ in range(100):
            dst, src, wgt = int(rng.choice(places)), int(rng.integers(0, 4)), int(rng.integers(0, 4))
            kind = {"reset": int(rng.random() < 0.08)}
            kind["overwrite"] = int(not kind["reset"] and rng.random() < 0.1)
            held.execute(dst, src, wgt, **kind)
            assert await put(ctx, dut, issue(cfg, dst, src, wgt, **kind)) == 0
            if rng.random() < gaps:
                await ctx.tick().repeat(int(rng.integers(1, 5)))
        await ctx.tick().repeat(20)
        await held.compare(ctx)

    simulate(m, main, cycles=900)


def test_sums_wrap(simulate, operands):
    m, dut, held = bench(TWO, operands)
    held.inp[0], held.bits[0] = -128, 3
    held.bits[0, 1] = 1
    held.acc[:32:8] = 0
    trips = 40

    async def main(ctx):
        await held.fill(ctx)
        write = held.accumulators.write
        ctx.set(write.data, sum(0x7FFF_FF00 << 32 * k for k in range(4)))
        ctx.set(write.en, 1)
        await ctx.tick()
        ctx.set(write.en, 0)
        held.acc[0] = 0x7FFF_FF00
        with np.errstate(over="ignore"):
            for _ in range(trips):
                held.execute(0, 0, 0)
        for _ in range(trips):
            await put(ctx, dut, issue(TWO, 0))
        await ctx.tick().repeat(20)
        assert (held.acc[0] < 0).all()
        await held.compare(ctx)

    simulate(m, main, cycles=900)


@pytest.mark.parametrize("cfg", [TWO, SINGLE], ids=lambda cfg: cfg.name)
def test_latency_and_the_banks_in_use(simulate, operands, cfg):
    """A bank is in use from the cycle behind its issue to that of its write, with which the instruction ends."""
    m, dut, _ = bench(cfg, operands)
    seen = []

    async def watch(ctx):
        while True:
            _, _, busy, write, retire = await ctx.tick().sample(dut.busy, dut.write.en, dut.retire)
            seen.append((busy, write, retire))

    async def main(ctx):
        await ctx.tick().repeat(2)
        seen.clear()
        await put(ctx, dut, issue(cfg, 2 * cfg.bank_depth, last=1))
        await ctx.tick().repeat(20)

    simulate(m, main, background=[watch], cycles=100)
    end = ternary_latency(cfg)
    assert seen[: end + 2] == [(0, 0, 0)] + [(4, 0, 0)] * (end - 1) + [(4, 4, 1), (0, 0, 0)]


def test_an_issue_waits_while_compute_uses_its_bank(simulate, operands):
    m, dut, _ = bench(TWO, operands)

    async def main(ctx):
        ctx.set(dut.compute_busy, 0b1011)
        assert await put(ctx, dut, issue(TWO, 2 * TWO.bank_depth)) == 0
        assert await put(ctx, dut, {"banks": 0, "last": 1}) == 0  # an instruction without issues uses none
        ctx.set(dut.issues.payload, issue(TWO, TWO.bank_depth))
        ctx.set(dut.issues.valid, 1)
        for _ in range(12):
            assert not ctx.get(dut.issues.ready)
            await ctx.tick()
        assert ctx.get(dut.busy) == 0
        ctx.set(dut.compute_busy, 0b1001)
        assert ctx.get(dut.issues.ready)

    simulate(m, main, cycles=900)


def test_a_reset_reads_nothing(simulate, operands):
    m, dut, _ = bench(TWO, operands)
    reads = []

    async def watch(ctx):
        while True:
            _, _, *found = await ctx.tick().sample(dut.inp.en, dut.wgt.en, dut.read.en)
            reads.append(any(found))

    async def main(ctx):
        await put(ctx, dut, issue(TWO, 0, reset=1))
        await ctx.tick().repeat(15)
        assert not any(reads)
        await put(ctx, dut, issue(TWO, 0, overwrite=1))
        await ctx.tick().repeat(15)
        assert sum(reads) == 2  # inputs, weights; no accumulators

    simulate(m, main, background=[watch], cycles=100)
