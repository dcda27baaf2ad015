"""apps/odimo/jobs.py: keys of jobs, fixed choices, and the jobs themselves on a small network."""

import base64
import json
from typing import Any

import numpy as np
import pytest

from tilewright.apps.odimo import jobs
from tilewright.apps.odimo import mapping as m
from tilewright.apps.odimo.costs import LayerCost, LayerShape, Power, UnitTable, to_json
from tilewright.apps.odimo.integers import IntegerNetwork
from tilewright.apps.odimo.task import ALTERNATIVES, TYPE, UNIT, Recipe, Task
from tilewright.hw.config import load_config

TWO = load_config("tiny_two")
SIDES = UnitTable((0, 4, 8), (0.0, 80.0, 200.0)), UnitTable((0, 4, 8), (0.0, 60.0, 100.0))
COST = LayerCost(SIDES, UnitTable((0, 4, 8), (200.0, 80.0, 100.0)))
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
    alone = json.dumps(to_json(dict.fromkeys(warm["shapes"], COST)))
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
    costs = json.dumps(to_json({"first": COST, "second": slow}))
    given = residual.to_json()
    assert jobs.in_launch(jobs.Launch(one, start, costs, given, "first")) == to_json({"layer": COST})
    assert jobs.fastest(jobs.Launch(one, start, costs, given)) == {"first": 4, "second": 4}
