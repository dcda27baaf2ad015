"""What counts cycles, and trials of tiles."""

import pickle
from dataclasses import replace
from functools import partial

import pytest

from tilewright.compiler import build
from tilewright.compiler.jobs import Store
from tilewright.compiler.schedule.dense import dense
from tilewright.compiler.schedule.layer import layer_of
from tilewright.compiler.tile import Tile
from tilewright.compiler.tune import tasks
from tilewright.compiler.tune.search import known_tiles, layer_key
from tilewright.compiler.tune.tasks import (
    CLOCK,
    Measurer,
    Task,
    Trial,
    check_device,
    cycles_of,
    evolve,
    measure,
    measurers,
    recorded,
    tile_line,
)
from tilewright.compiler.tvm_compat import tuning
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import BoardError, CapacityError, ScheduleError
from tilewright.runtime import registry
from tilewright.runtime.device import Stats
from tilewright.sim.dram import ZYNQ_HP
from tilewright.sim.timing import predict

pytest.importorskip("amaranth")


TINY = PRESETS["tiny"]


@pytest.fixture(scope="module")
def schedule():
    return dense(TINY, 2, 12, 20)


def test_a_trial_is_built_and_measured(schedule):
    tvm, errors = tuning(), list[str]()
    builder, runner = measurers(tvm, TINY, "timing", errors)
    too_large = dense(TINY.replace(inp_bytes=1 << 16), 64, 64, 4, tile=Tile(n=64, ci=16))
    target, ms = tvm.Target({"kind": "llvm", "num-cores": 1}), tvm.meta_schedule
    built, failed = builder.build([ms.builder.BuilderInput(sch.mod, target) for sch in (schedule, too_large)])
    assert failed.artifact_path is None and errors == [failed.error_msg] and "too small" in errors[0]
    info = ms.arg_info.ArgInfo.from_prim_func(schedule.mod["main"])
    (future,) = runner.run([ms.runner.RunnerInput(built.artifact_path, "llvm", info)])
    assert future.done() and float(future.result().run_secs[0]) * CLOCK == predict(build(schedule, TINY)).cycles


@pytest.mark.slow
def test_the_timing_model_counts_nearly_what_the_circuit_does(schedule):
    launch = build(schedule, TINY).finish()
    assert cycles_of(launch, "timing") == predict(launch).cycles
    assert cycles_of(launch, "rtl") == pytest.approx(cycles_of(launch, "timing"), rel=0.05)


def test_what_counts_cycles_is_a_device_or_a_server():
    for on in ("timing", "rtl", "rtl_fast", "board", "localhost:50177"):
        check_device(on)
    for on in ("model", "spec", "nothing", "host:", ":50177"):
        with pytest.raises(
            ScheduleError, match=f"on = '{on}': must be one of board, rtl, rtl_fast, timing, or a server"
        ):
            check_device(on)


class Remote:
    """A program on a server that answers with `cycles`."""

    def __init__(self, cycles):
        self.stats = Stats(cycles=cycles)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        pass

    def run(self, inputs):
        assert {name: array.any() for name, array in inputs.items()} == {"x": False, "w": False}


@pytest.mark.parametrize("cycles", [1234, None])
def test_a_server_counts_the_cycles_of_its_device(schedule, monkeypatch, cycles):
    asked = []
    monkeypatch.setattr(tasks, "open_remote", lambda on, executable: asked.append(on) or Remote(cycles))
    launch = build(schedule, TINY).finish()
    if cycles is None:
        with pytest.raises(BoardError, match="pynq:1: its device counts no cycles; serve one that does"):
            cycles_of(launch, "pynq:1")
    else:
        assert cycles_of(launch, "pynq:1") == 1234 and asked == ["pynq:1"]


def test_a_device_of_this_machine_counts_its_cycles(schedule, monkeypatch):
    """What stands for a board is the timing device under that name."""
    monkeypatch.setattr(registry, "_DEVICES", {**registry._DEVICES, "board": registry.device_entry("timing")})
    launch = build(schedule, TINY).finish()
    assert cycles_of(launch, "board") == pytest.approx(predict(launch).cycles, rel=0.01)


def test_another_memory_takes_other_cycles(schedule):
    launch = build(schedule, TINY).finish()
    assert cycles_of(launch, "timing", ZYNQ_HP.replace(latency=400)) > cycles_of(launch, "timing")


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
