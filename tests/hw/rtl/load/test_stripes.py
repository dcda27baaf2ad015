"""hw/rtl/load.py: bursts in turn over the ports, data in order, as fast as all ports together."""

import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.rtl.latencies import BURST_BEATS, SPLIT_LATENCY
from tilewright.hw.rtl.load import Stripes

CFG = PRESETS["tiny"].replace(load_ports=2)


def port(dut, k, bursts, rng=None):
    """A read port: records the bursts that it takes, and answers each with words of its beats' addresses."""
    burst, out = dut.burst[k], dut.words[k]

    async def bench(ctx):
        words, valid = [], False
        while True:
            ctx.set(burst.ready, int(rng is None or rng.random() < 0.2))
            valid = valid or bool(words) and (rng is None or rng.random() < 0.7)
            ctx.set(out.valid, int(valid))
            if valid:
                low, last = words[0]
                ctx.set(out.payload, {"data": low | (low + 1) << 64, "error": int(low % 5 == 0), "last": last})
            seen = await ctx.tick().sample(out.ready, burst.valid, burst.ready, burst.payload)
            given, offered, accepted, span = seen[2:]
            if valid and given:
                words.pop(0)
                valid = False
            if offered and accepted:
                assert span.addr % 2 == span.beats % 2 == 0
                assert 0 < span.beats <= BURST_BEATS - span.addr % BURST_BEATS
                bursts.append((k, span.addr, span.beats))
                beats = range(span.addr, span.addr + span.beats)
                words.extend((low, int(low == beats[-2])) for low in beats[::2])

    return bench


@pytest.mark.parametrize("pauses", [False, True])
def test_data_come_in_the_order_of_the_requests(simulate, rng, pauses):
    dut, bursts, beats = Stripes(CFG), [], []
    requests = [(int(rng.integers(0, 1 << 30)), int(rng.integers(1, 40))) for _ in range(20)]
    wanted = [addr + i for addr, count in requests for i in range(count)]

    async def source(ctx):
        await simulate.put(ctx, dut.req, [{"addr": a, "beats": n} for a, n in requests], rng if pauses else None)

    async def sink(ctx):
        beats.extend(await simulate.get(ctx, dut.beats, len(wanted), rng if pauses else None))

    ports = [port(dut, k, bursts, rng if pauses else None) for k in range(2)]
    simulate(dut, source, sink, background=ports)
    assert [beat.data for beat in beats] == [2 * at | (2 * at + 1) << 64 for at in wanted]
    assert [beat.error for beat in beats] == [int(2 * at % 5 == 0) for at in wanted]
    assert abs(sum(1 if k else -1 for k, *_ in bursts)) <= 1, "the ports take turns"
    assert sum(count for *_, count in bursts) == 2 * len(wanted)


def test_a_burst_in_every_cycle(simulate):
    dut, found = Stripes(CFG), []

    async def bench(ctx):
        for burst in dut.burst:
            ctx.set(burst.ready, 1)
        ctx.set(dut.req.payload, {"addr": 4, "beats": 8 * 4})
        ctx.set(dut.req.valid, 1)
        await ctx.tick()
        ctx.set(dut.req.valid, 0)
        for cycle in range(SPLIT_LATENCY, SPLIT_LATENCY + 6):
            for k, burst in enumerate(dut.burst):
                if ctx.get(burst.valid):
                    found.append((cycle, k, ctx.get(burst.payload.addr), ctx.get(burst.payload.beats)))
            await ctx.tick()

    simulate(dut, bench)
    assert found == [(1, 0, 8, 8), (2, 1, 16, 16), (3, 0, 32, 16), (4, 1, 48, 16), (5, 0, 64, 8)]


def test_a_burst_waits_for_its_port(simulate):
    dut = Stripes(CFG)

    async def bench(ctx):
        ctx.set(dut.burst[0].ready, 1)
        await simulate.put(ctx, dut.req, [{"addr": 0, "beats": 100}])
        for _ in range(10):
            await ctx.tick()
        assert ctx.get(dut.burst[1].valid) and not ctx.get(dut.burst[0].valid) and not ctx.get(dut.req.ready)
        assert ctx.get(dut.burst[1].payload.addr) == BURST_BEATS

    simulate(dut, bench)
