"""The examples that tune find programs that are exact, and no slower than those without tuning."""

import dataclasses
import re
import runpy
from pathlib import Path

import pytest

pytest.importorskip("amaranth")

FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLE = FOLDER / "tune_conv2d.py"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Tiles that `Search` found before must not matter."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def results(out: str) -> list[tuple[int, int]]:
    """(cycles of the cost model's choice, of what tuning found) per layer."""
    chosen, tuned = (re.findall(pattern, out) for pattern in (r"choice +([\d,]+)", r"trials +([\d,]+)"))
    assert out.count("replayed from its database; results equal numpy's") == len(chosen) == len(tuned)
    return [(int(a.replace(",", "")), int(b.replace(",", ""))) for a, b in zip(chosen, tuned)]


@pytest.mark.circuit
def test_small_layers_are_tuned_replayed_and_exact(tmp_path, capsys):
    example = runpy.run_path(str(EXAMPLE))
    small = [dataclasses.replace(case, size=8, ci=32, co=32) for case in example["CASES"]]
    example["main"](tmp_path, small, trials=4)
    found = results(capsys.readouterr().out)
    assert len(found) == 3 and all(tuned <= chosen for chosen, tuned in found)


@pytest.mark.slow
def test_layers_of_real_networks_gain(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", [str(EXAMPLE)])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    found = results(capsys.readouterr().out)
    assert len(found) == 3 and all(tuned < chosen for chosen, tuned in found)


@pytest.mark.circuit
def test_the_fastest_residual_sum_is_exact(capsys):
    runpy.run_path(str(FOLDER / "tune_residual.py"), run_name="__main__")
    tried, decisions, fastest, checked = capsys.readouterr().out.splitlines()[-4:]
    cycles = [int(n.replace(",", "")) for n in re.findall(r"[\d,]*\d", tried.split(":")[1])]
    assert decisions.startswith("decisions of the fastest: (")
    assert len(cycles) > 4 and fastest.startswith(f"fastest: {min(cycles):,}, ")
    assert max(cycles) > 1.5 * min(cycles) and checked == "its results equal numpy's"
