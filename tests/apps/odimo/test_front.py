"""apps/odimo: jobs and their keys, and the front that they make; a second start goes on."""

import base64
import json
from dataclasses import replace
from functools import wraps
from typing import Any

import numpy as np
import pytest

from tilewright.apps.odimo import front, jobs
from tilewright.apps.odimo import mapping as m
from tilewright.apps.odimo.costs import LayerCost, LayerShape, Power, UnitTable, to_json
from tilewright.apps.odimo.integers import IntegerNetwork
from tilewright.apps.odimo.task import ALTERNATIVES, TYPE, UNIT, Recipe, Task
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
    found = json.loads(json.dumps(found.to_json()))
    assert found["config"] == "tiny_two" and len(found["points"]) == 8 and len(found["means"]) == 4
    assert found["power_model"]["active"] and found["tables"]["a"]["tables"][0] == [[0, 8], [0.0, 200.0]]


def test_steps_are_told_and_a_second_start_runs_nothing_again(played, store, tmp_path):
    told = []
    first = front.explore(PLAN, tmp_path, store, None, told.append)
    assert told == ["warm_up"] * 2 + ["layer", "in_launch", "fastest"] + ["train"] * 8 + ["deploy"] * 8
    assert len(played) == len(told)
    assert front.explore(PLAN, tmp_path, store, None).points == first.points and len(played) == len(told)


def test_the_first_error_ends_it(played, store, tmp_path, monkeypatch):
    def train(job):
        raise ValueError("no memory")

    monkeypatch.setattr(jobs, "train", train)
    with pytest.raises(ExecutionError, match="train: ValueError: no memory"):
        front.explore(PLAN, tmp_path, store, None)


def test_a_plan_for_energy_gives_the_model_to_the_search(played, store, tmp_path):
    plan = front.Plan(Task(), TWO, (0.1,), (0,), "energy", ())
    front.explore(plan, tmp_path, store, None)
    assert [job.power for job in played if isinstance(job, jobs.Train)] == [front.POWER]


SIDES = UnitTable((0, 4, 8), (0.0, 80.0, 200.0)), UnitTable((0, 4, 8), (0.0, 60.0, 100.0))
SPLIT = LayerCost(SIDES, UnitTable((0, 4, 8), (200.0, 80.0, 100.0)))
HOOK = """
import numpy as np


def model():
    from torch import nn

    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 8))


def data():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 96)
    images = (labels[:, None, None, None] + rng.normal(0, 0.3, (96, 1, 4, 4))).astype(np.float32)
    return (images[:64], labels[:64]), (images[64:], labels[64:])
"""


def test_keys_name_all_that_a_result_depends_on():
    starts = [
        jobs.WarmUp(Task(width=w, recipe=Recipe(warm_up=e)), s)
        for w, e, s in ((8, 3, 0), (9, 3, 0), (8, 4, 0), (8, 3, 1))
    ]
    assert len({start.key for start in starts}) == 4
    facts: dict[str, Any] = {"start": starts[0], "kind": "lambda", "strength": 0.2, "config": TWO}
    facts |= {"costs": "{}", "fastest": {"a": 4}, "power": None, "state": "a", "network": {}}
    first = jobs.Train(**facts)
    others: list[dict[str, Any]] = [
        {"start": starts[1]},
        {"kind": "min-cost"},
        {"strength": 0.3},
        {"config": load_config("tiny")},
        {"fastest": {"a": 8}},
        {"costs": "[]"},
        {"power": Power((1.0,), 0.5)},
    ]
    assert len({first.key, *(jobs.Train(**facts | other).key for other in others)}) == 1 + len(others)
    assert jobs.Train(**{**facts, "state": "b"}).key == first.key  # the state is that of its warm-up
    shape = LayerShape((4, 4, 4), 8)
    tables = jobs.Layer(TWO, shape), jobs.Layer(load_config("tiny"), shape), jobs.Layer(TWO, shape, TYPE)
    assert len({table.key for table in tables}) == 3
    given: dict[str, Any] = {"config": TWO, "start": starts[0], "costs": "{}", "network": {}}
    changes: list[dict[str, Any]] = [{}, {"config": load_config("tiny")}, {"start": starts[1]}, {"costs": "[]"}]
    changes.append({"name": "a"})
    assert len({jobs.Launch(**{**given, **one}).key for one in changes}) == 5
    assert jobs.Launch(**{**given, "network": {"nodes": []}}).key == jobs.Launch(**given).key


def test_baselines():
    sizes, fastest = dict.fromkeys("abc", 8), dict.fromkeys("abc", 4)
    found = {kind: m.counts(jobs.baseline(kind, sizes, fastest)) for kind in ALTERNATIVES[UNIT].baselines}
    assert found["all-8bit"] == dict.fromkeys("abc", (8, 0)) and found["all-ternary"] == dict.fromkeys("abc", (0, 8))
    assert found["io-8bit"] == {"a": (8, 0), "b": (0, 8), "c": (8, 0)}
    assert found["min-cost"] == dict.fromkeys("abc", (4, 4))
    found = {kind: m.counts(jobs.baseline(kind, sizes, fastest)) for kind in ALTERNATIVES[TYPE].baselines}
    assert found["all-conv"] == dict.fromkeys("abc", (8, 0)) and found["all-depthwise"] == dict.fromkeys("abc", (0, 8))


def test_labels():
    scores = np.array([[[1, 3, 3]], [[2, 0, 1]]], np.float32)
    assert jobs.labels(scores).tolist() == [1, 0]


def test_a_point_from_warm_up_to_device(tmp_path):
    """The hook's network, trained a little: its scores on the device are torch's integers'."""
    pytest.importorskip("torch")
    pytest.importorskip("tvm")
    (tmp_path / "net.py").write_text(HOOK)
    task = Task(str(tmp_path / "net.py"), recipe=Recipe(warm_up=2, search=2, final=1, batch=16))
    start = jobs.WarmUp(task, 0)
    warm = json.loads(json.dumps(jobs.warm_up(start)))
    assert {name: shape["channels"] for name, shape in warm["shapes"].items()} == {"0": 8, "3": 8}
    alone = json.dumps(to_json(dict.fromkeys(warm["shapes"], SPLIT)))
    launched = {name: jobs.Launch(TWO, start, alone, warm["network"], name) for name in warm["shapes"]}
    costs = json.dumps({name: jobs.in_launch(job)["layer"] for name, job in launched.items()})
    fastest = jobs.fastest(jobs.Launch(TWO, start, costs, warm["network"]))
    assert list(fastest) == ["0", "3"] and costs != alone
    for kind in ("lambda", "min-cost"):
        job = jobs.Train(start, kind, 5.0, TWO, costs, fastest, None, warm["state"], warm["network"])
        trained = json.loads(json.dumps(jobs.train(job)))
        scores = np.frombuffer(base64.b64decode(trained["scores"]), np.float32)
        assert scores.shape == (32 * 8,) and len(IntegerNetwork.from_json(trained["network"]).nodes) == 3
        path = tmp_path / f"{kind}.tw"
        found = jobs.deploy(jobs.Deploy(TWO, task, kind, str(path), trained))
        assert found["images"] == found["equal"] == 32 and found["cycles"] > 100 and path.exists()
        assert found["accuracy"] == trained["accuracy"]
    assert {name: len(split["gemm"]) for name, split in trained["channels"].items()} == fastest


def test_without_the_second_unit_nothing_is_measured_in_a_launch(residual):
    """Tables stay as they are, and the fastest mapping is theirs."""
    start, one = jobs.WarmUp(Task(), 0), load_config("tiny")
    slow = LayerCost((SIDES[1], SIDES[0]), UnitTable((0, 4, 8), (100.0, 60.0, 200.0)))
    costs = json.dumps(to_json({"first": SPLIT, "second": slow}))
    given = residual.to_json()
    assert jobs.in_launch(jobs.Launch(one, start, costs, given, "first")) == to_json({"layer": SPLIT})
    assert jobs.fastest(jobs.Launch(one, start, costs, given)) == {"first": 4, "second": 4}
