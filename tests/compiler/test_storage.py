"""Scratchpad addresses: who shares, who must not, and what is said when space runs out."""

import pytest

from tilewright.compiler.storage import Place, Span, Storage
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import CapacityError
from tilewright.hw.isa import Mem

VTA = PRESETS["vta"]


def place(name, entries, *accesses, loops=0, mem=Mem.ACC):
    """A tensor of `entries`; an access is a time or (time, spans of the loops around it)."""
    pairs = [(a, ()) if isinstance(a, int) else a for a in accesses]
    return Place(name, "int32", entries * 16, mem, loops, accesses=pairs)


def overlap(a, b):
    size = [p.elements // 16 for p in (a, b)]
    return a.base < b.base + size[1] and b.base < a.base + size[0]


def test_tensors_lie_side_by_side_while_there_is_room():
    places = [place("a", 100, 1, 2), place("b", 200, 3, 4)]
    Storage(places, VTA).assign()
    assert [p.base for p in places] == [0, 100]


def test_tensors_share_entries_when_there_is_not():
    a, b, c = place("a", 1500, 1, 3), place("b", 500, 2, 4), place("c", 1400, 4, 5)
    Storage([a, b, c], VTA).assign()
    assert overlap(a, c) and not overlap(a, b) and not overlap(b, c)


def test_what_a_loop_carries_is_alive_for_all_of_it():
    loop = Span(2, 9)
    outside, inside = place("outside", 1500, 1, (4, (loop,))), place("inside", 1500, (5, (loop,)), loops=1)
    assert outside.alive() == (1, 9) and inside.alive() == (5, 5)
    with pytest.raises(CapacityError, match="local.acc is too small: .* need 3000 entries, the largest is 'outside'"):
        Storage([outside, inside], VTA).assign()


def test_in_place_needs_a_source_that_ends_where_the_target_begins():
    a, b, c = place("a", 10, 1, 2), place("b", 10, 2, 3, 4), place("c", 10, 3, 5)
    storage = Storage([a, b, c], VTA)
    assert storage.join(a, b, 2) and not storage.join(b, c, 3)
    storage.assign()
    assert a.base == b.base and not overlap(b, c)


def test_chains_of_in_place_stages_are_one_tensor():
    a, b, c = place("a", 10, 1, 2), place("b", 10, 2, 3), place("c", 10, 3, 4)
    storage = Storage([a, b, c], VTA)
    assert storage.join(a, b, 2) and storage.join(b, c, 3) and storage.join(a, c, 9)
    storage.assign()
    assert a.base == b.base == c.base


def test_tensors_of_other_size_or_memory_do_not_share():
    a, small, wgt = place("a", 10, 1, 2), place("small", 9, 2, 3), place("wgt", 10, 2, 3, mem=Mem.WGT)
    storage = Storage([a, small, wgt], VTA)
    assert not storage.join(a, small, 2) and not storage.join(a, wgt, 2)
