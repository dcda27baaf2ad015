"""hw/rtl/read_port.py: bursts of several clients; hw/rtl/axi.py: where transfers are cut."""

import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.rtl.axi import Splitter
from tilewright.hw.rtl.latencies import BEAT_LATENCY, BURST_BEATS, OUTSTANDING, REQUEST_LATENCY
from tilewright.hw.rtl.read_port import ReadPort

CFG = PRESETS["tiny"]


def memory(dut, bursts, latency=40, rng=None, broken=()):
    """A testbench that answers the bus; the datum of a beat is its beat address. Records (cycle, address, length)."""

    async def bench(ctx):
        queue, cycle = [], 0
        while True:
            ctx.set(dut.axi.arready, int(rng is None or rng.random() < 0.5))
            valid = bool(queue) and queue[0][0] <= cycle and (rng is None or rng.random() < 0.7)
            ctx.set(dut.axi.rvalid, int(valid))
            if valid:
                _, addr, left = queue[0]
                ctx.set(dut.axi.rdata, addr)
                ctx.set(dut.axi.rresp, 2 if addr in broken else 0)
                ctx.set(dut.axi.rlast, int(left == 1))
            asked = ctx.get(dut.axi.arvalid) and ctx.get(dut.axi.arready)
            if asked:
                start, length = ctx.get(dut.axi.araddr), ctx.get(dut.axi.arlen) + 1
                assert start % 8 == 0 and start % (8 * BURST_BEATS) + 8 * length <= 8 * BURST_BEATS
                bursts.append((cycle, start // 8, length))
            if valid:
                assert ctx.get(dut.axi.rready)
                queue[0] = (queue[0][0], addr + 1, left - 1)
                if left == 1:
                    queue.pop(0)
            if asked:
                queue.append((cycle + latency, *bursts[-1][1:]))
            assert len(queue) <= OUTSTANDING
            await ctx.tick()
            cycle += 1

    return bench


@pytest.mark.circuit
@pytest.mark.parametrize("latency", [1, 40])
def test_clients_get_their_data_in_order(simulate, rng, latency):
    dut = ReadPort(CFG, buffers=(128, 64, 32))
    benches, results, expected = [], {}, {}
    for k in range(3):
        requests = [(int(rng.integers(0, 1 << 30)), int(rng.integers(1, 60))) for _ in range(12)]
        expected[k] = [addr + i for addr, beats in requests for i in range(beats)]

        async def source(ctx, k=k, requests=requests):
            await simulate.put(ctx, dut.req[k], [{"addr": a, "beats": n} for a, n in requests], rng)

        async def sink(ctx, k=k):
            beats = await simulate.get(ctx, dut.beats[k], len(expected[k]), rng, 0.1 + 0.3 * k)
            results[k] = [b.data for b in beats]

        benches += [source, sink]
    simulate(dut, *benches, background=[memory(dut, [], latency, rng)])
    assert results == expected


def test_one_beat_per_cycle_with_40_cycles_of_latency(simulate):
    dut, bursts, cycles = ReadPort(CFG, buffers=(128,)), [], []

    async def bench(ctx):
        ctx.set(dut.req[0].payload, {"addr": 5, "beats": 500})
        ctx.set(dut.req[0].valid, 1)
        await ctx.tick()
        ctx.set(dut.req[0].valid, 0)
        ctx.set(dut.beats[0].ready, 1)
        cycle = 1
        while len(cycles) < 500:
            if ctx.get(dut.beats[0].valid):
                cycles.append(cycle)
            await ctx.tick()
            cycle += 1

    simulate(dut, bench, background=[memory(dut, bursts)])
    assert bursts[0] == (REQUEST_LATENCY, 5, 11)
    assert bursts[1][1:] == (16, 16)
    assert cycles[0] == REQUEST_LATENCY + 40 + BEAT_LATENCY
    assert cycles[-1] - cycles[0] == 499


def test_a_client_that_takes_nothing_does_not_stop_another(simulate):
    dut = ReadPort(CFG, buffers=(32, 32))

    async def stuck(ctx):
        await simulate.put(ctx, dut.req[0], [{"addr": 0, "beats": 1000}])

    async def other(ctx):
        await simulate.put(ctx, dut.req[1], [{"addr": 5000, "beats": 200}])
        beats = await simulate.get(ctx, dut.beats[1], 200)
        assert [b.data for b in beats] == list(range(5000, 5200))

    simulate(dut, stuck, other, background=[memory(dut, [])])


@pytest.mark.parametrize("yields", [0, 1, 2, None])
def test_one_that_yields_has_its_bursts_behind_the_others(simulate, yields):
    dut, bursts = ReadPort(CFG, buffers=(64, 64, 64), yields=yields), []

    async def clients(ctx):
        for k in range(3):
            ctx.set(dut.beats[k].ready, 1)
            ctx.set(dut.req[k].payload, {"addr": k << 12, "beats": 64})
            ctx.set(dut.req[k].valid, 1)
        await ctx.tick()
        for k in range(3):
            ctx.set(dut.req[k].valid, 0)
        await ctx.tick().repeat(400)

    simulate(dut, clients, background=[memory(dut, bursts, latency=1)])
    order = [addr >> 12 for _, addr, _ in bursts]
    others = [k for k in (1, 2, 0) if k != yields]
    assert order == others * 4 + ([] if yields is None else [yields] * 4)


def test_errors_are_marked_and_halt_stops_addresses(simulate):
    dut, bursts = ReadPort(CFG, buffers=(128,)), []

    async def bench(ctx):
        await simulate.put(ctx, dut.req[0], [{"addr": 0, "beats": 1000}])
        for _ in range(6):
            await ctx.tick()
        ctx.set(dut.halt, 1)
        for _ in range(3):
            await ctx.tick()
        count = len(bursts)
        assert 0 < count < OUTSTANDING
        assert not ctx.get(dut.idle)
        beats = await simulate.get(ctx, dut.beats[0], 16 * count)
        assert [b.error for b in beats] == [int(b.data == 3) for b in beats]
        assert ctx.get(dut.idle)
        assert len(bursts) == count

    simulate(dut, bench, background=[memory(dut, bursts, broken={3})])


@pytest.mark.circuit
@pytest.mark.parametrize("width", [2, 4])
def test_the_last_client_takes_several_beats_at_once(simulate, rng, width):
    dut, results = ReadPort(CFG, buffers=(64, 32), width=width), {}
    spans = {0: (3, 100), 1: (1 << 20, 200)}

    async def source(ctx):
        for k, (addr, beats) in spans.items():
            await simulate.put(ctx, dut.req[k], [{"addr": addr, "beats": beats}])

    async def narrow(ctx):
        results[0] = [b.data for b in await simulate.get(ctx, dut.beats[0], spans[0][1], rng)]

    async def wide(ctx):
        results[1] = await simulate.get(ctx, dut.words, spans[1][1] // width, rng)

    first, beats = spans[1]
    broken = {first + 5, first + 16}
    assert len(dut.beats) == 1
    simulate(dut, source, narrow, wide, background=[memory(dut, [], rng=rng, broken=broken)])
    assert results[0] == list(range(3, 103))
    for word, low in zip(results[1], range(first, first + beats, width)):
        assert word.data == sum(low + k << 64 * k for k in range(width))
        assert word.error == any(low + k in broken for k in range(width))
        assert word.last == ((low + width) % BURST_BEATS == 0 or low + width == first + beats)


def test_words_leave_one_per_cycle_where_they_wait(simulate):
    dut, cycles = ReadPort(CFG, buffers=(128,), width=2), []

    async def bench(ctx):
        await simulate.put(ctx, dut.req[0], [{"addr": 0, "beats": 200}])
        for _ in range(300):
            await ctx.tick()
        ctx.set(dut.words.ready, 1)
        for cycle in range(300):
            if ctx.get(dut.words.valid):
                cycles.append(cycle)
            await ctx.tick()

    simulate(dut, bench, background=[memory(dut, [])])
    assert cycles[:64] == list(range(64)) and len(cycles) == 100, "128 beats wait"


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
