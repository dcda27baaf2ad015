"""Every slow test is in one part of `make test-full` (.ci/slow)."""

import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / ".ci" / "slow"


@pytest.fixture(scope="module")
def slow():
    spec = spec_from_loader("slow", SourceFileLoader("slow", str(SCRIPT)))
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_file_of_tests_is_in_one_part(slow):
    found = [path for part in slow.PARTS for path in slow.files(part)]
    every = [path.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(found) == sorted(every)
    assert not [name for names in slow.PARTS.values() for name in names if not (ROOT / "tests" / name).exists()]


@pytest.mark.circuit
def test_a_line_for_each_part(slow, monkeypatch, capsys, tmp_path):
    """What failed is named, and the exit status says so; a folder that skips itself stops nothing."""
    monkeypatch.setattr(slow, "ROOT", tmp_path)
    monkeypatch.setattr(slow, "PARTS", {"good": ("good",), "bad": ("",)})
    (tmp_path / "tests" / "good").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\nmarkers = ['slow: long']\n")
    slow_test = "import pytest\n@pytest.mark.slow\ndef test_it(): assert {}\ndef test_other(): assert 0\n"
    (tmp_path / "tests" / "good" / "test_good.py").write_text(slow_test.format(1))
    (tmp_path / "tests" / "test_bad.py").write_text(slow_test.format(0))
    away = tmp_path / "tests" / "good" / "away"
    away.mkdir()
    (away / "conftest.py").write_text("import pytest\npytest.importorskip('no_such_library')\n")
    (away / "test_away.py").write_text(slow_test.format(1))
    monkeypatch.setattr(sys, "argv", ["slow", "0"])
    assert slow.main() == 1
    good, failed, bad = capsys.readouterr().out.splitlines()
    assert failed == "FAILED tests/test_bad.py::test_it - assert 0"
    assert good.startswith("good: 1 passed, 1 skipped, 1 deselected in ")
    assert bad.startswith("bad: 1 failed, 1 skipped, 1 deselected in ")


def test_an_unknown_part_is_refused():
    done = subprocess.run([sys.executable, SCRIPT, "1", "x"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.startswith("no part 'x'; there are circuit")
