"""The examples of one call each: they run, print what they say, and are short."""

import ast
import runpy
import shutil
from pathlib import Path

import pytest

pytest.importorskip("tvm")
FOLDER = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def no_arguments(monkeypatch, tmp_path):
    monkeypatch.setattr("sys.argv", ["example"])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.mark.parametrize("name", ["relax", "python_call", "delegate"])
def test_the_code_is_under_40_lines(name):
    source = (FOLDER / f"{name}.py").read_text()
    documents = {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines = enumerate(source.splitlines(), 1)
    code = [text for number, text in lines if number not in documents and text.strip() and text.strip()[0] != "#"]
    assert 10 < len(code) < 40


def test_relax_runs_the_digits_and_reports_its_part(capsys):
    from tilewright.apps.relax import release

    release()  # a page of the docs runs this program, too, and its runs count
    runpy.run_path(str(FOLDER / "relax.py"), run_name="__main__")
    right, part = capsys.readouterr().out.splitlines()
    assert right == "20 of 20 digits are right"
    assert part.startswith("main_0 on timing: 20 runs, ") and part.endswith(" cycles for the last")


def test_one_call_runs_a_network_with_cycles(capsys):
    runpy.run_path(str(FOLDER / "python_call.py"), run_name="__main__")
    result, counts = capsys.readouterr().out.splitlines()
    assert result == "logits float32 (1, 10): the largest is number 6"
    assert counts.endswith("247,808 multiply-accumulates on pynq_z1")


def test_one_call_runs_a_tflite_file(capsys, monkeypatch):
    path = FOLDER.parent / "tests" / "data" / "networks" / "classifier.tflite"
    monkeypatch.setattr("sys.argv", ["example", str(path)])
    runpy.run_path(str(FOLDER / "python_call.py"), run_name="__main__")
    assert "multiply-accumulates on pynq_z1" in capsys.readouterr().out


@pytest.mark.parametrize("network", ["classifier", "images"])
def test_litert_gives_the_same_with_the_delegate(script, capsys, network):
    pytest.importorskip("ai_edge_litert")
    assert script("delegate.py").main(str(FOLDER.parent / "tests" / "data" / "networks" / f"{network}.tflite")) == 0
    shown = capsys.readouterr().out
    assert f"{network}: " in shown and "partition on timing (pynq_z1" in shown and "equal to LiteRT's" in shown


@pytest.mark.skipif(not (shutil.which("cc") and shutil.which("make")), reason="cc or make is missing: no C is compiled")
def test_a_program_in_c_is_right_also_in_a_folder_that_is_not_there(script, tmp_path, capfd):
    assert script("c/run.py").main(tmp_path / "build" / "c") == 0
    assert capfd.readouterr().out == "status 0, 20 of 20 classes right\n"
    assert all(len((FOLDER / "c" / name).read_text().splitlines()) < 40 for name in ("digits.c", "run.py"))
