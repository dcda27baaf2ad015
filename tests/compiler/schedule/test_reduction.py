"""compiler/schedule/reduction.py: the loops over tiles, and where operands are loaded."""

import pytest

from tilewright.compiler.schedule.dense import dense
from tilewright.compiler.schedule.layer import attach, tile_outputs
from tilewright.compiler.tile import Tile
from tilewright.compiler.tvm_compat import Schedule, te
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import ScheduleError

TINY = PRESETS["tiny"]
DIMS = ("n", "co", "oy", "ox")


@pytest.fixture
def split():
    """A schedule of a copy (2, 6, 7, 8) and what `tile_outputs` makes of its loops."""

    def make(tile):
        x = te.placeholder((2, 6, 7, 8), "int8", "x")
        sch = Schedule(te.create_prim_func([x, te.compute(x.shape, lambda *i: x(*i), name="out")]))
        return sch, *tile_outputs(sch, sch.get_loops(sch.get_sblock("out")), DIMS, tile)

    return make


def extents(sch, loops):
    return [int(sch.get(loop).extent) for loop in loops]


def test_loops_over_tiles_have_the_order_of_the_tile(split):
    sch, levels, inner = split(Tile(n=1, co=2, oy=3, ox=8, order=("oy", "ox", "co", "n")))
    assert [name for name, _ in levels] == ["oy", "ox", "co", "n"]
    assert extents(sch, (loop for _, loop in levels)) == [3, 1, 3, 2]  # the last tile of 7 rows is a tail
    assert extents(sch, inner) == [3, 8, 2, 1]


def test_threads_are_outermost_and_share_the_tiles(split):
    sch, levels, _ = split(Tile(co=2, oy=7, ox=8, n=2, thread="co", vthreads=2))
    assert [name for name, _ in levels] == ["co", "n", "co", "oy", "ox"]
    assert extents(sch, (loop for _, loop in levels)) == [2, 1, 2, 1, 1]


def test_a_thread_along_no_loop_is_refused():
    sch = Schedule(te.create_prim_func([te.placeholder((2,), "int8", "x")]))
    with pytest.raises(ScheduleError, match="Tile.thread = 'oy': must be one of n, co"):
        tile_outputs(sch, [], ("n", "co"), Tile(thread="oy"))


def test_operands_are_loaded_in_the_innermost_loop_that_matters(split):
    sch, levels, _ = split(Tile(n=1, co=2, oy=7, ox=4))
    loops = dict(levels)
    for dims, name in ((("co",), "co"), (("n", "ox"), "ox"), (("n", "oy"), "n"), (("oy",), "n")):
        assert sch.get(attach(sch, levels, dims)).loop_var.same_as(sch.get(loops[name]).loop_var)


@pytest.mark.parametrize("inp_slots, wgt_slots", [(1, 1), (4, 1), (1, 4), (4, 4)])
def test_tiles_that_stay_are_loaded_once(instructions_of, inp_slots, wgt_slots):
    tile = Tile(n=1, co=1, ci=1, inp_slots=inp_slots, wgt_slots=wgt_slots)
    names = instructions_of(dense(TINY, 2, 4 * 4, 4 * 4, tile=tile), TINY)
    assert names.count("LOAD.INP") == (2 * 4 if inp_slots == 4 else 2 * 4 * 4)
    assert names.count("LOAD.WGT") == 2 * 4 * 4  # four blocks of outputs use 16


@pytest.fixture
def instructions_of(instructions):
    """Mnemonics of a schedule's instructions."""
    return lambda sch, cfg: [name for name, _ in instructions(sch, cfg)]
