"""Scratchpad addresses: slots, who shares and who must not, and what is said when space runs out."""

import pytest

from tilewright.compiler.tir.placement import Location, Placement, Slots, Span, Storage
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import CapacityError, ScheduleError
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


def location(name, entries, *accesses, loops=0, mem=Mem.ACC):
    """A tensor of `entries`; an access is a time or (time, spans of the loops around it)."""
    pairs = [(a, ()) if isinstance(a, int) else a for a in accesses]
    return Location(name, "int32", entries * 16, mem, loops, accesses=pairs)


def storage_of(locations, cfg=VTA, placement=None, **slots_of):
    """A Storage of these tensors; `slots` are the numbers that they ask for."""
    return Storage(locations, cfg, placement or Placement(cfg), slots_of)


def overlap(a, b):
    (a_base,), (b_base,) = a.bases, b.bases
    return a_base < b_base + b.size and b_base < a_base + a.size


def test_tensors_lie_side_by_side_while_there_is_room():
    locations = [location("a", 100, 1, 2), location("b", 200, 3, 4)]
    storage_of(locations).assign()
    assert [p.bases for p in locations] == [[0], [100]]
    assert [locations[1].entry(k) for k in (0, 199)] == [100, 299]
    for k in (-1, 200):
        with pytest.raises(ScheduleError, match=f"'b' has 200 entries on chip, the schedule reaches entry {k}"):
            locations[1].entry(k)


def test_tensors_share_entries_when_there_is_not():
    a, b, c = location("a", 1500, 1, 3), location("b", 500, 2, 4), location("c", 1400, 4, 5)
    storage_of([a, b, c]).assign()
    assert overlap(a, c) and not overlap(a, b) and not overlap(b, c)


def test_what_a_loop_carries_is_alive_for_all_of_it():
    loop = Span(2, 9)
    outside, inside = location("outside", 1500, 1, (4, (loop,))), location("inside", 1500, (5, (loop,)), loops=1)
    assert outside.alive() == (1, 9) and inside.alive() == (5, 5)
    with pytest.raises(CapacityError, match="local.acc is too small: .* need 3000 entries, the largest is 'outside'"):
        storage_of([outside, inside]).assign()


def test_in_place_needs_a_source_that_ends_where_the_target_begins():
    a, b, c = location("a", 10, 1, 2), location("b", 10, 2, 3, 4), location("c", 10, 3, 5)
    storage = storage_of([a, b, c])
    assert storage.join(a, b, 2) and storage.join(a, b, 9) and not storage.join(b, c, 3)
    storage.assign()
    assert a.bases == b.bases and not overlap(b, c)


def test_tensors_of_other_size_or_memory_do_not_share():
    a, small, wgt = location("a", 10, 1, 2), location("small", 9, 2, 3), location("wgt", 10, 2, 3, mem=Mem.WGT)
    storage = storage_of([a, small, wgt])
    assert not storage.join(a, small, 2) and not storage.join(a, wgt, 2)


def streamed(name, entries, copies=1, mem=Mem.INP):
    """A tensor that one load inside one loop fills."""
    elements = {Mem.INP: 16, Mem.WGT: 256, Mem.ACC: 16}[mem]
    found = Location(name, "int8", entries * elements * copies, mem, 1, copies, accesses=[(1, (Span(1, 2),))])
    found.writers.append(1)
    return found


def slots_of(location):
    """How many slots_of a tensor got."""
    assert location.slots is not None
    return len(location.slots._used)


def test_tensors_that_rotate_get_as_many_slots_as_fit():
    x, w, alone, inside = streamed("x", 600, 2), streamed("w", 300, mem=Mem.WGT), streamed("x", 9), streamed("x", 9)
    storage_of([x, w], x=5, w=4).assign()
    assert (slots_of(x), slots_of(w)) == (3, 3)  # of 2048 inputs and 1024 weights
    assert x.bases == [0, 600]
    storage_of([alone]).assign()
    assert slots_of(alone) == 1  # without threads nothing is double-buffered
    inside.writers[0] = 2  # a loop inside fills it
    storage_of([inside], x=2).assign()
    assert inside.slots is None and inside.bases == [0]


def test_accumulators_of_two_threads_lie_in_two_banks():
    cfg = PRESETS["pynq_z1"]
    placement = Placement(cfg)
    for first, second in ((0, 1), (1, 0), (0, 1)):  # the next layer begins in the other bank
        acc = streamed("acc", 200, copies=2, mem=Mem.ACC)
        storage = storage_of([acc], cfg, placement)
        storage.assign()
        assert [base // (cfg.acc_depth // 2) for base in acc.bases] in ([first, second], [1 - first, 1 - second])
        storage.in_use()


def test_accumulators_that_do_not_fit_a_bank_use_both():
    cfg = PRESETS["pynq_z1"]
    acc = streamed("acc", 700, copies=2, mem=Mem.ACC)
    other = streamed("other", 600, mem=Mem.ACC)
    storage_of([acc, other], cfg).assign()
    assert (acc.bases, other.bases) == ([0, 700], [1400])
