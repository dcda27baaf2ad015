"""tools/faults/command.py: a short run here; tests/tools/faults/ has each kind, and the long runs."""

import shutil
from collections import Counter

import pytest

from tools.faults import command
from tools.faults.command import Found


@pytest.mark.skipif(not shutil.which("g++"), reason="g++ is missing: no circuit can be built")
def test_a_short_run(capsys):
    status = command.main(["--count", "20", "--config", "tiny", "--seed", "3"])
    out = capsys.readouterr().out
    assert status == 0, out
    assert out.startswith("20 faults, seed 3, tiny, 0 recorded cases:") and "\n0 defects" in out
    total = [int(cell) for cell in out.split("| all |")[1].split("\n")[0].strip(" |").split("|")]
    tried, *ends, wrong, hung, next_right = total
    assert 15 < tried <= 20 and sum(ends) == tried == next_right and wrong == hung == 0


def test_defects_are_told(monkeypatch, capsys):
    found = Found(hits=Counter({"fetch": 3}), defects=["SLVERR on a write: tiny 5, seed 0: hung"])
    found.rows["SLVERR on a write"].tried = found.rows["SLVERR on a write"].hung = 1
    found.differences["AccessError / no error", "a reason"] = 2
    monkeypatch.setattr(command, "campaign", lambda programs, count, seed, kinds: found)
    assert command.main(["--count", "1"]) == 1
    out = capsys.readouterr().out
    assert "| SLVERR on a write | 1 | 0 | 0 | 0 | 0 | 0 | 1 | 0 |" in out and "bus errors hit: fetch 3" in out
    assert "     2 AccessError / no error; a reason" in out
    assert "1 defects" in out and out.endswith("SLVERR on a write: tiny 5, seed 0: hung\n")
