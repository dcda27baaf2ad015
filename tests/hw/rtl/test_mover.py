"""hw/rtl/mover.py: against a plain restatement of the tile's equation, for all memories; the latencies of its parts."""

from typing import Any

import numpy as np
import pytest

from tests.hw.bench import (
    DRAM_BYTES,
    Take,
    Watch,
    answers,
    get,
    kept,
    offer,
    one_entry,
    pack,
    put,
    random_tile,
    script,
    simulate,
)
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

FOUR = {
    # beats of one row, of half a row, of two rows, of a quarter of the scales; and of twice the scales
    f"4 bits, {block_in}x{block_out}, {bits}": Config(
        block_in=block_in,
        block_out=block_out,
        axi_bits=bits,
        wgt_bytes=128 * block_in * block_out,
        extensions=frozenset({"pad_value", "wgt4"}),
    )
    for block_in, block_out, bits in (
        (8, 8, 32), (16, 16, 32), (4, 16, 64), (4, 32, 32), (8, 8, 64), (16, 8, 64), (8, 16, 128)
    )
}  # fmt: skip

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


def four_bits(cfg, number):
    """The entry of weights, as a number, that `number`, an entry of WGT4, stands for."""
    nibbles = [number >> 4 * k & 15 for k in range(cfg.block_out * (cfg.block_in + 1))]
    values = nibbles[cfg.block_out :]
    return pack([nibbles[k // cfg.block_in] * (q - 16 * (q > 7)) for k, q in enumerate(values)], 8)


def expected(cfg, mems, tiles, dram):
    """What the tiles write: the last datum of every entry, as a number."""
    out, named = {mem: {} for mem in mems}, {mem.id: mem for mem in loaded_as(cfg, mems)}
    for f in tiles:
        mem = named[f["mem"]]
        target = {Mem.ACC8: Mem.ACC, Mem.WGT4: Mem.WGT}.get(mem, mem)
        size, bits = entry_bytes(cfg, mem), padding_bits(cfg).get(target, 32)
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
                    value = four_bits(cfg, value) if mem == Mem.WGT4 else value
                else:
                    lane = f["pad_value"] & ((1 << bits) - 1)
                    value = sum(lane << k for k in range(0, entry_bits(cfg, target), bits))
                out[target][entry] = value
                entry += 1
    return out


LOADS, COMPUTES, TERNARY = (Mem.INP, Mem.WGT), (Mem.UOP, Mem.ACC), (Mem.INP, Mem.WGT, Mem.TWGT, Mem.TUOP)

CASES = [pytest.param(name, mems, id=f"{name}-{mems[0].name}") for name in CONFIGS for mems in (LOADS, COMPUTES)]

CASES += [pytest.param(name, TERNARY, id=name) for name in TWO]
CASES += [pytest.param(name, LOADS, id=name) for name in FOUR]


@pytest.mark.circuit
@pytest.mark.parametrize("name, mems", CASES)
def test_random_tiles(rng, name, mems):
    cfg = (CONFIGS | TWO | FOUR)[name]
    dut = Mover(cfg, mems=mems)
    dram = rng.integers(0, 256, DRAM_BYTES, np.uint8)
    kinds = loaded_as(cfg, mems)
    tiles = [random_tile(rng, cfg, kinds[int(rng.integers(0, len(kinds)))]) for _ in range(30)]
    got, moved = {mem: {} for mem in mems}, Watch(dut.bytes)

    async def sink(ctx):
        await get(ctx, dut.done, len(tiles), rng)
        assert ctx.get(dut.idle) and not ctx.get(dut.fault.code)

    async def hold(ctx):
        while True:
            ctx.set(dut.hold, int(rng.random() < 0.1))
            await ctx.tick()

    memory = answers(dut, dram, lambda: rng.random() < 0.7, lambda: rng.random() < 0.8)
    benches = [kept(dut, cfg, mem, got[mem]) for mem in mems]
    simulate(dut, offer(dut.cmd, tiles, rng), sink, background=[*benches, memory, moved, hold])
    assert got == expected(cfg, mems, tiles, dram)
    named = {mem.id: mem for mem in kinds}
    rows = [(named[f["mem"]], f) for f in tiles]
    assert moved.sum() == sum((1 if m in UOPS else f["y_size"]) * f["x_size"] * entry_bytes(cfg, m) for m, f in rows)


@pytest.mark.circuit
def test_one_beat_per_cycle_from_row_to_row_and_command_to_command():
    dut = Mover(PRESETS["vta"], mems=(Mem.INP, Mem.WGT))
    tiles = [one_entry(Mem.INP, y_size=4, x_size=3, x_stride=4, dram_base=k) for k in range(8)]
    beats = Watch(dut.beats.valid & dut.beats.ready)
    memory = answers(dut, np.zeros(DRAM_BYTES, np.uint8))
    simulate(dut, offer(dut.cmd, tiles), Take(dut.done, len(tiles)), background=[memory, beats])
    at = beats.at()
    assert len(at) == 8 * 4 * 3 * 2 == at[-1] - at[0] + 1


@pytest.mark.circuit
def test_requests_run_ahead_of_the_data():
    dut = Mover(PRESETS["vta"], mems=(Mem.INP, Mem.WGT))
    commands = [one_entry(Mem.WGT, index=k) for k in range(TILE_DEPTH)]
    simulate(dut, offer(dut.cmd, commands), Take(dut.req, TILE_DEPTH))


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
def test_faults_name_the_instruction(fields, broken, code):
    dut = Mover(PRESETS["tiny"], mems=(Mem.INP, Mem.WGT))
    tiles = [one_entry(Mem.INP, index=6, dram_base=64), one_entry(Mem.INP, index=7, **fields)]
    tiles.append(one_entry(Mem.INP, index=8))

    async def sink(ctx):
        await get(ctx, dut.done, len(tiles))
        assert (ctx.get(dut.fault.code), ctx.get(dut.fault.index)) == (code, 7 if code else 0)

    memory = answers(dut, np.zeros(DRAM_BYTES, np.uint8), broken=broken)
    simulate(dut, offer(dut.cmd, tiles), sink, background=[memory])


PART_CONFIGS = {"tiny": PRESETS["tiny"], "vta": PRESETS["vta"], "wide": PRESETS["tiny"].replace(axi_bits=256)}

PARAMETERS = (Mem.PAR,)
REQUESTED_CASES: list[tuple[str, tuple[Mem, ...]]] = [
    (name, mems) for name in PART_CONFIGS for mems in (LOADS, (Mem.UOP, Mem.ACC, Mem.ACC8))
]
REQUESTED_CASES.append(("tiny", PARAMETERS))


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
    """The tile of a command as a planner describes it: last column and row, and what is not padding."""
    f = normal(f)
    across, down = f["x_pad_0"] + f["x_size"], f["y_pad_0"] + f["y_size"]
    tile = {"x_begin": f["x_pad_0"], "x_final": across - 1, "x_last": across + f["x_pad_1"] - 1}
    tile |= {"y_begin": f["y_pad_0"], "y_final": down - 1, "y_end": down, "y_last": down + f["y_pad_1"] - 1}
    tile |= {"one_column": int(tile["x_last"] == 0), "one_row": int(tile["y_last"] == 0)}
    tile |= {"dense": int(f["x_stride"] == f["x_size"]), "base": f["sram_base"], "index": f["index"]}
    tile |= {"offset": f["dram_base"] % 64, "mem": f["mem"], "pad_value": f["pad_value"] % 256}
    return tile if tile["dense"] else tile | {"offset_step": f["x_stride"] % 64}


@pytest.mark.parametrize(
    "name, mems", REQUESTED_CASES, ids=lambda each: each if isinstance(each, str) else each[0].name
)
def test_random_commands(rng, name, mems):
    cfg = PART_CONFIGS[name]
    dut = Planner(cfg, mems=mems)
    commands = [random_tile(rng, cfg, mems[int(rng.integers(0, len(mems)))]) for _ in range(40)]
    if mems == PARAMETERS:
        commands = [f | {"y_pad_0": 0, "y_pad_1": 0, "x_pad_0": 0, "x_pad_1": 0} for f in commands]
    asked = [request for f in commands for request in requests(cfg, f)]

    memory, walker = Take(dut.req, len(asked), rng), Take(dut.tile, len(commands), rng)
    simulate(dut, offer(dut.cmd, commands, rng), memory, walker)
    assert [(r.addr, r.beats) for r in memory.values] == asked
    for f, found in zip(commands, walker.values):
        n = normal(f)
        assert found.empty == (n["x_size"] == 0 or n["y_pad_0"] + n["y_size"] + n["y_pad_1"] == 0)
        if not found.empty:
            assert {key: getattr(found, key) for key in described(f)} == described(f), f
        assert (found.push.push_next, found.push.push_prev) == (1, 0)


@pytest.mark.circuit
def test_a_request_per_cycle():
    dut = Planner(PRESETS["vta"], mems=LOADS)
    commands = [one_entry(Mem.INP, y_size=5, x_stride=9, dram_base=k) for k in range(4)]
    requests = Watch(dut.req.valid)
    ready = script(dut, ({"req.ready": 1, "tile.ready": 1}, {}, 40))
    simulate(dut, offer(dut.cmd, commands), ready, background=[requests])
    at = requests.at()
    assert len(at) == 20 == at[-1] - at[0] + 1


KEYS = ("pad", "addr", "part", "leave", "last")


def walked(f):
    """The tile of a command as a walker takes it."""
    return {"offset_step": f["x_stride"] % 64, "empty": 0, "push": f["push"]} | described(f)


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
def test_random_tiles_are_walked(rng, name):
    cfg = PART_CONFIGS[name]
    dut = Walker(cfg, mems=LOADS)
    commands = [random_tile(rng, cfg, LOADS[k % 2]) for k in range(60)]
    commands = [f for f in commands if f["x_size"] and f["y_pad_0"] + f["y_size"] + f["y_pad_1"]]
    wanted = [(f, step) for f in commands for step in steps(cfg, f)]

    writer = Take(dut.step, len(wanted), rng)
    simulate(dut, offer(dut.tile, [walked(f) for f in commands], rng), writer)
    for (f, step), got in zip(wanted, writer.values, strict=True):
        share = max(cfg.axi_bits // (8 * entry_bytes(cfg, Mem(f["mem"]))), 1)
        found = [int(getattr(got, key)) for key in KEYS]
        found[2] %= share
        if step[0]:
            found[2:4] = 0, 0
        assert tuple(found) == step, f
        assert (got.mem, got.index, got.pad_value) == (f["mem"], f["index"], f["pad_value"] % 256)
        assert (got.data, got.single) == (1 - step[0], entry_bytes(cfg, Mem(f["mem"])) <= cfg.axi_bits // 8)


def test_an_empty_tile_is_one_step():
    cfg = PRESETS["tiny"]
    dut = Walker(cfg, mems=LOADS)
    tiles = [walked(one_entry(Mem.INP, index=k)) | {"empty": int(k == 1)} for k in range(3)]
    writer = Take(dut.step, 3)
    simulate(dut, offer(dut.tile, tiles), writer)
    assert [(s.index, s.empty, s.data, s.last) for s in writer.values] == [(0, 0, 1, 1), (1, 1, 0, 1), (2, 0, 1, 1)]


TINY, VTA = PRESETS["tiny"], PRESETS["vta"]


def step(mem, addr, **fields):
    keys = ("empty", "pad", "pad_value", "single", "part", "leave", "last", "index")
    made = {"mem": int(mem), "addr": addr, **dict.fromkeys(keys, 0), "push": {"push_prev": 0, "push_next": 1}} | fields
    return made | {"data": int(not made["empty"] and not made["pad"])}


def write(rng, cfg, mem, steps, beats):
    """(what is in the scratchpad `mem` after the steps, bytes counted, the fault)."""
    dut, store, faults = Writer(cfg, mems=(mem,)), {}, []
    moved, done = Watch(dut.bytes), Take(dut.done, sum(s["last"] for s in steps), rng)

    async def source(ctx):
        await put(ctx, dut.step, [s | {"single": int(chunks(cfg, Mem(s["mem"])) == 1)} for s in steps], rng)
        await ctx.tick().repeat(3)
        faults.append((ctx.get(dut.fault.code), ctx.get(dut.fault.index)))

    memory = offer(dut.beats, [{"data": d, "error": e} for d, e in beats], rng)
    simulate(dut, source, memory, done, background=[kept(dut, cfg, mem, store), moved])
    assert all(token.push_next for token in done.values)
    return store, moved.sum(), faults[0]


def whole(beats):
    """The entry that beats of 64 bits make."""
    return pack([data for data, _ in beats], 64)


END = {"leave": 1, "last": 1}
RISING = [(0x0101010101010101 * k, 0) for k in range(1, 33)]
FIRST, BEYOND = step(Mem.INP, 255, index=4, **END), step(Mem.INP, 256, index=5, **END)
WRITTEN: dict[str, tuple[Any, ...]] = {
    "entries that share a beat": (
        [step(Mem.INP, 3), step(Mem.INP, 4, part=1, leave=1), step(Mem.INP, 5, part=1, **END)],
        [(0x88776655_44332211, 0), (0xFFEEDDCC_BBAA9900, 0)],
        ({3: 0x44332211, 4: 0x88776655, 5: 0xFFEEDDCC}, 12, (Error.NONE, 0)),
    ),
    "an entry of 32 beats": ([step(Mem.WGT, 7, **END)], RISING, ({7: whole(RISING)}, 256, (Error.NONE, 0)), VTA),
    # three times a power of two
    "parameters": ([step(Mem.PAR, 2, **END)], RISING[:6], ({2: whole(RISING[:6])}, 48, (Error.NONE, 0))),
    "int8 becomes int32": (
        [step(Mem.ACC8, 0, part=1, **END)],
        [(0x80FF7F01 << 32, 0)],
        ({0: pack([1, 0x7F, -1, -0x80])}, 4, (Error.NONE, 0)),
    ),
    **{
        f"padding of {mem.name} takes no beat": (
            [step(mem, 1, pad=1, pad_value=0xFE, last=1)],
            [],
            ({1: pack([-2] * count, bits)}, 0, (Error.NONE, 0)),
        )
        for mem, bits, count in ((Mem.INP, 8, 4), (Mem.WGT, 8, 16), (Mem.ACC, 32, 4))
    },
    "an empty tile gives its token": ([step(Mem.INP, 9, empty=1, last=1)], [], ({}, 0, (Error.NONE, 0))),
    "an entry beyond the last": ([FIRST, BEYOND], [(1, 0), (2, 0)], ({255: 1}, 8, (Error.RANGE, 5))),
    "a beat with an error": ([FIRST, BEYOND], [(1, 1), (2, 0)], ({255: 1}, 8, (Error.READ_RESPONSE, 4))),
}


@pytest.mark.circuit
@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_written(rng, name):
    steps, beats, expected, *cfg = WRITTEN[name]
    mem = Mem(steps[0]["mem"])
    cfg = cfg[0] if cfg else TINY
    assert write(rng, cfg, Mem.ACC if mem == Mem.ACC8 else mem, steps, beats) == expected


@pytest.mark.circuit
def test_nothing_is_written_while_held():
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

    simulate(dut, bench, background=[kept(dut, TINY, Mem.INP, store)])
