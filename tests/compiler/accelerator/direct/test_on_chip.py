"""compiler/accelerator/direct/on_chip.py: entries of the scratchpads for kernels that are recorded directly."""

import numpy as np
import pytest

from tilewright.compiler.accelerator.direct.on_chip import on_chip
from tilewright.compiler.accelerator.recording import Recording
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import ScheduleError
from tilewright.hw.isa import Isa, Mem

TINY = PRESETS["tiny"]


def test_what_was_taken_counts_as_used_in_the_end():
    rec = Recording(TINY, "double", "test")
    with on_chip(rec) as chip:
        first = chip.region(Mem.INP, 8)
        assert rec.placement.last_use(Mem.INP, first, 8) == 0
    assert rec.placement.last_use(Mem.INP, first, 8) > 0
    with on_chip(rec) as chip:
        assert chip.region(Mem.INP, 8) == first + 8  # free for longer
        assert chip.region(Mem.INP, 4, low=first, high=first + 8) == first


def test_a_kernel_that_does_not_fit_has_used_nothing():
    rec = Recording(TINY, "double", "test")
    with pytest.raises(ScheduleError), on_chip(rec) as chip:
        chip.region(Mem.WGT, 4)
        raise ScheduleError("too large")
    assert rec.placement.last_use(Mem.WGT, 0, TINY.wgt_depth) == 0


def test_slots_lie_side_by_side_and_banks_apart():
    rec = Recording(TINY, "double", "test")
    with on_chip(rec) as chip:
        a, b = chip.slots(Mem.INP, 5)
        low, high = chip.banks(3, 7, TINY.acc_depth // 2)
    assert b == a + 5 and low + 3 <= TINY.acc_depth // 2 <= high
    assert rec.placement.last_use(Mem.INP, b, 5) and rec.placement.last_use(Mem.ACC, high, 7)


def test_constants_are_loaded_where_they_stay():
    rec = Recording(TINY, "double", "test")
    buffer = rec.constant("w", np.ones((2, 4, 4), np.int8))
    with on_chip(rec) as chip:
        base = chip.constant(Mem.WGT, buffer, 2)
    (load,) = [f for f in Isa(TINY).decode(rec.program.finish().insn) if f.get("mem") == Mem.WGT]
    assert (load["sram_base"], load["x_size"], load["y_size"]) == (base, 2, 1)


def loads_of(rec):
    decoded = Isa(rec.cfg).decode(rec.program.finish().insn)
    return [(f["sram_base"], f["x_size"]) for f in decoded if f.get("mem") == Mem.WGT]


def test_what_is_kept_is_loaded_once_unless_something_takes_its_place():
    rec = Recording(TINY, "double", "test")
    one, two = (np.full((2, 4, 4), k, np.int8) for k in (1, 2))
    with on_chip(rec) as chip:
        places = [chip.kept(Mem.WGT, "w", data, 2) for data in (one, two, one)]
    assert places[0] == places[2] != places[1] and min(places) >= TINY.wgt_depth * 15 // 16
    with on_chip(rec) as chip:
        assert chip.region(Mem.WGT, 16) < TINY.wgt_depth // 2  # others have no reason to take it
        assert chip.kept(Mem.WGT, "w", one, 2) == places[0]
    with on_chip(rec) as chip:
        chip.region(Mem.WGT, TINY.wgt_depth)
    with on_chip(rec) as chip:
        chip.kept(Mem.WGT, "w", two, 2)
    assert len(loads_of(rec)) == 3
