"""compiler/schedule/layer.py: what the ready schedules have in common."""

from functools import partial
from typing import Any

import pytest

from tilewright.compiler.conv_shape import ConvShape
from tilewright.compiler.schedule.conv2d import conv2d, conv2d_of
from tilewright.compiler.schedule.dense import dense
from tilewright.compiler.schedule.layer import capture, layer_of, scheduled_by
from tilewright.compiler.schedule.tiling import Work, best_tile
from tilewright.compiler.tile import Tile
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import ScheduleError

TINY = PRESETS["tiny"]


def test_the_layer_of_a_ready_schedule_has_its_size_and_no_tile():
    layer = layer_of(dense, TINY, 1, 20, 24, epilogue=[("add", "b"), ("max", 0)])
    assert layer.work == Work(ConvShape(1, 20, 1, 1, 24), 1, 6, 5, operands=1, alu_ops=2) and layer.cfg == TINY
    assert "vthread" not in layer.func.script() and "local." not in layer.func.script()


def test_a_tile_is_the_cheapest_unless_it_is_given_or_searched(ref):
    layer = layer_of(conv2d, TINY, 1, 5, 6, 8, 8, 3, 3)
    cheapest, other = best_tile(layer.work, TINY), Tile(oy=2, ox=4)

    def script(*args):
        return layer.scheduled(*args).mod.script()

    assert script() == script(cheapest) != script(other)
    search = ref.search_for(other)
    assert script(None, None, search) == script(other)
    assert script(cheapest, None, search) == script(cheapest)
    assert script(other, 2) == script(Tile(oy=2, ox=4, vthreads=2))


def test_a_call_without_its_tile_gives_schedule_and_layer():
    scheduled, layer = capture(partial(dense, TINY, 1, 20, 24))
    assert scheduled.mod.script() == layer.scheduled().mod.script()
    with pytest.raises(ScheduleError, match="dense: the tile is to be searched; leave tile out"):
        capture(partial(dense, TINY, 1, 20, 24, tile=Tile()))


def test_tiles_make_the_schedules_of_a_network():
    class Other:
        def scheduled(self, ready):
            return ready(tile=Tile(ci=5))

    plain, other = (scheduled_by(tiles, dense, TINY, 1, 20, 24).mod.script() for tiles in (None, Other()))
    assert plain == dense(TINY, 1, 20, 24).mod.script() != other == dense(TINY, 1, 20, 24, tile=Tile(ci=5)).mod.script()


def test_a_layer_that_does_not_exist_is_the_schedules_error():
    with pytest.raises(ScheduleError, match="smaller than the kernel"):
        layer_of(conv2d, TINY, 1, 5, 6, 8, 8, 7, 7)


@pytest.mark.parametrize(
    "ready, name",
    [
        (partial(conv2d, TINY, 1, 5, 6, 8, 8, 3, 3), "colour"),
        (partial(dense, TINY, 1, 20, 24), "colour"),
        (partial(dense, TINY, 1, 20, 24), "pad_value"),
    ],
)
def test_options_that_a_schedule_does_not_have_are_refused(ready, name):
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
        ready(**{name: 3})


def test_a_shape_and_its_extents_make_the_same_schedule():
    options: Any = {"pad_value": 3, "epilogue": [("shr", 4)], "vthreads": 1}
    shape = ConvShape(1, 8, 5, 6, 12, (3, 2), (2, 1), (1, 0, 1, 1), (1, 2))
    by_extents = conv2d(TINY, 1, 5, 6, 8, 12, 3, 2, (2, 1), (1, 0, 1, 1), (1, 2), **options)
    assert by_extents.mod.script() == conv2d_of(TINY, shape, **options).mod.script()
