"""sim/model/loops.py: factored loops issue the same triples; operands are kept until their entries change."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.sim.model import loops as module
from tilewright.sim.model.loops import DST, SRC, WGT, Axis, Nest, Operands, distinct, factor, grid, trips, uses

steps = st.tuples(*[st.integers(-3, 4)] * 3)


loops = st.lists(st.tuples(st.integers(1, 5), steps), max_size=4)


def visited(nest: Nest) -> np.ndarray:
    """Every triple in order, int64 (n, 3)."""
    return np.stack([(grid(nest.axes, c) + nest.base[c]).reshape(-1) for c in (DST, SRC, WGT)], axis=1)


def unrolled(axes, base=(0, 0, 0)) -> np.ndarray:
    rows = np.array([base])
    for n, step in reversed(axes):
        rows = (np.arange(n)[:, None, None] * np.array(step) + rows).reshape(-1, 3)
    return rows


@given(loops)
def test_unrolled_loops_are_found_again(axes):
    rows = unrolled(axes, (20, 30, 40))
    nest = factor(rows)
    np.testing.assert_array_equal(visited(nest), rows)
    assert not any(axis.table for axis in nest.axes)
    assert len(nest.axes) <= sum(n > 1 for n, _ in axes)


@given(st.lists(st.tuples(*[st.integers(0, 3)] * 3), min_size=1, max_size=20))
def test_any_list_of_micro_ops_is_visited_in_order(rows):
    nest = factor(np.array(rows))
    np.testing.assert_array_equal(visited(nest), rows)
    assert sum(bool(axis.table) for axis in nest.axes) <= 1


def test_a_convolution_kernel_is_four_loops():
    """Over ky, kx, ci and co of a padded tile 16 wide; only the channel loops can be merged."""
    rows = unrolled([(4, (196, 0, 36)), (4, (0, 256, 9)), (3, (0, 16, 3)), (3, (0, 1, 1))])
    assert factor(rows) == Nest(
        (0, 0, 0),
        (Axis(4, (196, 0, 36)), Axis(4, (0, 256, 9)), Axis(3, (0, 16, 3)), Axis(3, (0, 1, 1))),
    )


def test_an_irregular_list_within_a_loop_is_a_table_within_that_loop():
    """A kernel without its first position, for each of two blocks of output channels."""
    positions = [(0, 18 * y + x, 3 * y + x) for y in range(3) for x in range(3) if (y, x) != (0, 0)]
    rows = np.array([[dst, src, wgt + 36 * (dst // 8)] for dst in (0, 8) for _, src, wgt in positions])
    nest = factor(rows)
    np.testing.assert_array_equal(visited(nest), rows)
    assert [(axis.n, bool(axis.table)) for axis in nest.axes] == [(2, False), (8, True)]
    assert nest.axes[0].step == (8, 0, 36) and not nest.axes[1].varies(DST)


def test_a_loop_that_continues_an_inner_one_is_merged_with_it():
    rows = unrolled([(3, (8, 4, 0)), (4, (2, 1, 0))])
    assert factor(rows).axes == (Axis(12, (2, 1, 0)),)
    assert factor(rows).within([(5, (24, 12, 0))]).axes == (Axis(60, (2, 1, 0)),)
    assert factor(rows).within([(5, (24, 13, 0))]).axes == (Axis(5, (24, 13, 0)), Axis(12, (2, 1, 0)))


@given(loops, st.sets(st.sampled_from([DST, SRC, WGT])))
def test_held_indices_stay_at_zero(axes, columns):
    nest = factor(unrolled(axes, (3, 4, 5)))
    expected = visited(nest)
    expected[:, list(columns)] = 0
    np.testing.assert_array_equal(visited(nest.without(*columns)), expected)


@given(st.lists(st.tuples(*[st.integers(0, 9)] * 3), min_size=1, max_size=12), loops)
def test_limits_are_the_smallest_and_largest_index(rows, outer):
    nest = factor(np.array(rows)).within(outer)
    all_of_it = visited(nest)
    for column in (DST, SRC, WGT):
        assert nest.limits(column) == (all_of_it[:, column].min(), all_of_it[:, column].max())
        found = all_of_it[:, column] - all_of_it[:, column].min()
        np.testing.assert_array_equal(uses(nest.axes, column), np.bincount(found.astype(np.intp)))
        if distinct(nest.axes, column):
            assert len(np.unique(all_of_it[:, column])) == len(all_of_it)


def test_distinct_says_so_for_regular_tiles():
    assert distinct([Axis(14, (16, 0, 0)), Axis(14, (1, 0, 0))], DST)
    assert distinct([Axis(3, (-1, 0, 0)), Axis(4, (3, 0, 0))], DST)
    assert not distinct([Axis(14, (13, 0, 0)), Axis(14, (1, 0, 0))], DST)
    assert not distinct([Axis(2, (0, 1, 0))], DST)


@given(st.lists(st.tuples(*[st.integers(0, 9)] * 3), min_size=1, max_size=12), loops, st.integers(1, 9), st.booleans())
def test_pieces_fit_and_visit_the_same(rows, outer, most, ordered):
    nest = factor(np.array(rows)).within(outer)
    pieces = list(nest.pieces(lambda axes: trips(axes) <= most, ordered=ordered))
    assert all(trips(piece.axes) <= most for piece in pieces)
    together = np.concatenate([visited(piece) for piece in pieces])
    expected = visited(nest)
    if not ordered:
        together, expected = (a[np.lexsort(a.T)] for a in (together, expected))
    np.testing.assert_array_equal(together, expected)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 64, 16383])
def test_uses_in_long_loops_are_counted_in_few_steps(n):
    np.testing.assert_array_equal(uses([Axis(n, (0, 0, 0)), Axis(n, (1, 0, 0))], DST), np.full(n, n))


def made(kept, key, limits, size=1):
    """True where the operand of `key` was not kept."""
    calls = []

    def make():
        calls.append(key)
        return np.zeros(size, np.float32)

    kept.get(key, limits, make)
    return bool(calls)


def test_an_operand_is_made_once_until_an_entry_of_it_changes():
    kept = Operands()
    assert made(kept, "a", (3, 5)) and made(kept, "b", (6, 9))
    for low, high in ((0, 2), (10, 12)):
        kept.changed(low, high)
    assert not made(kept, "a", (3, 5)) and not made(kept, "b", (6, 9))
    kept.changed(5, 5)
    assert made(kept, "a", (3, 5)) and not made(kept, "b", (6, 9))
    kept.changed(0, 100)
    assert made(kept, "a", (3, 5)) and made(kept, "b", (6, 9))


def test_nothing_is_kept_once_the_memories_may_change():
    kept = Operands()
    assert made(kept, "a", (0, 0))
    kept.clear()
    assert made(kept, "a", (0, 0))


def test_no_more_is_kept_than_the_limit(monkeypatch):
    monkeypatch.setattr(module, "_BYTES", 100)
    kept = Operands()
    assert made(kept, "a", (0, 0), 12) and made(kept, "b", (1, 1), 12)
    assert not made(kept, "a", (0, 0))
    assert made(kept, "c", (2, 2), 12)
    assert not made(kept, "c", (2, 2)) and made(kept, "a", (0, 0), 12)
    assert made(kept, "large", (3, 3), 1000) and not made(kept, "large", (3, 3))
    kept.changed(3, 3)
    assert made(kept, "a", (0, 0), 12) and made(kept, "b", (1, 1), 12) and not made(kept, "a", (0, 0))
