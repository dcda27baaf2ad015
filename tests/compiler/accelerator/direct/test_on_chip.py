"""compiler/kernels/recording.py: entries of the scratchpads for tiles, and what stays there."""

import numpy as np
import pytest

from tilewright.compiler.graph import RmsNorm, Tensor
from tilewright.compiler.kernels.language import Kernel
from tilewright.compiler.kernels.recording import OnChip, Recording
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import CapacityError, ScheduleError
from tilewright.hw.isa import Isa, Mem

TINY = PRESETS["tiny"]


def chip():
    return OnChip(Recording(TINY, "double", "test"))


def kernel(rec):
    x, y = (Tensor(name, (1, 4), scale=0.05) for name in "xy")
    return Kernel(rec, RmsNorm("op", (x,), y, np.ones(4)))


def test_what_was_taken_counts_as_used_in_the_end():
    on_chip = chip()
    last_use = on_chip.rec.placement.last_use
    with on_chip.scope():
        first = on_chip.region(Mem.INP, 8, 0)
        assert last_use(Mem.INP, first, 8) == 0
    assert last_use(Mem.INP, first, 8) > 0
    with on_chip.scope():
        assert on_chip.region(Mem.INP, 8, 0) == first + 8  # free for longer
        assert on_chip.region(Mem.INP, 4, low=first, high=first + 8) == first


def test_a_kernel_that_does_not_fit_has_used_nothing():
    on_chip = chip()
    with pytest.raises(ScheduleError), on_chip.scope():
        on_chip.region(Mem.WGT, 4, 0)
        raise ScheduleError("too large")
    assert on_chip.rec.placement.last_use(Mem.WGT, 0, TINY.wgt_depth) == 0
    assert on_chip.region(Mem.WGT, TINY.wgt_depth, 0) == 0  # nor taken


def test_nothing_is_taken_twice_and_an_inner_scope_keeps_apart_from_the_outer_one():
    on_chip = chip()
    with on_chip.scope():
        low = on_chip.region(Mem.ACC, TINY.acc_depth - 4, 0)
        with on_chip.scope():
            assert on_chip.region(Mem.ACC, 4, 0) == low + TINY.acc_depth - 4
            with pytest.raises(CapacityError, match="1 entries of ACC"):
                on_chip.region(Mem.ACC, 1, 0)
        assert on_chip.region(Mem.ACC, 4, 0) == low + TINY.acc_depth - 4  # free again


def test_constants_are_loaded_where_they_lie():
    rec = Recording(TINY, "double", "test")
    tile = kernel(rec).constant(Mem.WGT, "w", np.ones((2, 4, 4), np.int8))
    assert loads_of(rec) == [(tile.base, 2)]


def loads_of(rec, mem=Mem.WGT):
    decoded = Isa(rec.cfg).decode(rec.program.finish().insn)
    return [(f["sram_base"], f["x_size"]) for f in decoded if f.get("mem") == mem]


def test_what_is_kept_is_loaded_once_unless_something_takes_its_place():
    rec = Recording(TINY, "double", "test")
    one, two = (np.full((2, 4, 4), k, np.int8) for k in (1, 2))
    first, second, third, last = (kernel(rec) for _ in range(4))
    with first.scope():
        places = [first.constant(Mem.WGT, "w", data, kept=True).base for data in (one, two, one)]
    assert places[0] == places[2] != places[1] and min(places) >= TINY.wgt_depth * 15 // 16
    with second.scope():
        assert second.tile(Mem.WGT, entry=16).base < TINY.wgt_depth // 2  # others have no reason to take it
        with second.scope():
            assert second.constant(Mem.WGT, "w", one, kept=True).base == places[0]
    with third.scope():
        third.tile(Mem.WGT, entry=TINY.wgt_depth)
    with last.scope():
        last.constant(Mem.WGT, "w", two, kept=True)
    assert len(loads_of(rec)) == 3


def test_the_latest_tables_stay():
    wide = PRESETS["pynq_z1_plus"]
    rec = Recording(wide, "double", "test")
    k, count = kernel(rec), wide.tables
    tables = [np.arange(256) - number for number in range(count + 1)]
    assert [OnChip(rec).table(values) for values in tables[:count]] == [(n, False) for n in range(count)]
    assert OnChip(rec).table(tables[0]) == (0, True)
    assert k.table("new", tables[count]) == 1  # that of the one that was used longest ago
    assert OnChip(rec).table(tables[1])[1] is False and len(loads_of(rec, Mem.PAR)) == 1
