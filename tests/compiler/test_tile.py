"""compiler/tile.py: which tiles no schedule can have."""

import pytest

from tilewright.compiler.tile import Tile
from tilewright.hw.errors import ScheduleError


@pytest.mark.parametrize(
    "fields, text",
    [
        ({"ci": 0}, "Tile.ci = 0: must be at least 1"),
        ({"order": ("n", "co", "oy")}, "Tile.order = ('n', 'co', 'oy'): must name each of n, co, oy, ox once"),
        ({"thread": "ci"}, "Tile.thread = 'ci': must be one of n, co, oy, ox"),
        ({"vthreads": 5}, "Tile.vthreads = 5: must be 1 to 4"),
        ({"wgt_slots": -1}, "Tile.wgt_slots = -1: must be at least 0"),
    ],
)
def test_impossible_tiles_are_named(fields, text):
    with pytest.raises(ScheduleError) as caught:
        Tile(**fields).checked()
    assert str(caught.value) == text


def test_a_possible_tile_is_itself():
    tile = Tile(1, 2, 3, 4, 5, ("co", "n", "oy", "ox"), "oy", 4, 3, 0)
    assert tile.checked() is tile
