"""hw/rtl/mover.py: the steps of tiles against their entries, counted one by one."""

import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Mem, entry_bytes
from tilewright.hw.rtl.mover import Walker

MEMS = (Mem.INP, Mem.WGT)
CONFIGS = {"tiny": PRESETS["tiny"], "vta": PRESETS["vta"], "wide": PRESETS["tiny"].replace(axi_bits=256)}
KEYS = ("pad", "addr", "part", "leave", "last")


def described(f):
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


@pytest.mark.parametrize("name", CONFIGS)
def test_random_tiles(simulate, moves, rng, name):
    cfg = CONFIGS[name]
    dut = Walker(cfg, mems=MEMS)
    commands = [moves.tile(rng, cfg, MEMS[k % 2]) for k in range(60)]
    commands = [f for f in commands if f["x_size"] and f["y_pad_0"] + f["y_size"] + f["y_pad_1"]]
    wanted = [(f, step) for f in commands for step in steps(cfg, f)]

    async def source(ctx):
        await simulate.put(ctx, dut.tile, [described(f) for f in commands], rng)

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
    tiles = [described(moves.simple(Mem.INP, index=k)) | {"empty": int(k == 1)} for k in range(3)]

    async def source(ctx):
        await simulate.put(ctx, dut.tile, tiles)

    async def writer(ctx):
        found = await simulate.get(ctx, dut.step, 3)
        assert [(s.index, s.empty, s.data, s.last) for s in found] == [(0, 0, 1, 1), (1, 1, 0, 1), (2, 0, 1, 1)]

    simulate(dut, source, writer)
