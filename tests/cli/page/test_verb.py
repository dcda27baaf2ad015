"""cli/page/verb.py: `tilewright report`, its files, its statuses."""

import json

import pytest

from tilewright.cli.page import make


def test_a_page_and_its_data(tilewright, tiles_py, tmp_path):
    pytest.importorskip("bokeh")
    source = f"{tiles_py}:tiles"
    done = tilewright("report", source, "--config", "tiny", "-o", tmp_path / "a.html")
    assert done.status == 0, done.err
    assert "Report('tiles' on tiny, timing: " in done.out and "values of the results are equal" in done.out
    assert (tmp_path / "a.html").stat().st_size > 1_000_000
    done = tilewright("report", source, "--config", "tiny", "-o", tmp_path / "b.html", "--json")
    (tmp_path / "a.json").write_text(done.out)
    assert done.status == 0 and json.loads(done.out)["program"] == "tiles"
    done = tilewright("report", source, "--config", "tiny", "--compare", tmp_path / "a.json", "--json")
    assert json.loads(done.out)["difference"]["operators"] == []


def test_the_status_is_1_where_results_differ(tilewright, tiles_py, monkeypatch):
    monkeypatch.setattr(make, "_compared", lambda executable, run: {"equal": False, "text": "y differ"})
    assert tilewright("report", f"{tiles_py}:tiles", "--config", "tiny", "--json").status == 1


def test_mistakes_leave_no_file(tilewright, refused, tiles_py, double_py, tmp_path, monkeypatch):
    source, path = f"{tiles_py}:tiles", tmp_path / "a.html"
    wrong = [
        ((source,), 5, "nothing to write; give -o X.html, or --json"),
        ((source, "-o", tmp_path / "a.txt"), 6, "must end in .html"),
        ((source, "-o", tmp_path / "no" / "a.html"), 6, "does not exist"),
        ((source, "-o", path, "--compare", double_py), 6, "cannot be read as JSON"),
        ((source, "-o", path, "--on", "fpga"), 5, "unknown device 'fpga'"),
        ((source, "-o", path, "--on", "model", "--dram", "zynq_hp"), 5, "counts no cycles"),
        ((tmp_path / "missing.tw", "-o", path), 6, "missing.tw"),
    ]
    for arguments, status, text in wrong:
        done = tilewright("report", *arguments)
        assert (done.status, done.out) == (status, "") and text in done.err
    monkeypatch.setattr("tilewright.hw.needs._is_there", lambda module: module != "bokeh")
    refused(5, "pip install 'tilewright[report]'", "report", source, "-o", path)
    assert not [one for one in tmp_path.iterdir() if one.suffix == ".html"]
