"""hw/rtl/axi.py: bursts cover a transfer in order and end at boundaries, without a pause."""

import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.rtl.axi import Splitter
from tilewright.hw.rtl.latencies import BURST_BEATS

CFG = PRESETS["tiny"]


def expected(addr, beats):
    """(address, length, whether it is the last) of each burst."""
    bursts = []
    while beats:
        length = min(beats, BURST_BEATS - addr % BURST_BEATS)
        beats -= length
        bursts.append((addr, length, int(beats == 0)))
        addr += length
    return bursts


async def take(ctx, dut, count, bursts, rng=None):
    """Take `count` bursts; returns the cycles that it took. With `rng`, after random pauses."""
    cycles = 0
    while len(bursts) < count:
        ready = bool(ctx.get(dut.valid)) and (rng is None or rng.random() < 0.6)
        ctx.set(dut.take, int(ready))
        if ready:
            length = ctx.get(dut.length)
            assert ctx.get(dut.burst.addr) == ctx.get(dut.left.addr)
            assert ctx.get(dut.burst.len) == (length - 1) % BURST_BEATS
            bursts.append((ctx.get(dut.burst.addr), length, ctx.get(dut.final)))
        await ctx.tick()
        cycles += 1
    ctx.set(dut.take, 0)
    return cycles


@pytest.mark.parametrize("pauses", [False, True])
def test_bursts_of_random_transfers(simulate, rng, pauses):
    transfers = [(int(rng.integers(0, 1 << 30)), int(rng.integers(1, 70))) for _ in range(30)]
    wanted, found = [burst for transfer in transfers for burst in expected(*transfer)], []
    dut = Splitter(CFG)

    async def source(ctx):
        await simulate.put(ctx, dut.i, [{"addr": a, "beats": n} for a, n in transfers], rng if pauses else None)

    async def sink(ctx):
        cycles = await take(ctx, dut, len(wanted), found, rng if pauses else None)
        assert pauses or cycles == len(wanted) + 1  # one cycle of latency, then a burst in each

    simulate(dut, source, sink)
    assert found == wanted


def test_a_transfer_of_nothing_is_one_burst_of_nothing(simulate):
    dut, found = Splitter(CFG), []

    async def source(ctx):
        await simulate.put(ctx, dut.i, [{"addr": 5, "beats": 0}, {"addr": 16, "beats": 16}])

    async def sink(ctx):
        await take(ctx, dut, 2, found)

    simulate(dut, source, sink)
    assert found == [(5, 0, 1), (16, 16, 1)]
