"""compiler/tune/tasks.py: trials of tiles as jobs, in rounds."""

import pickle
from dataclasses import replace
from functools import partial

import pytest

from tilewright.compiler.jobs import Store
from tilewright.compiler.schedule.dense import dense
from tilewright.compiler.schedule.layer import layer_of
from tilewright.compiler.tune.search import known_tiles, layer_key
from tilewright.compiler.tune.tasks import Measurer, Task, Trial, evolve, measure, recorded, tile_line
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import BoardError, CapacityError
from tilewright.sim.dram import ZYNQ_HP

TINY = PRESETS["tiny"]


@pytest.fixture(scope="module")
def task():
    return Task(pickle.dumps(partial(dense, TINY, 6, 32, 40)), layer_key(layer_of(dense, TINY, 6, 32, 40)), "dense")


def test_trials_of_a_layer_are_kept_and_found_again(task, tmp_path):
    for new in (True, False):
        line, seen = tile_line(task, Measurer(), 0), []
        with Store(tmp_path / "t.db") as store:
            evolve([line], measure, 6, store=store, on_done=seen.append)
            assert len(store.of(f"tile {task.key}")) == 6
        assert [each.new for each in seen] == [new] * 6
        assert line.best and line.before and line.best["cycles"] <= line.before == line.records[0]["cycles"]
        assert line.records[0]["first"] and not any(each["first"] for each in line.records[1:])
    known = known_tiles(tmp_path / "t.db", TINY)
    assert bool(known.tiles) == (line.best["cycles"] < line.before)


def test_a_tile_without_a_program_is_a_record(task):
    tile = {"n": 64, "ci": 64, "vthreads": 9, "order": ["n", "co", "oy", "ox"]}
    found = measure(Trial(task, tile, Measurer()))
    assert (
        found["cycles"] is None
        and found["error"].startswith("ScheduleError: Tile.vthreads = 9")
        and found["decisions"] == tile
        and found["on"] == "timing"
    )


def test_keys_name_the_measurer(task):
    one = Trial(task, {"ci": 1}, Measurer())
    assert one.key == Trial(task, {"ci": 1}, Measurer()).key and one.topic == f"tile {task.key}"
    others = (replace(one, measurer=Measurer("rtl")), replace(one, decisions={"ci": 2}), replace(one, first=True))
    slow = replace(one, measurer=Measurer(dram=ZYNQ_HP.replace(latency=90)))
    assert len({each.key for each in (one, slow, *others)}) == 5


def test_a_board_that_does_not_answer_is_no_result(task):
    def fails(error):
        def launch():
            raise error

        return recorded(launch, {}, False, "", Measurer())

    assert fails(CapacityError("local.inp is too small"))["error"] == "CapacityError: local.inp is too small"
    with pytest.raises(BoardError):
        fails(BoardError("no answer"))

    def unanswered(trial):
        raise BoardError("no answer")

    with pytest.raises(BoardError, match="a trial ended with BoardError: no answer; finished ones are kept"):
        evolve([tile_line(task, Measurer(), 0)], unanswered, 2)
