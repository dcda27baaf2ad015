"""The notebooks of examples/gallery: they run in a kernel from start to end, and reports are shown in them."""

import ast
import html
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted((ROOT / "examples" / "gallery").glob("*.py"))


@pytest.fixture(scope="module")
def notebooks(tmp_path_factory):
    """Every notebook by its name, as it is after its run."""
    for needed in ("nbclient", "ipykernel", "sphinx_gallery", "bokeh", "matplotlib", "onnxruntime", "optuna", "tvm"):
        pytest.importorskip(needed)
    folder = tmp_path_factory.mktemp("notebooks")
    command = [sys.executable, str(ROOT / "docs" / "notebooks.py"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return {path.stem: json.loads(path.read_text()) for path in folder.iterdir()}


def outputs(notebook, kind):
    """What cells show of the media type `kind`."""
    found = [output.get("data", {}) for cell in notebook["cells"] for output in cell.get("outputs", ())]
    return ["".join(data[kind]) for data in found if kind in data]


def test_each_page_asks_a_question():
    assert len(SCRIPTS) == 3
    for path in SCRIPTS:
        title, line = (ast.get_docstring(ast.parse(path.read_text())) or "").splitlines()[:2]
        assert title.endswith("?") and set(line) == {"="}, path.name


@pytest.mark.slow
def test_they_run_and_show_pictures_and_reports(notebooks):
    assert sorted(notebooks) == [path.stem for path in SCRIPTS]
    for name, notebook in notebooks.items():
        cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1)), name
        assert outputs(notebook, "image/png"), name
        report = outputs(notebook, "text/html")[-1]  # by `_repr_html_`
        assert report.startswith('<iframe srcdoc="') and html.escape("Report('") in report[-300:], name
        assert "".join(cells[-1]["source"]).startswith("tw.report(")


@pytest.mark.slow
def test_what_they_say_holds(notebooks):
    text = {
        name: "".join("".join(o.get("text", "")) for cell in found["cells"] for o in cell.get("outputs", ()))
        for name, found in notebooks.items()
    }
    assert text["virtual_threads"].count("equal: True") == 3
    assert text["hardware"].count("digit 6") == 4
    assert "12 trials" in text["hardware"] and "labels are those of float32" in text["network"]
