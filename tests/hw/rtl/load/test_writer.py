"""hw/rtl/mover.py: steps and beats become writes, entry by entry."""

import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Mem, entry_bytes
from tilewright.hw.regs import Error
from tilewright.hw.rtl.mover import Writer, chunks

TINY, VTA = PRESETS["tiny"], PRESETS["vta"]


def step(mem, addr, **fields):
    keys = ("empty", "pad", "pad_value", "single", "part", "leave", "last", "index")
    made = {"mem": int(mem), "addr": addr, **dict.fromkeys(keys, 0), "push": {"push_prev": 0, "push_next": 1}} | fields
    return made | {"data": int(not made["empty"] and not made["pad"])}


@pytest.fixture
def write(simulate, moves, rng):
    """`write(cfg, mem, steps, beats)`: (what is in the scratchpad `mem` then, bytes counted, the fault)."""

    def run(cfg, mem, steps, beats):
        dut, store, moved, faults = Writer(cfg, mems=(mem,)), {}, [], []
        ends = sum(s["last"] for s in steps)
        steps = [s | {"single": int(chunks(cfg, Mem(s["mem"])) == 1)} for s in steps]

        async def source(ctx):
            await simulate.put(ctx, dut.step, steps, rng)
            await ctx.tick().repeat(3)
            faults.append((ctx.get(dut.fault.code), ctx.get(dut.fault.index)))

        async def memory(ctx):
            await simulate.put(ctx, dut.beats, [{"data": d, "error": e} for d, e in beats], rng)

        async def done(ctx):
            assert all(token.push_next for token in await simulate.get(ctx, dut.done, ends, rng))

        async def count(ctx):
            async for _, _, n in ctx.tick().sample(dut.bytes):
                moved.append(n)

        simulate(dut, source, memory, done, background=[moves.scratchpad(dut, cfg, mem, store), count])
        return store, sum(moved), faults[0]

    return run


def test_entries_that_share_a_beat(write):
    assert entry_bytes(TINY, Mem.INP) == 4 and TINY.axi_bits == 64
    beats = [(0x88776655_44332211, 0), (0xFFEEDDCC_BBAA9900, 0)]
    steps = [step(Mem.INP, 3, part=0), step(Mem.INP, 4, part=1, leave=1), step(Mem.INP, 5, part=1, leave=1, last=1)]
    store, moved, fault = write(TINY, Mem.INP, steps, beats)
    assert store == {3: 0x44332211, 4: 0x88776655, 5: 0xFFEEDDCC}
    assert (moved, fault) == (12, (Error.NONE, 0))


def test_an_entry_of_several_beats(write):
    beats = [(0x0101010101010101 * k, 0) for k in range(1, 33)]
    store, moved, _ = write(VTA, Mem.WGT, [step(Mem.WGT, 7, leave=1, last=1)], beats)
    assert store == {7: sum(beat << 64 * k for k, (beat, _) in enumerate(beats))}
    assert moved == entry_bytes(VTA, Mem.WGT) == 256


def test_a_parameter_entry_is_three_times_a_power_of_two(write):
    count = entry_bytes(TINY, Mem.PAR) * 8 // TINY.axi_bits
    assert count == 6
    beats = [(0xA5A5 + k, 0) for k in range(count)]
    store, _, _ = write(TINY, Mem.PAR, [step(Mem.PAR, 2, leave=1, last=1)], beats)
    assert store == {2: sum(beat << 64 * k for k, (beat, _) in enumerate(beats))}


def test_int8_becomes_int32(write):
    assert entry_bytes(TINY, Mem.ACC8) == 4
    store, moved, _ = write(TINY, Mem.ACC, [step(Mem.ACC8, 0, part=1, leave=1, last=1)], [(0x80FF7F01 << 32, 0)])
    values = [0x01, 0x7F, 0xFFFFFFFF, 0xFFFFFF80]
    assert store == {0: sum(v << 32 * k for k, v in enumerate(values))} and moved == 4


@pytest.mark.parametrize("mem, bits", [(Mem.INP, 8), (Mem.WGT, 8), (Mem.ACC, 32)])
def test_padding_takes_no_beat(write, mem, bits):
    lanes = entry_bytes(TINY, mem) * 8 // bits
    store, moved, _ = write(TINY, mem, [step(mem, 1, pad=1, pad_value=0xFE, last=1)], [])
    assert store == {1: sum((-2 & ((1 << bits) - 1)) << bits * k for k in range(lanes))} and moved == 0


def test_an_empty_tile_writes_nothing_and_gives_its_token(write):
    assert write(TINY, Mem.INP, [step(Mem.INP, 9, empty=1, last=1)], []) == ({}, 0, (Error.NONE, 0))


def test_faults(write):
    first, beyond = step(Mem.INP, 255, leave=1, index=4, last=1), step(Mem.INP, 256, leave=1, index=5, last=1)
    store, _, fault = write(TINY, Mem.INP, [first, beyond], [(1, 0), (2, 0)])
    assert store == {255: 1} and fault == (Error.RANGE, 5)
    _, _, fault = write(TINY, Mem.INP, [first, beyond], [(1, 1), (2, 0)])
    assert fault == (Error.READ_RESPONSE, 4)


def test_nothing_is_written_while_held(simulate, moves):
    dut, store = Writer(TINY, mems=(Mem.INP,)), {}

    async def bench(ctx):
        ctx.set(dut.hold, 1)
        ctx.set(dut.step.payload, step(Mem.INP, 1, pad=1, pad_value=7, last=1))
        ctx.set(dut.step.valid, 1)
        await ctx.tick().repeat(4)
        assert not ctx.get(dut.step.ready) and not ctx.get(dut.progress) and not store
        ctx.set(dut.hold, 0)
        await ctx.tick()
        ctx.set(dut.step.valid, 0)
        await ctx.tick().repeat(2)
        assert store == {1: 0x07070707}

    simulate(dut, bench, background=[moves.scratchpad(dut, TINY, Mem.INP, store)])
