"""tests/circuits.py: a short run here; thousands are among the slow tests of tests/sim/rtl."""

import runpy
import shutil
from pathlib import Path

import pytest

from tilewright.sim.model.device import ModelDevice

FILE = str(Path(__file__).parent / "circuits.py")

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="g++ is missing: no circuit can be built")


@pytest.fixture
def main():
    return runpy.run_path(FILE)["main"]


def test_programs_agree_and_are_counted(main, capsys):
    assert main(["--count", "23", "--seed", "40", "--spec-every", "2"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("tiny_two, seeds 40 to 62: 23 programs, 0 differ; 13 also by definition;")
    assert " 0 of unit ternary" not in out


def test_what_differs_is_told(monkeypatch, main, capsys):
    def forgets(self, image, address, count):
        stats = run_image(self, image.copy(), address, count)
        return stats

    run_image = ModelDevice.run_image
    monkeypatch.setattr(ModelDevice, "run_image", forgets)
    assert main(["--count", "2", "--seed", "40", "--spec-every", "0"]) == 1
    out = capsys.readouterr().out
    assert "tiny_two, seed 40: " in out and "2 programs, 2 differ" in out
