"""hw/rtl/mover.py: against a plain restatement of the tile's equation, for all memories and configurations."""

import numpy as np
import pytest

from tilewright.hw.config import PRESETS, Config
from tilewright.hw.isa import Mem, entry_bytes
from tilewright.hw.regs import Error
from tilewright.hw.rtl.latencies import TILE_DEPTH
from tilewright.hw.rtl.mover import Mover, loaded_as
from tilewright.hw.rtl.ports import entry_bits

ODD = Config(batch=2, block_in=8, block_out=4, wgt_bits=4, inp_bytes=1 << 12, wgt_bytes=1 << 12, acc_bytes=1 << 12)
CONFIGS = {
    "tiny": PRESETS["tiny"],
    "vta": PRESETS["vta"],
    "odd": ODD,
    "narrow": PRESETS["tiny"].replace(axi_bits=32),
    "wide": PRESETS["tiny"].replace(axi_bits=256),
}

TWO = {
    "two units": PRESETS["tiny_two"],
    "two units, small entries": PRESETS["tiny_two"].replace(
        block_in=2, block_out=2, ternary_blocks=1, twgt_bytes=256, acc_bytes=1 << 10, extensions=[]
    ),
}
UOPS = (Mem.UOP, Mem.TUOP)


def padding_bits(cfg):
    """Bits of what padding repeats, where these are not 32."""
    return {Mem.INP: cfg.inp_bits, Mem.WGT: cfg.wgt_bits, Mem.TWGT: 2}


def expected(cfg, mems, tiles, dram):
    """What the tiles write: the last datum of every entry, as a number."""
    out, named = {mem: {} for mem in mems}, {mem.id: mem for mem in loaded_as(cfg, mems)}
    for f in tiles:
        mem = named[f["mem"]]
        target = Mem.ACC if mem == Mem.ACC8 else mem
        size, bits = entry_bytes(cfg, mem), padding_bits(cfg).get(mem, 32)
        if mem in UOPS:
            f = {**f, "y_size": 1, "y_pad_0": 0, "y_pad_1": 0, "x_pad_0": 0, "x_pad_1": 0}
        if not f["x_size"]:
            continue
        entry = f["sram_base"]
        for y in range(-f["y_pad_0"], f["y_size"] + f["y_pad_1"]):
            for x in range(-f["x_pad_0"], f["x_size"] + f["x_pad_1"]):
                if 0 <= y < f["y_size"] and 0 <= x < f["x_size"]:
                    at = (f["dram_base"] + y * f["x_stride"] + x) * size
                    raw = dram[at : at + size]
                    raw = raw.view(np.int8).astype(np.int32) if mem == Mem.ACC8 else raw
                    value = int.from_bytes(raw.tobytes(), "little")
                else:
                    lane = f["pad_value"] & ((1 << bits) - 1)
                    value = sum(lane << k for k in range(0, entry_bits(cfg, target), bits))
                out[target][entry] = value
                entry += 1
    return out


LOADS, COMPUTES, TERNARY = (Mem.INP, Mem.WGT), (Mem.UOP, Mem.ACC), (Mem.INP, Mem.WGT, Mem.TWGT, Mem.TUOP)
CASES = [pytest.param(name, mems, id=f"{name}-{mems[0].name}") for name in CONFIGS for mems in (LOADS, COMPUTES)]
CASES += [pytest.param(name, TERNARY, id=name) for name in TWO]


@pytest.mark.parametrize("name, mems", CASES)
def test_random_tiles(simulate, moves, rng, name, mems):
    cfg = (CONFIGS | TWO)[name]
    dut = Mover(cfg, mems=mems)
    dram = rng.integers(0, 256, moves.dram_bytes, np.uint8)
    kinds = loaded_as(cfg, mems)
    tiles = [moves.tile(rng, cfg, kinds[int(rng.integers(0, len(kinds)))]) for _ in range(30)]
    got = {mem: {} for mem in mems}
    moved = []

    async def source(ctx):
        await simulate.put(ctx, dut.cmd, tiles, rng)

    async def sink(ctx):
        await simulate.get(ctx, dut.done, len(tiles), rng)
        assert ctx.get(dut.idle)
        assert not ctx.get(dut.fault.code)

    async def count(ctx):
        async for _, _, n in ctx.tick().sample(dut.bytes):
            moved.append(n)

    async def hold(ctx):
        while True:
            ctx.set(dut.hold, int(rng.random() < 0.1))
            await ctx.tick()

    answers = simulate.answers(dut, dram, lambda: rng.random() < 0.7, lambda: rng.random() < 0.8)
    benches = [moves.scratchpad(dut, cfg, mem, got[mem]) for mem in mems]
    simulate(dut, source, sink, background=[*benches, answers, count, hold])
    assert got == expected(cfg, mems, tiles, dram)
    named = {mem.id: mem for mem in kinds}
    rows = [(named[f["mem"]], f) for f in tiles]
    assert sum(moved) == sum((1 if m in UOPS else f["y_size"]) * f["x_size"] * entry_bytes(cfg, m) for m, f in rows)


def test_one_beat_per_cycle_from_row_to_row_and_command_to_command(simulate, moves, rng):
    cfg = PRESETS["vta"]
    dut, dram, cycles = Mover(cfg, mems=(Mem.INP, Mem.WGT)), np.zeros(moves.dram_bytes, np.uint8), []
    tiles = [moves.simple(Mem.INP, y_size=4, x_size=3, x_stride=4, dram_base=k) for k in range(8)]

    async def source(ctx):
        await simulate.put(ctx, dut.cmd, tiles)

    async def sink(ctx):
        await simulate.get(ctx, dut.done, len(tiles))

    async def watch(ctx):
        cycle = 0
        async for _, _, valid, ready in ctx.tick().sample(dut.beats.valid, dut.beats.ready):
            cycle += 1
            if valid and ready:
                cycles.append(cycle)

    simulate(dut, source, sink, background=[simulate.answers(dut, dram), watch])
    assert len(cycles) == 8 * 4 * 3 * 2
    assert cycles[-1] - cycles[0] == len(cycles) - 1


def test_requests_run_ahead_of_the_data(simulate, moves):
    cfg = PRESETS["vta"]
    dut = Mover(cfg, mems=(Mem.INP, Mem.WGT))

    async def source(ctx):
        await simulate.put(ctx, dut.cmd, [moves.simple(Mem.WGT, index=k) for k in range(TILE_DEPTH)])

    async def requests(ctx):
        await simulate.get(ctx, dut.req, TILE_DEPTH)

    simulate(dut, source, requests)


@pytest.mark.parametrize(
    ("fields", "broken", "code"),
    [
        ({"sram_base": 255, "x_size": 2}, (), Error.RANGE),
        ({"sram_base": 255, "x_size": 1, "y_pad_1": 1}, (), Error.RANGE),
        ({"sram_base": 255, "x_size": 1}, (), Error.NONE),
        ({"x_size": 4}, (1,), Error.READ_RESPONSE),
    ],
)
def test_faults_name_the_instruction(simulate, moves, fields, broken, code):
    cfg = PRESETS["tiny"]
    dut = Mover(cfg, mems=(Mem.INP, Mem.WGT))
    tiles = [
        moves.simple(Mem.INP, index=6, dram_base=64),
        moves.simple(Mem.INP, index=7, **fields),
        moves.simple(Mem.INP, index=8),
    ]

    async def source(ctx):
        await simulate.put(ctx, dut.cmd, tiles)

    async def sink(ctx):
        await simulate.get(ctx, dut.done, len(tiles))
        assert ctx.get(dut.fault.code) == code
        assert ctx.get(dut.fault.index) == (7 if code else 0)

    answers = simulate.answers(dut, np.zeros(moves.dram_bytes, np.uint8), broken=broken)
    simulate(dut, source, sink, background=[answers])
