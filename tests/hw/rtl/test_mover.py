"""hw/rtl/mover.py: against a plain restatement of the tile's equation, for all memories; the latencies of its parts."""

import numpy as np
import pytest

from tilewright.hw.config import PRESETS, Config
from tilewright.hw.isa import Mem, entry_bytes
from tilewright.hw.regs import Error
from tilewright.hw.rtl.latencies import TILE_DEPTH
from tilewright.hw.rtl.mover import Mover, Planner, Walker, Writer, chunks, loaded_as
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


@pytest.mark.circuit
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


@pytest.mark.circuit
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


@pytest.mark.circuit
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


PART_CONFIGS = {"tiny": PRESETS["tiny"], "vta": PRESETS["vta"], "wide": PRESETS["tiny"].replace(axi_bits=256)}


REQUESTED_LOADS, REQUESTED_COMPUTES, PARAMETERS = (Mem.INP, Mem.WGT), (Mem.UOP, Mem.ACC, Mem.ACC8), (Mem.PAR,)


REQUESTED_CASES = [(name, mems) for name in PART_CONFIGS for mems in (REQUESTED_LOADS, REQUESTED_COMPUTES)] + [
    ("tiny", PARAMETERS)
]


def normal(f):
    """The command as it is meant: micro-ops are one row without pads."""
    flat = {"y_size": 1, "x_stride": f["x_size"], "y_pad_0": 0, "y_pad_1": 0, "x_pad_0": 0, "x_pad_1": 0}
    return f | flat if f["mem"] == Mem.UOP else f


def requests(cfg, f):
    """[(first beat, beats)] of each row, or of all of them where they lie one after the other."""
    f, size, beat = normal(f), entry_bytes(cfg, Mem(f["mem"])), cfg.axi_bits // 8
    rows, length = (f["y_size"], f["x_size"]) if f["x_size"] else (0, 0)
    if f["x_stride"] == f["x_size"]:
        rows, length = min(rows, 1), rows * length
    found = []
    for y in range(rows):
        first = (f["dram_base"] + y * f["x_stride"]) * size
        found.append((first // beat, -(-(first + length * size) // beat) - first // beat))
    return found


def described(f):
    """The tile's fields that a walker looks at: last column and row, and what is not padding."""
    f = normal(f)
    across, down = f["x_pad_0"] + f["x_size"], f["y_pad_0"] + f["y_size"]
    found = {"x_begin": f["x_pad_0"], "x_final": across - 1, "x_last": across + f["x_pad_1"] - 1}
    found |= {"y_begin": f["y_pad_0"], "y_final": down - 1, "y_end": down, "y_last": down + f["y_pad_1"] - 1}
    found |= {"one_column": int(found["x_last"] == 0), "one_row": int(found["y_last"] == 0)}
    found |= {"dense": int(f["x_stride"] == f["x_size"]), "base": f["sram_base"], "index": f["index"]}
    found |= {"offset": f["dram_base"] % 64, "mem": f["mem"], "pad_value": f["pad_value"] % 256}
    return found if found["dense"] else found | {"offset_step": f["x_stride"] % 64}


@pytest.mark.parametrize(
    "name, mems", REQUESTED_CASES, ids=lambda each: each if isinstance(each, str) else each[0].name
)
def test_random_commands(simulate, moves, rng, name, mems):
    cfg = PART_CONFIGS[name]
    dut = Planner(cfg, mems=mems)
    commands = [moves.tile(rng, cfg, mems[int(rng.integers(0, len(mems)))]) for _ in range(40)]
    if mems == PARAMETERS:
        commands = [f | {"y_pad_0": 0, "y_pad_1": 0, "x_pad_0": 0, "x_pad_1": 0} for f in commands]
    asked = [request for f in commands for request in requests(cfg, f)]

    async def source(ctx):
        await simulate.put(ctx, dut.cmd, commands, rng)

    async def memory(ctx):
        found = await simulate.get(ctx, dut.req, len(asked), rng)
        assert [(r.addr, r.beats) for r in found] == asked

    async def walker(ctx):
        for f, found in zip(commands, await simulate.get(ctx, dut.tile, len(commands), rng)):
            n = normal(f)
            assert found.empty == (n["x_size"] == 0 or n["y_pad_0"] + n["y_size"] + n["y_pad_1"] == 0)
            if not found.empty:
                assert {key: getattr(found, key) for key in described(f)} == described(f), f
            assert (found.push.push_next, found.push.push_prev) == (1, 0)

    simulate(dut, source, memory, walker)


def test_a_request_per_cycle(simulate, moves):
    cfg = PRESETS["vta"]
    dut, cycles = Planner(cfg, mems=(Mem.INP, Mem.WGT)), []

    async def source(ctx):
        await simulate.put(ctx, dut.cmd, [moves.simple(Mem.INP, y_size=5, x_stride=9, dram_base=k) for k in range(4)])

    async def memory(ctx):
        ctx.set(dut.req.ready, 1)
        ctx.set(dut.tile.ready, 1)
        cycle = 0
        while len(cycles) < 20:
            _, _, valid = await ctx.tick().sample(dut.req.valid)
            cycle += 1
            if valid:
                cycles.append(cycle)

    simulate(dut, source, memory)
    assert cycles[-1] - cycles[0] == 19


MEMS = (Mem.INP, Mem.WGT)


KEYS = ("pad", "addr", "part", "leave", "last")


def walked(f):
    """The command as a planner describes its tile."""
    across, down = f["x_pad_0"] + f["x_size"], f["y_pad_0"] + f["y_size"]
    shape = {"x_begin": f["x_pad_0"], "x_final": across - 1, "x_last": across + f["x_pad_1"] - 1}
    shape |= {"y_begin": f["y_pad_0"], "y_final": down - 1, "y_end": down, "y_last": down + f["y_pad_1"] - 1}
    shape |= {"one_column": int(shape["x_last"] == 0), "one_row": int(shape["y_last"] == 0)}
    shape |= {"dense": int(f["x_stride"] == f["x_size"]), "base": f["sram_base"], "empty": 0}
    shape |= {"offset": f["dram_base"] % 64, "offset_step": f["x_stride"] % 64, "pad_value": f["pad_value"] % 256}
    return shape | {key: f[key] for key in ("mem", "push", "index")}


def steps(cfg, f):
    """Of each entry of the tile `KEYS`; what padding says of beats is not looked at, and is 0."""
    share = max(cfg.axi_bits // (8 * entry_bytes(cfg, Mem(f["mem"]))), 1)  # entries in a beat
    dense, found = f["x_stride"] == f["x_size"], []
    for y in range(-f["y_pad_0"], f["y_size"] + f["y_pad_1"]):
        for x in range(-f["x_pad_0"], f["x_size"] + f["x_pad_1"]):
            addr = f["sram_base"] + len(found)
            if not (0 <= y < f["y_size"] and 0 <= x < f["x_size"]):
                found.append([1, addr, 0, 0, 0])
                continue
            place = (f["dram_base"] + y * f["x_stride"] + x) % share
            ends = x == f["x_size"] - 1 and (not dense or y == f["y_size"] - 1)
            found.append([0, addr, place, int(ends or place == share - 1), 0])
    found[-1][-1] = 1
    return [tuple(step) for step in found]


@pytest.mark.parametrize("name", PART_CONFIGS)
def test_random_tiles_are_walked(simulate, moves, rng, name):
    cfg = PART_CONFIGS[name]
    dut = Walker(cfg, mems=MEMS)
    commands = [moves.tile(rng, cfg, MEMS[k % 2]) for k in range(60)]
    commands = [f for f in commands if f["x_size"] and f["y_pad_0"] + f["y_size"] + f["y_pad_1"]]
    wanted = [(f, step) for f in commands for step in steps(cfg, f)]

    async def source(ctx):
        await simulate.put(ctx, dut.tile, [walked(f) for f in commands], rng)

    async def writer(ctx):
        for (f, step), got in zip(wanted, await simulate.get(ctx, dut.step, len(wanted), rng)):
            share = max(cfg.axi_bits // (8 * entry_bytes(cfg, Mem(f["mem"]))), 1)
            found = [int(getattr(got, key)) for key in KEYS]
            found[2] %= share
            if step[0]:
                found[2:4] = 0, 0
            assert tuple(found) == step, f
            assert (got.mem, got.index, got.pad_value) == (f["mem"], f["index"], f["pad_value"] % 256)
            assert (got.data, got.single) == (1 - step[0], entry_bytes(cfg, Mem(f["mem"])) <= cfg.axi_bits // 8)

    simulate(dut, source, writer)


def test_an_empty_tile_is_one_step(simulate, moves):
    cfg = PRESETS["tiny"]
    dut = Walker(cfg, mems=MEMS)
    tiles = [walked(moves.simple(Mem.INP, index=k)) | {"empty": int(k == 1)} for k in range(3)]

    async def source(ctx):
        await simulate.put(ctx, dut.tile, tiles)

    async def writer(ctx):
        found = await simulate.get(ctx, dut.step, 3)
        assert [(s.index, s.empty, s.data, s.last) for s in found] == [(0, 0, 1, 1), (1, 1, 0, 1), (2, 0, 1, 1)]

    simulate(dut, source, writer)


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
