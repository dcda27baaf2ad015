"""hw/rtl/read_port.py: bursts of several clients; hw/rtl/axi.py: where transfers are cut."""

import pytest

from tests.hw.bench import Take, Watch, get, offer, put, script, simulate
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
def test_clients_get_their_data_in_order(rng, latency):
    dut, benches, expected = ReadPort(CFG, buffers=(128, 64, 32)), [], []
    for k in range(3):
        requests = [(int(rng.integers(0, 1 << 30)), int(rng.integers(1, 60))) for _ in range(12)]
        expected.append([addr + i for addr, beats in requests for i in range(beats)])
        benches.append(Take(dut.beats[k], len(expected[k]), rng, 0.1 + 0.3 * k))
        benches.append(offer(dut.req[k], [{"addr": a, "beats": n} for a, n in requests], rng))
    simulate(dut, *benches, background=[memory(dut, [], latency, rng)])
    assert [[b.data for b in taken.values] for taken in benches[::2]] == expected


@pytest.mark.circuit
def test_one_beat_per_cycle_with_40_cycles_of_latency():
    dut, bursts = ReadPort(CFG, buffers=(128,)), []
    came = Watch(dut.beats[0].valid)
    request = {"req.0.payload": {"addr": 5, "beats": 500}, "req.0.valid": 1}
    ask = script(dut, (request, {}), ({"req.0.valid": 0, "beats.0.ready": 1}, {}, 560))
    simulate(dut, ask, background=[memory(dut, bursts), came])
    assert (bursts[0], bursts[1][1:]) == ((REQUEST_LATENCY, 5, 11), (16, 16))
    first = REQUEST_LATENCY + 40 + BEAT_LATENCY
    assert came.at() == list(range(first, first + 500))


@pytest.mark.circuit
def test_a_client_that_takes_nothing_does_not_stop_another():
    dut = ReadPort(CFG, buffers=(32, 32))
    taken = Take(dut.beats[1], 200)
    stuck, other = ([{"addr": addr, "beats": beats}] for addr, beats in ((0, 1000), (5000, 200)))
    simulate(dut, offer(dut.req[0], stuck), offer(dut.req[1], other), taken, background=[memory(dut, [])])
    assert [b.data for b in taken.values] == list(range(5000, 5200))


@pytest.mark.parametrize("yields", [0, 1, 2, None])
def test_one_that_yields_has_its_bursts_behind_the_others(yields):
    dut, bursts = ReadPort(CFG, buffers=(64, 64, 64), yields=yields), []
    ask, end = {}, {}
    for k in range(3):
        ask |= {f"beats.{k}.ready": 1, f"req.{k}.payload": {"addr": k << 12, "beats": 64}, f"req.{k}.valid": 1}
        end[f"req.{k}.valid"] = 0
    simulate(dut, script(dut, (ask, {}), (end, {}, 400)), background=[memory(dut, bursts, latency=1)])
    order = [addr >> 12 for _, addr, _ in bursts]
    others = [k for k in (1, 2, 0) if k != yields]
    assert order == others * 4 + ([] if yields is None else [yields] * 4)


@pytest.mark.circuit
def test_errors_are_marked_and_halt_stops_addresses():
    dut, bursts = ReadPort(CFG, buffers=(128,)), []

    async def bench(ctx):
        await put(ctx, dut.req[0], [{"addr": 0, "beats": 1000}])
        await ctx.tick().repeat(6)
        ctx.set(dut.halt, 1)
        await ctx.tick().repeat(3)
        count = len(bursts)
        assert 0 < count < OUTSTANDING
        assert not ctx.get(dut.idle)
        beats = await get(ctx, dut.beats[0], 16 * count)
        assert [b.error for b in beats] == [int(b.data == 3) for b in beats]
        assert ctx.get(dut.idle)
        assert len(bursts) == count

    simulate(dut, bench, background=[memory(dut, bursts, broken={3})])


@pytest.mark.circuit
@pytest.mark.parametrize("width", [2, 4])
def test_the_last_client_takes_several_beats_at_once(rng, width):
    dut = ReadPort(CFG, buffers=(64, 32), width=width)
    spans = [{"addr": 3, "beats": 100}, {"addr": 1 << 20, "beats": 200}]
    first, beats = spans[1].values()
    broken = {first + 5, first + 16}
    narrow, wide = Take(dut.beats[0], 100, rng), Take(dut.words, beats // width, rng)
    asks = [offer(dut.req[k], [span]) for k, span in enumerate(spans)]
    simulate(dut, *asks, narrow, wide, background=[memory(dut, [], rng=rng, broken=broken)])
    assert len(dut.beats) == 1 and [b.data for b in narrow.values] == list(range(3, 103))
    for word, low in zip(wide.values, range(first, first + beats, width)):
        assert word.data == sum(low + k << 64 * k for k in range(width))
        assert word.error == any(low + k in broken for k in range(width))
        assert word.last == ((low + width) % BURST_BEATS == 0 or low + width == first + beats)


@pytest.mark.circuit
def test_words_leave_one_per_cycle_where_they_wait():
    dut = ReadPort(CFG, buffers=(128,), width=2)
    seen = Watch(dut.words.valid & dut.words.ready)
    request = {"req.0.payload": {"addr": 0, "beats": 200}, "req.0.valid": 1}
    rows = (request, {}), ({"req.0.valid": 0}, {}, 300), ({"words.ready": 1}, {}, 300)
    simulate(dut, script(dut, *rows), background=[memory(dut, []), seen])
    assert [at - seen.at()[0] for at in seen.at()[:64]] == list(range(64)) and len(seen.at()) == 100, "128 beats wait"


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
def test_bursts_of_random_transfers(rng, pauses):
    transfers = [(int(rng.integers(0, 1 << 30)), int(rng.integers(1, 70))) for _ in range(30)]
    wanted, found = [burst for transfer in transfers for burst in expected(*transfer)], []
    dut, pause = Splitter(CFG), rng if pauses else None

    async def sink(ctx):
        cycles = await take(ctx, dut, len(wanted), found, pause)
        assert pauses or cycles == len(wanted) + 1  # one cycle of latency, then a burst in each

    simulate(dut, offer(dut.i, [{"addr": a, "beats": n} for a, n in transfers], pause), sink)
    assert found == wanted


def test_a_transfer_of_nothing_is_one_burst_of_nothing():
    dut, found = Splitter(CFG), []

    async def sink(ctx):
        await take(ctx, dut, 2, found)

    simulate(dut, offer(dut.i, [{"addr": 5, "beats": 0}, {"addr": 16, "beats": 16}]), sink)
    assert found == [(5, 0, 1), (16, 16, 1)]
