"""Pictures of memory plans."""

import xml.etree.ElementTree

import pytest

from tilewright.compiler.memory import Lifetime, draw, plan
from tilewright.hw.errors import FileError, UnsupportedError

pytest.importorskip("matplotlib")
PLAN = plan([Lifetime("wide", 100, 0, 9), Lifetime("tall_and_thin", 900, 4, 4), Lifetime("tiny", 1, 5, 5)])


def test_svg_is_reproducible(tmp_path):
    for name in ("a.svg", "b.svg"):
        draw(PLAN, tmp_path / name, "one plan")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    text = (tmp_path / "a.svg").read_text()
    assert xml.etree.ElementTree.fromstring(text).tag.endswith("svg")
    assert "<!-- wide -->" in text and "<!-- tall_and_thin -->" in text  # matplotlib's comments before drawn text
    assert "<!-- tiny -->" not in text  # which would not fit its rectangle


def test_png(tmp_path):
    draw(PLAN, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_names_that_cannot_be_written(tmp_path):
    with pytest.raises(UnsupportedError, match=r"a\.pdf: a picture must end in png or svg"):
        draw(PLAN, tmp_path / "a.pdf")
    with pytest.raises(FileError, match="does not exist"):
        draw(PLAN, tmp_path / "none" / "a.svg")
    assert not list(tmp_path.iterdir())
