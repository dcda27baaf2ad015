"""sim/mutation.py: proof and runs agree, and a verifier that is wrong is found out."""

from collections import Counter
from itertools import islice

import numpy as np
import pytest

from tests.runs import result_on
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import DeadlockError
from tilewright.sim import mutation as module
from tilewright.sim.model.device import ModelDevice
from tilewright.sim.mutants import mutants
from tilewright.sim.mutation import PER_PROGRAM, VERDICTS, Study, random_launches, study
from tilewright.sim.spec import SpecDevice

TINY = PRESETS["tiny"]


def check(found, count):
    assert found.passed and not found.classes, found.named
    assert found.count(*VERDICTS) == count and not found.refused and found.programs == count // PER_PROGRAM
    assert found.count("caught") > count // 2 and found.count("accepted") > count // 10


def test_proof_runs_and_definition_agree_on_mutants():
    found = study(random_launches(0), 50, 0)
    check(found, 50)
    assert 2 <= found.defined <= 5


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 5))
def test_verify_model_and_runs_agree_on_many_mutants(seed):
    check(study(random_launches(seed), 1500, seed), 1500)


@pytest.mark.slow
def test_verify_agrees_with_every_order_of_short_programs():
    found = study(random_launches(11, steps=3), 600, 11)
    wrong, right = found.count("caught", "missed"), found.count("accepted", "alarms")
    print(f"{found.exhausted} of 600 mutants in every order, {found.orders} in all; {wrong} wrong, {right} correct")
    check(found, 600)
    assert found.exhausted > 400 and found.orders > 40 * found.exhausted


def test_a_study_can_be_repeated():
    assert study(random_launches(3), 10, 3) == study(random_launches(3), 10, 3)


def test_definition_and_model_refuse_mutants_alike(program):
    """With the same error at the same instruction."""
    found = Counter()
    for seed in range(12):
        for mutant in islice(mutants(program(seed, 2), np.random.default_rng(seed)), 4):
            results = [result_on(device(TINY, capacity=1 << 18), mutant.launch) for device in (ModelDevice, SpecDevice)]
            assert results[0] == results[1]
            found[results[0][0]] += 1
    assert len(found) > 3 and "" in found


def test_a_verifier_that_accepts_all_is_found_out(monkeypatch):
    monkeypatch.setattr(module, "verify", lambda launch: None)
    found = study(random_launches(0), 40, 0)
    assert found.count("missed") > 15 and found.count("missed", "accepted") == 40 and not found.passed
    assert 15 < len(found.named) <= 20 and found.named[0].startswith("missed: tiny 0.0, mutant ")


def test_a_verifier_that_refuses_all_is_found_out(monkeypatch):
    def refuse(launch):
        raise DeadlockError("always")

    monkeypatch.setattr(module, "verify", refuse)
    found = study(random_launches(0), 30, 0)
    assert found.count("alarms") > 5 and found.count("caught", "alarms") == 30 and not found.passed
    assert found.classes.total() > 2
    assert len(found.refused) == 3 and found.refused[0] == "tiny 0.0: always"


def test_a_definition_that_differs_is_found_out(monkeypatch):
    monkeypatch.setattr(module.Defined, "run", lambda self, address, count: None)
    found = study(random_launches(0), 20, 0)
    assert found.differ == found.defined == 2 and not found.passed
    assert "not as defined" in found.named[0]


def test_the_table_has_a_row_per_class_and_one_for_all():
    found = Study(Counter({("swap", "caught"): 3, ("micro-op", "caught"): 1, ("micro-op", "harmless"): 2}))
    rows = {row["class"]: row for row in found.table()}
    assert list(rows) == ["micro-op", "all"]
    assert rows["micro-op"] == {
        "class": "micro-op",
        "mutants": 3,
        "wrong": 1,
        "caught": 1,
        "correct": 0,
        "accepted": 0,
        "neither": 2,
    }
    assert rows["all"]["mutants"] == 6 and rows["all"]["neither"] == 2
