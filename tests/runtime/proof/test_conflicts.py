"""runtime/proof/conflicts.py, against sets of cells one by one."""

import numpy as np
import pytest

from tilewright.runtime.proof import conflicts
from tilewright.runtime.proof.conflicts import Sets, Touches, Use, repeated_ranges


@pytest.mark.parametrize("count", [0, 1, 4, 12, 63, 64, 65, 200])
def test_classes_are_the_cells_that_the_same_sets_contain(rng, count):
    sets = Sets(40)
    for _ in range(count):
        first = int(rng.integers(31))
        cells = slice(first, first + int(rng.integers(1, 11)))
        sets.number(cells if rng.integers(2) else np.unique(rng.integers(0, 40, 6)))
    classes, of_cell = sets.classes()
    assert len(of_cell) == 40 and all((np.diff(mine) > 0).all() for mine in classes)
    assert not of_cell[[k for k in range(40) if not any(k in np.arange(40)[cells] for cells in sets.cells)]].any()
    assert 0 not in np.concatenate([np.ones(1, int), *classes])
    contents = [set(np.arange(40)[cells].tolist()) for cells in sets.cells]
    for cells, mine in zip(contents, classes):
        assert set(np.flatnonzero(np.isin(of_cell, mine)).tolist()) == cells
    signature = [tuple(k in cells for cells in contents) for k in range(40)]
    same = {(of_cell[k], signature[k]) for k in range(40)}
    assert len(same) == len(set(signature)) == len(set(of_cell.tolist()))


def test_an_equal_set_has_the_number_of_the_first():
    sets = Sets(8)
    assert [sets.number(slice(0, 4)), sets.number(np.array([1, 5])), sets.number(slice(0, 4))] == [0, 1, 0]


def test_events_are_those_of_each_instruction_however_many_come_at_a_time(monkeypatch):
    uses = [Use(0, 0, 0, True), Use(1, 0, 0, False), Use(1, 2, 1, True, True)]
    touches = Touches(np.array([1, 2, 0, 1]), 3, uses, [np.array([0, 1]), np.array([1, 2])], 3)
    rows = [(0, c, False, False, 0) for c in (0, 1)] + [(0, c, True, True, 2) for c in (1, 2)]
    rows += [(2, c, True, False, 0) for c in (0, 1)]
    rows += [(3, *row[1:]) for row in rows[:4]]
    for most in (1 << 22, 3):
        monkeypatch.setattr(conflicts, "MOST_EVENTS", most)
        parts = [list(zip(*(column.tolist() for column in events))) for events in touches.events()]
        assert sorted(sum(parts, [])) == sorted(rows)
        assert (len(parts) == 1) == (most > 10)


def test_ranges_one_behind_the_other():
    owner, values = repeated_ranges(np.array([5, 0, 9]), np.array([2, 0, 3]))
    assert (owner.tolist(), values.tolist()) == ([0, 0, 2, 2, 2], [5, 6, 9, 10, 11])
