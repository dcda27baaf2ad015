"""tests/cli/planted/: programs slow for a known reason. They compute what numpy does, and are as slow as they say."""

import json
import re
import runpy
from pathlib import Path

import numpy as np
import pytest

from tilewright.compiler import build
from tilewright.hw.config import PRESETS
from tilewright.runtime.loader import run
from tilewright.runtime.program import Program
from tilewright.sim.timing import predict

CFG = PRESETS["pynq_z1"]
PLANTED = Path(__file__).parent / "planted"
EXPECTED = json.loads((PLANTED / "expected.json").read_text())
MISTAKES = {"reduction", "one_slot", "tiny_instructions", "unaligned", "alu_product", "loaded_again", "fine"}
LEAST = 1.3  # how many times faster the better version of every planted program is
FIGURES = re.compile(r"^Cycles: ([\d,]+); better: ([\d,]+); factor ([\d.]+) ", re.MULTILINE)


@pytest.fixture(autouse=True)
def siblings(monkeypatch):
    """Planted files import what lies beside them, as the command lets them."""
    monkeypatch.syspath_prepend(PLANTED)


def entry_point(namespace: dict) -> str:
    """The name of the function that makes the program."""
    (name,) = {"schedule", "program"} & set(namespace)
    return name


def checked(namespace: dict, function: str, data: str) -> int:
    """Cycles of the program that `function` makes, whose outputs equal those of the function `data`."""
    made = namespace[function](CFG)
    program = made if isinstance(made, Program) else build(made, CFG)
    inputs, expected = namespace[data](CFG, np.random.default_rng(0))
    outputs, _ = run(program, inputs)
    assert outputs.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(outputs[name].reshape(value.shape), value, name)
    return predict(program).cycles


def test_the_table_has_every_file_and_two_of_each_mistake():
    assert sorted([*EXPECTED, "packed_matmul.py", "versions.py"]) == sorted(path.name for path in PLANTED.glob("*.py"))
    found = [re.sub(r"_\d\.py", "", name) for name in EXPECTED]
    assert set(found) == MISTAKES and all(found.count(mistake) >= 2 for mistake in MISTAKES)
    assert all((row["loss"] is None) == name.startswith("fine") for name, row in EXPECTED.items())


@pytest.mark.parametrize("name", EXPECTED)
def test_results_and_cycles(name):
    namespace = runpy.run_path(str(PLANTED / name))
    slow = checked(namespace, entry_point(namespace), "data")
    if EXPECTED[name]["loss"] is None:
        assert "better" not in namespace
        return
    fast = checked(namespace, "better", "better_data" if "better_data" in namespace else "data")
    assert slow >= LEAST * fast
    (figures,) = FIGURES.findall(namespace["__doc__"])
    assert figures == (f"{slow:,}", f"{fast:,}", f"{slow / fast:.1f}")


@pytest.mark.parametrize("name", EXPECTED)
def test_the_command_compiles_it_and_proves_it_free_of_races(name, tilewright, tmp_path):
    function = entry_point(runpy.run_path(str(PLANTED / name)))
    done = tilewright("compile", f"{PLANTED / name}:{function}", "-o", tmp_path / "x.tw", "--config", CFG.name)
    assert done.status == 0, done.err
    assert "verified: no deadlock, no race" in done.out
