"""tests/campaign.py: a short run here, the long one among the slow tests."""

import runpy
from pathlib import Path

import pytest

from tilewright.sim.mutants import Study

MAIN = runpy.run_path(str(Path(__file__).parent / "campaign.py"))["main"]


@pytest.mark.parametrize("count", [100, pytest.param(5000, marks=pytest.mark.slow)])
def test_nothing_wrong_passes_and_nothing_escapes(count, capsys):
    status = MAIN(["--mutants", str(count), "--files", str(count), "--seed", "7"])
    out = capsys.readouterr().out
    assert status == 0, out
    assert "     0 missed" in out and "     0 alarms" in out and out.count(": 0 escaped") == 2
    caught = int(out.split(" caught")[0].split()[-1])
    assert caught > count // 4


def test_what_is_missed_is_told(monkeypatch, capsys):
    monkeypatch.setitem(MAIN.__globals__, "study", lambda count, seed: found)
    found = Study(missed=1, named=["missed: tiny, seed 0, mutant 3: flag"])
    assert MAIN(["--mutants", "1", "--files", "5"]) == 1
    assert "missed: tiny, seed 0, mutant 3" in capsys.readouterr().out
