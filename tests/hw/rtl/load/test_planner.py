"""hw/rtl/mover.py: requests and tiles against the bytes that a command names."""

import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Mem, entry_bytes
from tilewright.hw.rtl.mover import Planner

CONFIGS = {"tiny": PRESETS["tiny"], "vta": PRESETS["vta"], "wide": PRESETS["tiny"].replace(axi_bits=256)}
LOADS, COMPUTES, PARAMETERS = (Mem.INP, Mem.WGT), (Mem.UOP, Mem.ACC, Mem.ACC8), (Mem.PAR,)
CASES = [(name, mems) for name in CONFIGS for mems in (LOADS, COMPUTES)] + [("tiny", PARAMETERS)]


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


@pytest.mark.parametrize("name, mems", CASES, ids=lambda each: each if isinstance(each, str) else each[0].name)
def test_random_commands(simulate, moves, rng, name, mems):
    cfg = CONFIGS[name]
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
