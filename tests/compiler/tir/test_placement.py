"""compiler/tir/placement.py: which slot the next tile takes, and which entries have been free for longest."""

from tilewright.compiler.tir.placement import Placement, Slots
from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Mem

VTA = PRESETS["vta"]


def slots(bases, placement=None):
    return Slots(Mem.INP, bases, 10, placement or Placement(VTA))


def test_tiles_take_slots_in_turn_and_are_found_again():
    three = slots([0, 10, 20])
    assert [three.take(0, tile) for tile in "abcab"] == [(0, False), (10, False), (20, False), (0, True), (10, True)]
    assert three.take(0, "d") == (20, False)  # c was taken the longest time ago
    assert three.take(0, "c") == (0, False)


def test_what_another_thread_holds_stays():
    two = slots([0, 10])
    assert two.take(0, "a") == (0, False)
    assert two.take(1, "b") == (10, False)
    assert two.take(1, "c") == (10, False)  # although a is older
    assert two.take(1, "a") == (0, True)
    assert two.take(0, "d") == (10, False)


def test_what_is_forgotten_is_loaded_again():
    one = slots([0])
    one.take(0, "a")
    one.forget()
    assert one.take(0, "a") == (0, False)


def test_slots_that_were_free_for_longest_come_first():
    placement = Placement(VTA)
    for base in (20, 0, 10):
        placement.use(Mem.INP, base, 10)
    three = slots([0, 10, 20], placement)
    assert [three.take(0, tile)[0] for tile in "abc"] == [20, 0, 10]


def test_a_region_is_where_nothing_was_in_use_lately():
    placement = Placement(VTA)
    placement.use(Mem.WGT, 0, 300)
    assert placement.region(Mem.WGT, 500, 0, VTA.wgt_depth) == 300
    placement.use(Mem.WGT, 300, VTA.wgt_depth - 300)
    assert placement.region(Mem.WGT, 300, 0, VTA.wgt_depth) == 0
    assert placement.region(Mem.WGT, 100, 200, VTA.wgt_depth) == 200
    assert placement.last_use(Mem.WGT, 0, 300) == 1 and placement.last_use(Mem.WGT, 0, 301) == 2


def test_reserved_entries_are_taken_last():
    placement = Placement(VTA)
    placement.reserve(Mem.INP, 8, 4)
    placement.use(Mem.INP, 0, 8)
    assert placement.region(Mem.INP, 4, 0, 12) == 0 and placement.reserved(Mem.INP, 8, 4)
    assert placement.region(Mem.INP, 12, 0, 12) == 0
    placement.use(Mem.INP, 0, 9)
    assert not placement.reserved(Mem.INP, 8, 4) and placement.reserved(Mem.INP, 9, 3)


def test_ternary_weights_have_entries_where_there_is_a_unit_for_them():
    placement = Placement(PRESETS["tiny_two"])
    assert placement.region(Mem.TWGT, 128, 0, 128) == 0
    placement.use(Mem.TWGT, 0, 64)
    assert placement.region(Mem.TWGT, 64, 0, 128) == 64
