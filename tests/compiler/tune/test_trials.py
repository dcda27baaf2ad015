"""Tuning with meta_schedule, and the decisions of own schedules: taken again, mutated, read from a trace."""

import json
import random
import shutil
import signal

import pytest

from tilewright.compiler import build
from tilewright.compiler.intrin import ACC, INP, WGT, tensorize_gemm
from tilewright.compiler.schedule.dense import dense
from tilewright.compiler.tune import cycles_of, tasks
from tilewright.compiler.tune.trials import decided, decisions_of, merge, own_space, replay, tune
from tilewright.compiler.tune.trials import space as space_of
from tilewright.compiler.tvm_compat import te
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import CapacityError, FileError, ScheduleError

from ..tir.conftest import block_product, check_block_product

pytest.importorskip("amaranth")


TINY = PRESETS["tiny"]
STEPS = (1, 2, 4, 64)  # 64 blocks do not fit


DENSE = space_of(dense, TINY, 6, 32, 40)
SMALLER = TINY.replace(name="other", inp_bytes=TINY.inp_bytes // 2)


def cycles(tuned):
    """Cycles of the trials that have a program."""
    return [trial.cycles for trial in tuned.trials if trial.cycles is not None]


def product(inner=8):
    return block_product(TINY, 6, 4, inner)


def space(steps=STEPS):
    """A schedule that decides how many blocks of the reduction are on chip."""

    def schedule(sch):
        acc = sch.get_sblock("acc")
        loads = sch.cache_read(acc, 0, INP), sch.cache_read(acc, 1, WGT)
        sch.set_scope(acc, 0, ACC)
        i, j, a, b, k, ki = sch.get_loops(acc)
        outer, inner = sch.split(k, [None, sch.sample_categorical(list(steps), [1 / len(steps)] * len(steps))])
        sch.reorder(outer, inner, i, j, a, b, ki)
        for load in loads:
            sch.compute_at(load, outer, preserve_unit_loops=True)
        sch.decompose_reduction(acc, outer)
        tensorize_gemm(sch, acc, TINY)

    return schedule


def test_the_fastest_of_the_trials_is_kept_and_exact(tmp_path):
    tuned = tune(product(), space((1, 2, 4)), TINY, trials=6, seed=3, work_dir=tmp_path)
    assert tuned.cycles == min(cycles(tuned)) == cycles_of(build(tuned.schedule, TINY).finish(), "timing")
    assert 1 <= len(set(cycles(tuned))) <= 3
    assert json.loads((tmp_path / "database_tuning_record.json").read_text().splitlines()[0])
    check_block_product(tuned.schedule, TINY, 6, 4, 8)


def test_trials_that_do_not_fit_fail_alone_unless_there_are_no_others():
    tuned = tune(product(64), space((2, 64)), TINY, trials=6, seed=1)
    assert tuned.trials and tuned.cycles == min(cycles(tuned))
    with pytest.raises(ScheduleError, match="none of 2 trials has a program; the last error: local.inp is too small"):
        tune(product(64), space((64,)), TINY, trials=2)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """(a ready schedule's space, what was found of it, the folder of its database)."""
    found, folder = space_of(dense, TINY, 6, 32, 40, epilogue=[("add", "b")]), tmp_path_factory.mktemp("tune") / "new"
    return found, tune(found.func, found, TINY, trials=6, seed=1, work_dir=folder), folder


def test_the_fastest_schedule_comes_out_of_the_database_again(tuned):
    found, best, folder = tuned
    again = replay(found.func, TINY, folder)
    assert (again.cycles, sorted(cycles(again))) == (best.cycles, sorted(cycles(best)))
    mine, other = (build(each.schedule, TINY).finish() for each in (again, best))
    assert mine.insn.tobytes() == other.insn.tobytes() and cycles_of(mine, "timing") == best.cycles


def test_tuning_goes_on_where_it_stopped(tuned, tmp_path):
    found, best, folder = tuned
    chosen = cycles_of(build(dense(TINY, 6, 32, 40, epilogue=[("add", "b")]), TINY).finish(), "timing")
    assert chosen in cycles(best) and best.cycles <= chosen
    shutil.copytree(folder, tmp_path / "copy")
    before = replay(found.func, TINY, tmp_path / "copy")
    more = tune(found.func, found, TINY, trials=4, seed=2, work_dir=tmp_path / "copy")
    assert len(more.trials) > len(before.trials) and more.cycles <= before.cycles


def test_the_first_trial_is_the_cost_models_choice_unless_that_does_not_fit(monkeypatch):
    (chosen,) = cycles(tune(DENSE.func, DENSE, TINY, trials=1))
    assert chosen == cycles_of(build(DENSE.layer.scheduled(), TINY).finish(), "timing")
    calls = []

    def small(scheduled, cfg):
        if not calls:
            calls.append(scheduled)
            raise CapacityError("local.acc is too small")
        return build(scheduled, cfg)

    monkeypatch.setattr(tasks, "build", small)
    tuned = tune(DENSE.func, DENSE, TINY, trials=4, seed=1)
    assert len(cycles(tuned)) == 3 and len(tuned.trials) == 4
    calls.clear()
    with pytest.raises(ScheduleError, match="none of 1 trials has a program; the last error: local.acc is too small"):
        tune(DENSE.func, DENSE, TINY, trials=1)


@pytest.fixture
def interruptible():
    """What starts the tests may ignore the interrupt, as shells do for what runs in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)


@pytest.mark.usefixtures("interruptible")
def test_an_interruption_is_one_and_leaves_the_database(tmp_path, monkeypatch):
    tune(DENSE.func, DENSE, TINY, trials=1, work_dir=tmp_path)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(tasks, "build", lambda *_: signal.raise_signal(signal.SIGINT))
        tune(DENSE.func, DENSE, TINY, trials=4, work_dir=tmp_path)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert len(replay(DENSE.func, TINY, tmp_path).trials) == 1
    assert len(tune(DENSE.func, DENSE, TINY, trials=2, work_dir=tmp_path).trials) > 1


def test_a_folder_that_cannot_be_used_is_named(tuned, tmp_path):
    found, _, folder = tuned
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="file: cannot be used as work_dir"):
        tune(found.func, found, TINY, trials=1, work_dir=tmp_path / "file")
    shutil.copytree(folder, tmp_path / "cut")
    records = tmp_path / "cut" / "database_tuning_record.json"
    records.write_text(records.read_text()[:-100])
    damaged = pytest.raises(FileError, match="cut: its database cannot be used .*; give another work_dir")
    with damaged:
        replay(found.func, TINY, records.parent)
    with damaged:
        tune(found.func, found, TINY, trials=1, work_dir=records.parent)


def test_another_function_configuration_or_device_is_not_in_the_database(tuned, tmp_path):
    found, _, folder = tuned
    for func, cfg, on in ((DENSE.func, TINY, "timing"), (found.func, SMALLER, "timing"), (found.func, TINY, "rtl")):
        with pytest.raises(ScheduleError, match=f"has no program of this function for .* on {on}: tune it first"):
            replay(func, cfg, folder, on=on)
    with pytest.raises(ScheduleError, match="holds no database; tune with work_dir"):
        replay(found.func, TINY, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "options, text",
    [
        ({"on": "model"}, "on = 'model': must be one of board, rtl, rtl_fast, timing, or a server"),
        ({"trials": 0}, "trials = 0: must be at least 1"),
        ({"seed": -1}, "seed = -1: must be 0 to 4294967295"),
        ({"space": DENSE, "config": SMALLER}, "the space is that of configuration tiny; make one for other"),
        ({"space": DENSE}, "the space is that of another function: give its own, space.func"),
    ],
)
def test_mistakes_are_named(options, text):
    with pytest.raises(ScheduleError, match=text):
        tune(**{"func": product(), "space": space(), "config": TINY} | options)


@pytest.mark.slow
def test_the_circuit_can_be_the_judge(tmp_path):
    found = space_of(dense, TINY, 2, 12, 20)
    best = tune(found.func, found, TINY, trials=3, on="rtl", work_dir=tmp_path)
    launch = build(best.schedule, TINY).finish()
    assert best.cycles == cycles_of(launch, "rtl") == pytest.approx(cycles_of(launch, "timing"), rel=0.05)
    assert replay(found.func, TINY, tmp_path, on="rtl").cycles == best.cycles


def copy(entries=24):
    x = te.placeholder((entries,), "int32", "x")
    return te.create_prim_func([x, te.compute((entries,), lambda i: x[i], name="y")])


def schedules(sch):
    """Two loops; their order is a decision that the schedule's code depends on."""
    (loop,) = sch.get_loops(sch.get_sblock("y"))
    outer, inner = sch.split(loop, sch.sample_perfect_tile(loop, 2, 8))
    if int(sch.get(sch.sample_categorical([0, 1], [0.5, 0.5]))):
        sch.reorder(inner, outer)
        sch.sample_categorical([5, 7], [1.0, 0.0])


def test_decisions_are_taken_as_wanted_and_read_back():
    for wanted in (((6, 4), 0), ((3, 8), 1, 7)):
        sch = decided(copy(), schedules, [list(each) if isinstance(each, tuple) else each for each in wanted])
        assert tuple(sch.taken) == wanted == decisions_of(sch.trace)
        assert [int(sch.get(loop).extent) for loop in sch.get_loops(sch.get_sblock("y"))] in ([6, 4], [8, 3])


def test_what_is_missing_or_impossible_is_drawn():
    taken = {tuple(decided(copy(), schedules, [(2, 12), 1], seed=seed).taken) for seed in range(8)}
    assert len(taken) > 1 and all(
        isinstance(first, tuple) and first[1] <= 8 and rest == [1, 5] for first, *rest in taken
    )


def test_mutations_change_the_schedule_and_keep_the_rest():
    space, rng = own_space(copy(), schedules), random.Random(0)
    drawn = space.draw(rng)
    assert drawn is not None and len(drawn) in (2, 3)
    mutants = {space.mutate(((6, 4), 1, 5), rng) for _ in range(20)}
    assert ((6, 4), 0) in mutants and ((6, 4), 1, 7) in mutants and any(m and m[0] != (6, 4) for m in mutants)
    assert space.features(((6, 4), 1))["0.1"] == 2 and space.features(((6, 4), 1))["0.1^2"] == 4
    assert own_space(copy(), lambda sch: None).mutate((), rng) is None


def test_decisions_without_a_schedule_are_named():
    def wrong(sch):
        sch.sample_categorical([3], [1.0])
        sch.get_sblock("nothing")

    with pytest.raises(ScheduleError, match=r"decisions \(3,\) give no schedule: "):
        decided(copy(), wrong)
    assert own_space(copy(), wrong).draw(random.Random(0)) == (3,)


def test_databases_of_two_machines_are_merged(tmp_path):
    """The fastest of both is replayed from the merged one, with the same cycles; trials of both are there once."""
    here, there = tmp_path / "here", tmp_path / "there"
    found = [tune(product(), space(choices), TINY, trials=2, work_dir=folder)
             for choices, folder in (((1, 2), here), ((2, 4), there))]  # fmt: skip
    assert (merge(here, there), merge(here, there)) == (2, 0)
    merged = replay(product(), TINY, here)
    assert sorted(str(trial.decisions) for trial in merged.trials) == ["(1,)", "(2,)", "(2,)", "(4,)"], (
        "of other choices"
    )
    assert merged.cycles == min(each.cycles for each in found)
    assert cycles_of(build(merged.schedule, TINY).finish(), "timing") == merged.cycles
    with pytest.raises(FileError, match="nowhere: holds no database; give a work_dir of tune"):
        merge(here, tmp_path / "nowhere")


def test_trials_of_a_function_are_new_ones(tmp_path):
    found = [tune(product(), space(), TINY, trials=2, seed=1, work_dir=tmp_path).trials for _ in range(2)]
    assert len(found[0]) == 2 and len({trial.decisions for trial in found[1]}) == len(found[1]) > 2
