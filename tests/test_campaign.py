"""tests/campaign.py: a short run here, the long one among the slow tests."""

import runpy
from pathlib import Path

import pytest

MAIN = runpy.run_path(str(Path(__file__).parent / "campaign.py"))["main"]


@pytest.mark.parametrize("count", [100, pytest.param(5000, marks=pytest.mark.slow)])
def test_nothing_escapes(count, capsys):
    status = MAIN(["--files", str(count), "--seed", "7"])
    out = capsys.readouterr().out
    assert status == 0, out
    assert out.count(": 0 escaped") == 2
