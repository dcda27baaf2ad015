"""hw/rtl/load.py: tokens around the mover, and bursts over several read ports."""

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Isa, Mem, Op
from tilewright.hw.rtl.latencies import BURST_BEATS, SPLIT_LATENCY
from tilewright.hw.rtl.load import Load, Stripes

CFG, TWO = PRESETS["tiny"], PRESETS["tiny_two"]


BEATS = np.arange(256, dtype=np.uint8).repeat(8)  # beat n holds n in every byte


def command(index, op=Op.LOAD, cfg=CFG, **fields):
    low, high = Isa(cfg).formats[op.name].encode(op=op, **fields)[0]
    return {"insn": int(low) | int(high) << 64, "index": index}


@pytest.mark.circuit
def test_an_instruction_waits_for_its_token_and_gives_one_after_its_last_write(simulate):
    dut, writes = Load(CFG), []

    async def bench(ctx):
        ctx.set(dut.cmd.payload, command(4, mem=Mem.INP, x_size=4, y_size=1, pop_next=1, push_next=1))
        ctx.set(dut.cmd.valid, 1)
        for _ in range(5):
            await ctx.tick()
            assert not ctx.get(dut.cmd.ready)
            assert ctx.get(dut.activity.token_wait)
        ctx.set(dut.from_compute.valid, 1)
        assert ctx.get(dut.cmd.ready) and ctx.get(dut.from_compute.ready)
        await ctx.tick()
        ctx.set(dut.cmd.valid, 0)
        ctx.set(dut.from_compute.valid, 0)
        while not ctx.get(dut.to_compute.valid):
            await ctx.tick()
        assert len(writes) + ctx.get(dut.write_inp.en) == 4
        for _ in range(3):
            await ctx.tick()
            assert ctx.get(dut.to_compute.valid)  # not lost while the channel is full
        ctx.set(dut.to_compute.ready, 1)
        await ctx.tick()
        assert not ctx.get(dut.to_compute.valid)
        assert ctx.get(dut.idle)

    async def watch(ctx):
        async for _, _, en, addr, data in ctx.tick().sample(dut.write_inp.en, dut.write_inp.addr, dut.write_inp.data):
            if en:
                writes.append((addr, data))

    simulate(dut, bench, background=[simulate.answers(dut, BEATS), watch])
    assert writes == [(0, 0), (1, 0), (2, 0x01010101), (3, 0x01010101)]


@pytest.mark.circuit
def test_padding_value_and_zero_size(simulate):
    dut, writes = Load(CFG), {}
    commands = [
        command(0, Op.LOADP, mem=Mem.INP, sram_base=5, y_size=1, x_size=1, x_stride=1, x_pad_0=1, pad_value=-3),
        command(1, mem=Mem.WGT, x_size=0, y_size=9, x_pad_0=3, push_next=1),
    ]

    async def source(ctx):
        await simulate.put(ctx, dut.cmd, commands)

    async def sink(ctx):
        ctx.set(dut.to_compute.ready, 1)
        await ctx.tick().until(dut.to_compute.valid)

    async def watch(ctx):
        ends = (dut.write_inp.en, dut.write_inp.addr, dut.write_inp.data, dut.write_wgt.en)
        async for _, _, en, addr, data, other in ctx.tick().sample(*ends):
            assert not other
            if en:
                writes[addr] = data

    simulate(dut, source, sink, background=[simulate.answers(dut, BEATS), watch])
    assert writes == {5: int.from_bytes(np.full(4, -3, np.int8).tobytes(), "little"), 6: 0}


def test_tokens_of_both_neighbours_together(simulate):
    """An instruction waits for both, and gives both in one cycle, when both channels have room."""
    dut = Load(TWO)
    flags = dict.fromkeys(("pop_prev", "pop_next", "push_prev", "push_next"), 1)
    first = command(0, cfg=TWO, mem=Mem.TUOP.id, sram_base=3, y_size=0, x_size=2, **flags)
    second = command(1, cfg=TWO, mem=Mem.TWGT.id, sram_base=1, y_size=1, x_size=1, push_prev=1)
    writes, given = [], []

    async def bench(ctx):
        ctx.set(dut.cmd.payload, first)
        ctx.set(dut.cmd.valid, 1)
        for ours, other in ((dut.from_compute, dut.from_ternary), (dut.from_ternary, dut.from_compute)):
            ctx.set(ours.valid, 1)
            assert not ctx.get(dut.cmd.ready) and not ctx.get(other.ready) and ctx.get(dut.activity.token_wait)
            await ctx.tick()
            ctx.set(ours.valid, 0)
        ctx.set(dut.from_compute.valid, 1)
        ctx.set(dut.from_ternary.valid, 1)
        assert ctx.get(dut.from_compute.ready) and ctx.get(dut.from_ternary.ready)
        await simulate.put(ctx, dut.cmd, [first, second])
        ctx.set(dut.to_compute.ready, 1)
        await ctx.tick().until(~dut.activity.memory_wait & dut.write_tuop.en.any())
        await ctx.tick().repeat(20)
        assert not given  # the ternary channel is full
        ctx.set(dut.to_ternary.ready, 1)
        await ctx.tick().repeat(20)
        assert ctx.get(dut.idle)

    async def watch(ctx):
        ends = (dut.to_compute.valid & dut.to_compute.ready, dut.to_ternary.valid & dut.to_ternary.ready)
        ports = [(mem, getattr(dut, f"write_{mem}")) for mem in ("inp", "wgt", "twgt", "tuop")]
        while True:
            _, _, compute, ternary, *enables = await ctx.tick().sample(*ends, *(port.en for _, port in ports))
            if compute or ternary:
                given.append((compute, ternary))
            writes.extend((mem, ctx.get(port.addr)) for (mem, port), en in zip(ports, enables) if en)

    simulate(dut, bench, background=[simulate.answers(dut, BEATS), watch], cycles=200)
    assert given == [(1, 1), (0, 1)]


TWO_PORTS = PRESETS["tiny"].replace(load_ports=2)


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


@pytest.mark.circuit
@pytest.mark.parametrize("pauses", [False, True])
def test_data_come_in_the_order_of_the_requests(simulate, rng, pauses):
    dut, bursts, beats = Stripes(TWO_PORTS), [], []
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
    dut, found = Stripes(TWO_PORTS), []

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
    dut = Stripes(TWO_PORTS)

    async def bench(ctx):
        ctx.set(dut.burst[0].ready, 1)
        await simulate.put(ctx, dut.req, [{"addr": 0, "beats": 100}])
        for _ in range(10):
            await ctx.tick()
        assert ctx.get(dut.burst[1].valid) and not ctx.get(dut.burst[0].valid) and not ctx.get(dut.req.ready)
        assert ctx.get(dut.burst[1].payload.addr) == BURST_BEATS

    simulate(dut, bench)
