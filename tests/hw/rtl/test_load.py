"""hw/rtl/load.py: tokens around the mover, and bursts over several read ports."""

import numpy as np
import pytest

from tests.hw.bench import Take, Watch, answers, instruction, offer, put, script, simulate
from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Mem, Op
from tilewright.hw.rtl.latencies import BURST_BEATS, SPLIT_LATENCY
from tilewright.hw.rtl.load import Load, Stripes

CFG, TWO = PRESETS["tiny"], PRESETS["tiny_two"]
BEATS = np.arange(256, dtype=np.uint8).repeat(8)  # beat n holds n in every byte


def command(index, op=Op.LOAD, cfg=CFG, **fields):
    return {"insn": instruction(cfg, op.name, op=op, **fields), "index": index}


@pytest.mark.circuit
def test_an_instruction_waits_for_its_token_and_gives_one_after_its_last_write():
    dut = Load(CFG)
    port = dut.write_inp
    writes = Watch(port.en, port.addr, port.data)
    wait, token = (
        script(
            dut,
            ({"cmd.payload": command(4, mem=Mem.INP, x_size=4, y_size=1, pop_next=1, push_next=1), "cmd.valid": 1}, {}),
            ({}, {"cmd.ready": 0, "activity.token_wait": 1}, 4),
            ({"from_compute.valid": 1}, {"cmd.ready": 1, "from_compute.ready": 1}),
            ({"cmd.valid": 0, "from_compute.valid": 0}, {}, 0),
        ),
        script(
            dut,
            ({}, {"to_compute.valid": 1}, 4),  # not lost while the channel is full
            ({"to_compute.ready": 1}, {}),
            ({}, {"to_compute.valid": 0, "idle": 1}, 0),
        ),
    )

    async def bench(ctx):
        await wait(ctx)
        await ctx.tick().until(dut.to_compute.valid)
        assert len(writes.at()) == 4
        await token(ctx)

    simulate(dut, bench, background=[answers(dut, BEATS), writes])
    assert [row[1:] for row in writes.rows if row[0]] == [(0, 0), (1, 0), (2, 0x01010101), (3, 0x01010101)]


@pytest.mark.circuit
def test_padding_value_and_zero_size():
    dut = Load(CFG)
    port = dut.write_inp
    writes = Watch(port.en, port.addr, port.data, dut.write_wgt.en)
    commands = [
        command(0, Op.LOADP, mem=Mem.INP, sram_base=5, y_size=1, x_size=1, x_stride=1, x_pad_0=1, pad_value=-3),
        command(1, mem=Mem.WGT, x_size=0, y_size=9, x_pad_0=3, push_next=1),
    ]

    async def token(ctx):
        ctx.set(dut.to_compute.ready, 1)
        await ctx.tick().until(dut.to_compute.valid)

    simulate(dut, offer(dut.cmd, commands), token, background=[answers(dut, BEATS), writes])
    assert {addr: data for en, addr, data, _ in writes.rows if en} == {5: 0xFDFDFDFD, 6: 0} and not writes.sum(3)


def test_tokens_of_both_neighbours_together():
    """An instruction waits for both, and gives both in one cycle, when both channels have room."""
    dut = Load(TWO)
    flags = dict.fromkeys(("pop_prev", "pop_next", "push_prev", "push_next"), 1)
    first = command(0, cfg=TWO, mem=Mem.TUOP.id, sram_base=3, y_size=0, x_size=2, **flags)
    second = command(1, cfg=TWO, mem=Mem.TWGT.id, sram_base=1, y_size=1, x_size=1, push_prev=1)
    given = Watch(dut.to_compute.valid & dut.to_compute.ready, dut.to_ternary.valid & dut.to_ternary.ready)
    waits = {"cmd.ready": 0, "activity.token_wait": 1}
    wait = script(
        dut,
        ({"cmd.payload": first, "cmd.valid": 1, "from_compute.valid": 1}, {**waits, "from_ternary.ready": 0}),
        ({"from_compute.valid": 0, "from_ternary.valid": 1}, {**waits, "from_compute.ready": 0}),
        ({"from_compute.valid": 1}, {"from_compute.ready": 1, "from_ternary.ready": 1}, 0),
    )

    async def bench(ctx):
        await wait(ctx)
        await put(ctx, dut.cmd, [first, second])
        ctx.set(dut.to_compute.ready, 1)
        await ctx.tick().until(~dut.activity.memory_wait & dut.write_tuop.en.any())
        await ctx.tick().repeat(20)
        assert not any(map(any, given.rows))  # the ternary channel is full
        ctx.set(dut.to_ternary.ready, 1)
        await ctx.tick().repeat(20)
        assert ctx.get(dut.idle)

    simulate(dut, bench, background=[answers(dut, BEATS), given], cycles=200)
    assert [row for row in given.rows if any(row)] == [(1, 1), (0, 1)]


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
def test_data_come_in_the_order_of_the_requests(rng, pauses):
    dut, bursts, pause = Stripes(TWO_PORTS), [], rng if pauses else None
    requests = [(int(rng.integers(0, 1 << 30)), int(rng.integers(1, 40))) for _ in range(20)]
    wanted = [addr + i for addr, count in requests for i in range(count)]
    beats = Take(dut.beats, len(wanted), pause)
    ports = [port(dut, k, bursts, pause) for k in range(2)]
    simulate(dut, offer(dut.req, [{"addr": a, "beats": n} for a, n in requests], pause), beats, background=ports)
    assert [beat.data for beat in beats.values] == [2 * at | (2 * at + 1) << 64 for at in wanted]
    assert [beat.error for beat in beats.values] == [int(2 * at % 5 == 0) for at in wanted]
    assert abs(sum(1 if k else -1 for k, *_ in bursts)) <= 1, "the ports take turns"
    assert sum(count for *_, count in bursts) == 2 * len(wanted)


def test_a_burst_in_every_cycle():
    dut = Stripes(TWO_PORTS)
    request = {"req.payload": {"addr": 4, "beats": 8 * 4}, "req.valid": 1, "burst.0.ready": 1, "burst.1.ready": 1}
    bursts = [(0, 8, 8), (1, 16, 16), (0, 32, 16), (1, 48, 16), (0, 64, 8)]
    rows = [
        ({}, {f"burst.{k}.valid": 1, f"burst.{1 - k}.valid": 0, f"burst.{k}.payload": {"addr": addr, "beats": beats}})
        for k, addr, beats in bursts
    ]
    end = ({}, {"burst.0.valid": 0, "burst.1.valid": 0}, 0)
    simulate(dut, script(dut, (request, {}, SPLIT_LATENCY), ({"req.valid": 0}, {}, 0), *rows, end))


def test_a_burst_waits_for_its_port():
    dut = Stripes(TWO_PORTS)

    async def bench(ctx):
        ctx.set(dut.burst[0].ready, 1)
        await put(ctx, dut.req, [{"addr": 0, "beats": 100}])
        await ctx.tick().repeat(10)
        assert ctx.get(dut.burst[1].valid) and not ctx.get(dut.burst[0].valid) and not ctx.get(dut.req.ready)
        assert ctx.get(dut.burst[1].payload.addr) == BURST_BEATS

    simulate(dut, bench)
