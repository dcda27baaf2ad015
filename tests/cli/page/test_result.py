"""cli/page/result.py: files, and the frame that a notebook shows."""

import html
import json
import re

import pytest

from tilewright.cli.page.result import Report
from tilewright.hw.errors import FileError, UnsupportedError


def test_its_text(recorded):
    assert repr(recorded) == f"Report('tiles' on tiny, timing: {recorded.cycles:,} cycles)"


def test_a_notebook_gets_the_page_in_a_frame(recorded):
    pytest.importorskip("bokeh")
    shown = recorded._repr_html_()
    inside = re.fullmatch(r'<iframe srcdoc="([^"]*)" style="[^"]*" title="[^"]*"></iframe>', shown)
    assert inside and html.unescape(inside[1]).startswith("<!doctype html>")
    assert len(html.unescape(inside[1])) == pytest.approx(len(recorded.to_html()), rel=0.01)


def test_files(recorded, tmp_path):
    recorded.save(tmp_path / "a.json")
    assert json.loads((tmp_path / "a.json").read_text()) == recorded.data
    with pytest.raises(FileError, match="a.txt: must end in .html or .json"):
        recorded.save(tmp_path / "a.txt")


def test_a_page_that_fails_leaves_the_file_as_it_was(recorded, tmp_path, monkeypatch):
    pytest.importorskip("bokeh")
    (tmp_path / "a.html").write_text("before")
    broken = Report({**recorded.data, "operators": None})
    with pytest.raises(TypeError):
        broken.save(tmp_path / "a.html")
    monkeypatch.setattr("tilewright.hw.needs._is_there", lambda module: False)
    with pytest.raises(UnsupportedError, match=r"needs bokeh, .*pip install 'tilewright\[report\]'"):
        recorded.save(tmp_path / "a.html")
    assert [path.name for path in tmp_path.iterdir()] == ["a.html"] and (tmp_path / "a.html").read_text() == "before"
