"""cli/mutants.py: `tilewright verify --mutate`."""

import json

import pytest

from tilewright.cli import mutants
from tilewright.sim import mutation as module
from tilewright.sim.mutants import KINDS


@pytest.fixture
def random_alone(monkeypatch):
    """Without programs of the compiler, which take seconds to make."""
    monkeypatch.setattr(mutants, "compiled", lambda seed: [next(module.random_launches(seed))])


def test_mutants_of_a_file(tilewright, double_tw):
    done = tilewright("verify", double_tw, "--mutate", "20")
    assert done.status == 0, done.out
    assert "seed 0: 20 mutants of 2 programs, 0 of these refused; 0 wrong mutants accepted, 0 correct ones" in done.out
    (row,) = [line.split() for line in done.out.splitlines() if line.split()[:1] == ["all"]]
    assert row[1] == "20" and row[2] == row[3] and row[4] == row[5]


def test_json_of_programs_that_are_made(tilewright, random_alone):
    found = json.loads(tilewright("verify", "--mutate", "30", "--seed", "4", "--json").out)
    assert found["passed"] and found["seed"] == 4 and found["programs"] == 3 and not found["refused"]
    *classes, every = found["classes"]
    assert {row["class"] for row in classes} <= set(KINDS) and every["class"] == "all"
    assert sum(row["mutants"] for row in classes) == every["mutants"] == 30
    assert every["wrong"] + every["correct"] + every["neither"] == 30
    assert every["neither"] == found["harmless"] + found["unproved"]


def test_a_proof_that_accepts_all_fails(tilewright, random_alone, monkeypatch):
    monkeypatch.setattr(module, "verify", lambda launch: None)
    done = tilewright("verify", "--mutate", "10")
    assert done.status == 1 and "missed: " in done.out


def test_what_the_command_needs(refused, double_tw):
    refused(2, "give --mutate N", "verify")
    refused(2, "--seed is of --mutate N", "verify", double_tw, "--seed", "3")


@pytest.mark.slow
def test_programs_of_the_compiler_use_every_queue_and_extension(tilewright):
    found = mutants.compiled(0)
    said = {name.split(" on ")[1] for name, _ in found}
    assert said == {"tiny", "tiny_two", "rows", "wide", "large_rows"}
    done = tilewright("verify", "--mutate", "200", "--seed", "5")
    assert done.status == 0, done.out
