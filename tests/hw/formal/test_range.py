"""hw/rtl/mover.py, within so many cycles: a load writes only the entries of its tile."""

import pytest
from amaranth.hdl import Signal

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Mem
from tilewright.hw.rtl import mover
from tilewright.hw.rtl.mover import Mover

CFG = PRESETS["tiny"].replace(axi_bits=32)
RANGE = "what is written belongs to the tile"
CYCLES = 10


def one_load(spec, mover):
    """One load of any small tile at any place; data come whenever they like."""
    dut = mover(CFG, mems=(Mem.INP,))
    spec.add("mover", dut)
    cmd, port = dut.cmd.payload, dut.write_inp
    spec.drive("end", dut.cmd.valid, cmd, dut.beats.valid, dut.beats.payload, dut.req.ready, dut.done.ready, dut.hold)
    for name in ("x_size", "y_size", "x_pad_0", "x_pad_1", "y_pad_0", "y_pad_1"):
        spec.takes(cmd[name] < 4)
    spec.takes(cmd.mem == Mem.INP)
    taken, first, beyond = Signal(), Signal(16), Signal(17)
    spec.takes(~(taken & dut.cmd.valid))
    width = (cmd.x_pad_0 + cmd.x_size + cmd.x_pad_1)[:4]
    height = (cmd.y_pad_0 + cmd.y_size + cmd.y_pad_1)[:4]
    with spec.m.If(dut.cmd.valid & dut.cmd.ready):
        spec.m.d.sync += [taken.eq(1), first.eq(cmd.sram_base), beyond.eq(cmd.sram_base + width * height)]
    wrote = port.en.any()
    spec.sees(~wrote | (taken & (first <= port.addr) & (port.addr < beyond)), RANGE)
    spec.reaches(wrote & (port.addr == beyond - 1) & (beyond - first == 3) & dut.done.valid)
    return spec


@pytest.mark.slow
@pytest.mark.parametrize("cycles", [CYCLES, CYCLES + 2])
def test_a_load_writes_only_its_tile_within_so_many_cycles(solver, new_spec, cycles):
    solver.bounded(one_load(new_spec(), Mover), cycles)


def test_a_load_of_three_entries_ends(solver, new_spec):
    solver.reached(one_load(new_spec(), Mover), CYCLES + 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "part, before, after",
    [
        ("Walker", "step.addr.eq(tile.base + count)", "step.addr.eq(tile.base + count + 1)"),
        ("Planner", '+ cmd[f"{axis}_pad_1"]', '+ cmd[f"{axis}_pad_1"] + int(axis == "x")'),
        ("Planner", '+ cmd[f"{axis}_pad_1"]', '+ cmd[f"{axis}_pad_1"] + int(axis == "y")'),
    ],
)
def test_a_wrong_mover_is_found(solver, new_spec, mutant, monkeypatch, part, before, after):
    monkeypatch.setattr(mover, part, getattr(mutant("mover", before, after), part))
    solver.refuted(one_load(new_spec(), mover.Mover), RANGE, CYCLES)
