"""apps/odimo/front.py: points, means and the front; a start that goes on."""

import json
from dataclasses import replace
from functools import wraps

import pytest

from tilewright.apps.odimo import front, jobs
from tilewright.apps.odimo.costs import LayerCost, LayerShape, UnitTable, to_json
from tilewright.apps.odimo.task import Task
from tilewright.compiler import jobs as engine
from tilewright.hw.config import load_config
from tilewright.hw.errors import ExecutionError

TWO = load_config("tiny_two")
PLAN = front.Plan(Task(), TWO, (0.1, 1.0), (0, 1), baselines=("all-8bit", "min-cost"))
COST = LayerCost((UnitTable((0, 8), (0.0, 200.0)), UnitTable((0, 8), (0.0, 100.0))), UnitTable((0, 8), (200.0, 100.0)))
LAUNCHED = replace(COST, splits=UnitTable((0, 8), (200.0, 90.0)))
CYCLES = {"all-8bit": 1000, "lambda 0.1": 700, "lambda 1": 500, "min-cost": 500}
ACCURACY = {"all-8bit": 98, "lambda 0.1": 97, "lambda 1": 95, "min-cost": 90}


@pytest.fixture
def store(tmp_path):
    with engine.Store(tmp_path / "r.db") as opened:
        yield opened


@pytest.fixture
def played(monkeypatch):
    """Jobs that answer at once; the list of those that ran."""
    ran = []

    def warm_up(job):
        return {"state": "s", "shapes": {"a": LayerShape((4, 4, 4), 8).to_json()}, "network": {}, "accuracy": 50.0}

    def layer(job):
        return to_json({"layer": COST})

    def in_launch(job):
        assert job.name == "a" and job.start.seed == 0 and json.loads(job.costs) == to_json({"a": COST})
        return to_json({"layer": LAUNCHED})

    def fastest(job):
        assert json.loads(job.costs) == to_json({"a": LAUNCHED})
        return {"a": 4}

    def train(job):
        assert json.loads(job.costs) == to_json({"a": LAUNCHED}) and job.fastest == {"a": 4}
        split = (
            {"gemm": list(range(8)), "ternary": []}
            if job.kind == "all-8bit"
            else {"gemm": [], "ternary": list(range(8))}
        )
        facts = {"kind": job.kind, "strength": job.strength, "seed": job.start.seed}
        return facts | {"channels": {"a": split}, "share": float(not split["gemm"]), "float_accuracy": 1.0}

    def deploy(job):
        name = next(name for name in CYCLES if f"-{name.replace(' ', '-')}-" in job.name)
        seed = job.trained["seed"]
        return {"cycles": CYCLES[name] + seed, "images": 10, "equal": 10, "accuracy": ACCURACY[name] + seed}

    def recorded(answer):
        return wraps(answer)(lambda job: ran.append(job) or answer(job))

    for function in (warm_up, layer, in_launch, fastest, train, deploy):
        monkeypatch.setattr(jobs, function.__name__, recorded(function))
    return ran


def test_points_means_and_front(played, store, tmp_path):
    found = front.explore(PLAN, tmp_path, store, None)
    assert [(p.name, p.seed) for p in found.points] == [(name, seed) for name in CYCLES for seed in (0, 1)]
    first, last = found.means[0], found.means[-1]
    assert (first.accuracy, first.lowest, first.highest, first.cycles) == (98.5, 98, 99, 1000.5)
    assert [one.on_front for one in found.means] == [True, True, True, False]
    assert last.energy < first.energy and last.share == 1 and found.equal
    assert found.points[2].program == "digits-lambda-0.1-seed-0.tw"
    assert found.points[0].channels == {"a": {"gemm": 8, "ternary": 0}}


def test_a_second_start_runs_nothing_again(played, store, tmp_path):
    first = front.explore(PLAN, tmp_path, store, None)
    count = len(played)
    assert count == 2 + 1 + 1 + 1 + 8 + 8
    assert front.explore(PLAN, tmp_path, store, None).points == first.points and len(played) == count


def test_the_first_error_ends_it(played, store, tmp_path, monkeypatch):
    def train(job):
        raise ValueError("no memory")

    monkeypatch.setattr(jobs, "train", train)
    with pytest.raises(ExecutionError, match="train: ValueError: no memory"):
        front.explore(PLAN, tmp_path, store, None)


def test_steps_are_told(played, store, tmp_path):
    told = []
    front.explore(PLAN, tmp_path, store, None, told.append)
    assert told == ["warm_up"] * 2 + ["layer", "in_launch", "fastest"] + ["train"] * 8 + ["deploy"] * 8


def test_the_front_as_json(played, store, tmp_path):
    found = json.loads(json.dumps(front.explore(PLAN, tmp_path, store, None).to_json()))
    assert found["config"] == "tiny_two" and len(found["points"]) == 8 and len(found["means"]) == 4
    assert found["power_model"]["active"] and found["tables"]["a"]["tables"][0] == [[0, 8], [0.0, 200.0]]


def test_a_plan_for_energy_gives_the_model_to_the_search(played, store, tmp_path):
    plan = front.Plan(Task(), TWO, (0.1,), (0,), "energy", ())
    front.explore(plan, tmp_path, store, None)
    assert [job.power for job in played if isinstance(job, jobs.Train)] == [front.POWER]
