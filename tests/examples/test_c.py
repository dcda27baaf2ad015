"""examples/c: a user's program in C, built against the generated library, and few lines of it."""

import shutil
from pathlib import Path

import pytest

pytest.importorskip("tvm")
FOLDER = Path(__file__).parents[2] / "examples" / "c"


@pytest.mark.skipif(not (shutil.which("cc") and shutil.which("make")), reason="cc or make is missing: no C is compiled")
def test_the_classes_are_right_also_in_a_folder_that_is_not_there(script, tmp_path, capfd):
    assert script("c/run.py").main(tmp_path / "build" / "c") == 0
    assert capfd.readouterr().out == "status 0, 20 of 20 classes right\n"


def test_it_is_short():
    assert all(len((FOLDER / name).read_text().splitlines()) < 40 for name in ("digits.c", "run.py"))
