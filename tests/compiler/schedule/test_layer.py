"""Layers before their tile is chosen, and the stages after their accumulators."""

from functools import partial
from typing import Any

import pytest

from tilewright.compiler.conv_shape import ConvShape
from tilewright.compiler.schedule import epilogue as ep
from tilewright.compiler.schedule.conv2d import conv2d, conv2d_of
from tilewright.compiler.schedule.dense import dense
from tilewright.compiler.schedule.layer import capture, layer_of, scheduled_by
from tilewright.compiler.schedule.tiling import Work, best_tile
from tilewright.compiler.tile import Tile
from tilewright.compiler.tvm_compat import te
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import ScheduleError

from .conftest import SearchFor

TINY = PRESETS["tiny"]


def test_the_layer_of_a_ready_schedule_has_its_size_and_no_tile():
    layer = layer_of(dense, TINY, 1, 20, 24, epilogue=[("add", "b"), ("max", 0)])
    assert layer.work == Work(ConvShape(1, 20, 1, 1, 24), 1, 6, 5, operands=1, alu_ops=2) and layer.cfg == TINY
    assert "vthread" not in layer.func.script() and "local." not in layer.func.script()


def test_a_tile_is_the_cheapest_unless_it_is_given_or_searched():
    layer = layer_of(conv2d, TINY, 1, 5, 6, 8, 8, 3, 3)
    cheapest, other = best_tile(layer.work, TINY), Tile(oy=2, ox=4)

    def script(*args):
        return layer.scheduled(*args).mod.script()

    assert script() == script(cheapest) != script(other)
    search = SearchFor(other)
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


CHAIN = [("shr", 3), ("add", "b"), ("mul", "s"), ("sub", "b")]


def epilogue(chain, planes):
    return ep.build(te.placeholder((2, 3, 5, 1, 4), "int32", "acc"), chain, planes, TINY, 3)


def test_parameters_are_loaded_once_each():
    found = epilogue(CHAIN, False)
    assert [tensor.op.name for tensor in found.operands] == ep.operand_names(CHAIN) == ["b", "s"]
    assert [tuple(map(int, tensor.shape)) for tensor in found.operands] == [(3, 1, 4)] * 2
    assert found.readers == [(name, "local.acc") for name in ("add1", "mul2", "sub3")]


@pytest.mark.parametrize(
    "chain, planes, stages, stored, operations",
    [
        (CHAIN, False, ["shr0", "add1", "mul2", "sub3"], [[], [], [], [], ["out"]], 4),
        ([], False, [], [["out"]], 0),
        ([("add", "b")], True, ["add0", "byte1", "byte2", "byte3"], [[], *([name] for name in ep.PLANES)], 4),
        ([], True, ["byte1", "byte2", "byte3"], [[name] for name in ep.PLANES], 3),
        ([("add", "b")], 2, ["add0", "byte1"], [[], ["OUT0"], ["OUT1"]], 2),
    ],
)
def test_outputs_follow_the_stages(chain, planes, stages, stored, operations):
    found = epilogue(chain, planes)
    assert found.stages == stages and ep.alu_ops(chain, planes) == operations
    assert [found.stored_after(stage) for stage in (None, *stages)] == stored


def test_parameters_of_all_channels_are_one_entry():
    each, every = (epilogue([(op, "p")], False) for op in ("requant", "requant_all"))
    assert [tuple(map(int, found.operands[0].shape)) for found in (each, every)] == [(3, 4, 3), (1, 4, 3)]
    assert (each.shared, every.shared) == (frozenset(), {"out"})
    work = Work.of(ConvShape(1, 4, 1, 1, 12), TINY)
    assert [ep.with_epilogue(work, [(op, "p")], False).packed for op in ("requant", "requant_all")] == [1, 0]


@pytest.mark.parametrize(
    "stage, planes, text",
    [
        (("div", 2), False, r"epilogue stage \('div', 2\): must be one of add, sub, mul"),
        (("add", 1.5), False, r"epilogue stage \('add', 1.5\): must be one of"),
        (("add",), False, r"epilogue stage \('add',\): must be one of"),
        (("mul", 0), False, "the result would always be 0"),
        (("add", "x"), False, "epilogue parameter 'x': the name is taken"),
        (("add", "out"), False, "epilogue parameter 'out': the name is taken"),
        (("add", "OUT3"), False, "epilogue parameter 'OUT3': the name is taken"),
        (("requant_all", "p"), True, "must be the last one, without planes"),
        (("max", 2), 5, "planes = 5: must be True, False, or 2 to 4 bytes"),
    ],
)
def test_impossible_stages(stage, planes, text):
    ep.check([*CHAIN, ("max", 0), ("min", -5), ("shl", 2)], ["x", "w"])
    with pytest.raises(ScheduleError, match=text):
        ep.check([("max", 0), stage], ["x"], planes)
        ep.plane_names(planes)
