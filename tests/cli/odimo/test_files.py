"""cli/odimo/files.py: the front's numbers and pictures."""

import json
import sys

import pytest

from tilewright.apps.odimo.front import Front, Plan, Point
from tilewright.apps.odimo.task import Task
from tilewright.cli.odimo.files import plot, write_front
from tilewright.hw.config import load_config
from tilewright.hw.errors import UnsupportedError


@pytest.fixture
def front():
    points = [
        Point(name, seed, accuracy + seed, accuracy, cycles, 1.0, 0.5, 10, 10, f"{name}.tw", {})
        for name, accuracy, cycles in (("all-8bit", 98.0, 1000), ("lambda 0.2", 97.0, 600), ("min-cost", 90.0, 590))
        for seed in (0, 1)
    ]
    return Front(Plan(Task(), load_config("tiny_two"), (0.2,), (0, 1)), tuple(points), {})


def test_files_of_a_front(front, tmp_path):
    pytest.importorskip("matplotlib")
    written = write_front(front, tmp_path)
    assert [path.name for path in written] == ["front.json", "front.png", "front.svg"]
    assert json.loads(written[0].read_text()) == json.loads(json.dumps(front.to_json()))
    assert written[1].read_bytes().startswith(b"\x89PNG") and "lambda 0.2" in written[2].read_text()
    first = written[2].read_bytes()
    assert plot(front, written[2]).read_bytes() == first


def test_pictures_need_matplotlib(front, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UnsupportedError, match=r"pictures need matplotlib .*; pip install 'tilewright\[plots\]'"):
        plot(front, tmp_path / "front.svg")
