"""apps/explore/study.py: spaces, and the search with figures made in the test: asked once, kept, gone on with."""

import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import optuna
import pytest

from tilewright.apps.explore import study
from tilewright.apps.explore.evaluate import INFEASIBLE
from tilewright.apps.explore.study import Explorer, Question, Space, Trial, default_space, front, read_space
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import ConfigError, FileError
from tilewright.sim.dram import PRESETS as MEMORIES

TINY, MEMORY = PRESETS["tiny"], MEMORIES["zynq_hp4"]


def space(**choices):
    return Space(TINY, MEMORY, choices)


def test_a_point_is_the_base_with_the_chosen_values():
    every = space(block=(2, 4), acc_bytes=(1024, 2048), **{"dram.latency": (10, 40)})
    assert every.size == 8
    found = every.choose(lambda key, values: values[-1], "one")
    assert found == {"name": "one", "block": 4, "acc_bytes": 2048, "dram.latency": 40}
    point = every.point({**found, "block": 2})
    assert point.config == TINY.replace(name="one", block_in=2, block_out=2, acc_bytes=2048)
    assert point.dram == MEMORY.replace(latency=40)


def test_lists_of_names_can_be_chosen():
    every = space(extensions=([], sorted(TINY.extensions)))
    chosen = every.choose(lambda key, values: values[0], "plain")
    assert every.point(chosen).config.extensions == frozenset()


def test_a_wider_bus_has_a_wider_memory_port_unless_that_is_chosen():
    assert space(axi_bits=(64, 128)).point({"axi_bits": 128}).dram.port_bytes == 2 * MEMORY.port_bytes
    both = space(axi_bits=(64, 128), **{"dram.port_bytes": (8,)})
    assert both.point({"axi_bits": 128, "dram.port_bytes": 8}).dram.port_bytes == 8


def test_the_base_is_among_the_points_of_the_default_space():
    for name, base in PRESETS.items():
        every = default_space(base, MEMORY)
        first = every.first()
        assert every.has(first), name
        assert every.point(first).config == base, name


def test_files(tmp_path):
    path = tmp_path / "space.json"
    path.write_text(json.dumps({"base": "tiny", "dram": "ideal", "queue_depth": [8, 64]}))
    found = read_space(path, PRESETS["vta"], MEMORY)
    assert (found.base, found.dram.name, found.choices) == (TINY, "ideal", {"queue_depth": (8, 64)})


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("{", FileError, "cannot be read as JSON"),
        ("[1]", ConfigError, "a space is a JSON object"),
        ('{"queue_depth": 8}', ConfigError, "queue_depth = 8: must be a list of values"),
        ('{"queue_deph": [8]}', ConfigError, "'queue_deph' is no field; choose among block, "),
        ('{"queue_depth": [8, 8]}', ConfigError, "the values of queue_depth must be different ones"),
        ('{"queue_depth": []}', ConfigError, "the values of queue_depth must be different ones, at least 1"),
        ('{"base": "huge"}', ConfigError, "huge"),
    ],
)
def test_mistakes(tmp_path, text, error, message):
    path = tmp_path / "space.json"
    path.write_text(text)
    with pytest.raises(error, match=message):
        read_space(path, TINY, MEMORY)


def test_a_missing_file(tmp_path):
    with pytest.raises(FileError, match="none.json: no such file; give a space"):
        read_space(tmp_path / "none.json", TINY, MEMORY)


IN_MEMORY = "sqlite:///:memory:"
SPACE = Space(
    PRESETS["tiny"],
    MEMORIES["zynq_hp4"],
    {"acc_bytes": (1024, 2048), "wgt_bytes": (512, 2048), "queue_depth": (8, 64)},
)


@pytest.fixture
def network(tmp_path):
    path = tmp_path / "net.tflite"
    path.write_bytes(b"\0\0\0\0TFL3")
    return str(path)


@pytest.fixture
def measured(monkeypatch):
    """Replaces measurements: more accumulators are faster, fewer weights are infeasible; returns what was asked."""
    asked = []

    def evaluate(job):
        asked.append(job.config)
        if job.config["wgt_bytes"] == 512:
            return {INFEASIBLE: "no room for weights"}
        sizes = job.config["acc_bytes"] + job.config["wgt_bytes"]
        return {"latency_us": 1e6 / job.config["acc_bytes"], "bram": sizes, "dsp": 16, "cycles": 1, "host_us": 0}

    monkeypatch.setattr(study, "evaluate", evaluate)
    return asked


@pytest.fixture
def explorer(network, tmp_path):
    def made(name="one", **changes):
        question = Question((network,), changes.pop("space", SPACE), changes.pop("objectives", study.DEFAULT))
        return Explorer(question, changes.pop("url", f"sqlite:///{tmp_path}/study.db"), name, **changes)

    return made


def test_results_of_another_rounding_contract_are_not_taken(explorer, measured, monkeypatch):
    before = explorer(url=IN_MEMORY).question.name()
    explorer().explore(3)
    first = list(measured)
    monkeypatch.setattr(study, "contract_of", lambda path: "single")
    assert explorer(url=IN_MEMORY).question.name() != before
    explorer(name="two").explore(3)
    assert measured[len(first)] == first[0], "the base was measured again"


def test_each_point_is_measured_once(explorer, measured):
    trials = explorer(url=IN_MEMORY).explore(12)
    assert len(trials) == len({t.number for t in trials}) == 12
    points = [tuple(t.values[key] for key in SPACE.choices) for t in trials]
    assert len(measured) == len(set(points)) <= SPACE.size < 12
    assert sum(t.new for t in trials) == len(measured)
    assert points[0] == (2048, 2048, 64), "the base comes first"


def test_infeasible_points_have_a_reason(explorer, measured):
    trials = explorer(url=IN_MEMORY).explore(8)
    small = [t for t in trials if t.values["wgt_bytes"] == 512]
    assert small and {t.reason for t in small} == {"no room for weights"}
    assert not any(t.reason for t in trials if t.values["wgt_bytes"] > 512)


def test_no_configuration_is_infeasible_too(explorer, measured):
    space = Space(PRESETS["tiny"], MEMORIES["zynq_hp4"], {"ppu_lanes": (3, 4)})
    trials = explorer(space=space, url=IN_MEMORY).explore(6)
    assert any("Config.ppu_lanes = 3: must be a power of two" in t.reason for t in trials)
    assert not any(t.reason for t in trials if t.values["ppu_lanes"] == 4)


def test_another_process_goes_on(explorer, measured):
    explorer().explore(3)
    before = len(measured)
    trials = explorer().explore(6)
    assert len(trials) == 6 and not any(t.new for t in trials[:3])
    points = {tuple(t.values[key] for key in SPACE.choices) for t in trials}
    assert len(measured) == len(points) >= before, "nothing was measured again"


def test_what_was_under_way_is_asked_again(explorer, measured):
    first = explorer()
    first.explore(2)
    lost = first._study.ask()
    values = SPACE.choose(lost.suggest_categorical, "lost")
    trials = explorer().explore(3)
    assert {key: trials[-1].values[key] for key in SPACE.choices} == {key: values[key] for key in SPACE.choices}
    states = [t.state for t in first._study.get_trials()]
    assert states.count(optuna.trial.TrialState.FAIL) == 1 and optuna.trial.TrialState.RUNNING not in states


def test_workers_measure_at_once(explorer, measured):
    with ThreadPoolExecutor(3) as pool:
        trials = explorer(workers=pool, count=3, url=IN_MEMORY).explore(6)
    assert len(trials) == 6 and sorted(t.number for t in trials) == list(range(6))


def test_a_study_keeps_its_objectives(explorer, measured):
    explorer().explore(2)
    with pytest.raises(ConfigError, match="minimises latency_us, bram, dsp, not cycles; give another --study"):
        explorer(objectives=("cycles",))


@pytest.mark.parametrize("url", ["nothing", "sqlite:////none/none.db"])
def test_no_database(network, url):
    with pytest.raises(FileError, match="cannot be used .* give another, as sqlite:///study.db"):
        Explorer(Question((network,), SPACE), url, "x")


DAMAGE = {
    "a distribution": "UPDATE trial_params SET distribution_json = '{}'",
    "a value": "UPDATE trial_user_attributes SET value_json = '{'",
    "a date": "UPDATE trials SET datetime_start = '2026-99-99 00:00:00'",
    "objectives": "UPDATE study_user_attributes SET value_json = 'latency'",
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_study_is_named(explorer, measured, tmp_path, kind):
    explorer().explore(2)
    with sqlite3.connect(tmp_path / "study.db") as base:
        base.execute(DAMAGE[kind])
    base.close()
    with pytest.raises(FileError, match="study.db: cannot be used .* give another, as sqlite:///study.db"):
        explorer().explore(3)


def test_names_tell_questions_apart(network, tmp_path):
    other = tmp_path / "other.tflite"
    other.write_bytes(b"\0\0\0\0TFL3 other")
    questions = [Question((network,), SPACE), Question((str(other),), SPACE), Question((network,), SPACE, ("cycles",))]
    questions.append(Question((network,), SPACE, mhz=150))
    questions.append(Question((network,), Space(SPACE.base, SPACE.dram, {"queue_depth": (8, 64)})))
    names = [question.name() for question in questions]
    assert len(set(names)) == len(names) and names[0] == Question((network,), SPACE).name()


def test_the_front():
    def trial(number, a, b):
        return Trial(number, {}, {"a": a, "b": b} if a else {INFEASIBLE: "no"})

    figures = (3, 3), (1, 9), (9, 1), (4, 4), (3, 3), (0, 0), (1, 8)
    trials = [trial(number, *pair) for number, pair in enumerate(figures)]
    assert [t.number for t in front(trials, ("a", "b"))] == [6, 0, 2]
    assert [t.number for t in front(trials, ("a",))] == [1]
