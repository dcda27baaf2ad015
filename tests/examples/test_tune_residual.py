"""The tuning example finds a program faster than the others, and checks it."""

import re
import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "tune_residual.py"


@pytest.mark.circuit
def test_the_fastest_program_is_exact(capsys):
    pytest.importorskip("amaranth")
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    tried, decisions, fastest, checked = capsys.readouterr().out.splitlines()[-4:]
    cycles = [int(n.replace(",", "")) for n in re.findall(r"[\d,]*\d", tried.split(":")[1])]
    assert decisions.startswith("decisions of the fastest: (")
    assert len(cycles) > 4 and fastest.startswith(f"fastest: {min(cycles):,}, ")
    assert max(cycles) > 1.5 * min(cycles) and checked == "its results equal numpy's"
