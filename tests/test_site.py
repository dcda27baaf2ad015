"""The site: it builds without a warning, its links hold, nothing is loaded from elsewhere, public names are on it."""

import importlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.modules import module_of

ROOT = Path(__file__).parents[1]


LINKS = module_of(ROOT / "docs" / "links.py")


@pytest.fixture
def conf():
    pytest.importorskip("sphinx")
    return module_of(ROOT / "docs" / "conf.py")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, of a copy of docs/: the build writes pages there, and others may build at the same time."""
    for needed in ("furo", "myst_parser", "sphinx_click", "sphinx_gallery", "bokeh", "onnxruntime", "optuna", "tvm"):
        pytest.importorskip(needed)
    root, folder = tmp_path_factory.mktemp("root"), tmp_path_factory.mktemp("site")
    for path in ROOT.glob("*.md"):
        shutil.copy(path, root)
    shutil.copytree(ROOT / "docs", root / "docs")
    for name in ("examples", "tests"):
        (root / name).symlink_to(ROOT / name)
    command = ["-m", "sphinx", "-q", "-W", "--keep-going", "-E", "-b", "html", "docs", str(folder)]
    done = subprocess.run([sys.executable, *command], cwd=root, capture_output=True, text=True, timeout=300)
    assert not (root / "docs" / "gallery").exists()
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
def test_links_of_the_site_hold(site):
    assert not LINKS.wrong(site)


@pytest.mark.slow
def test_pages_and_declarations_are_on_the_site(site, conf):
    pages = [path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")]
    assert not [page for page in pages if not (site / page).exists()]
    names, verbs = ((site / "reference" / f"{page}.html").read_text() for page in ("python", "cli"))
    for path in ("tilewright.load", "tilewright.Program.gemm", "tilewright.compiler.tune.tune"):
        assert f'id="{path}"' in names
    assert all(f'id="tilewright-{verb}"' in verbs for verb in conf.VERBS) and "--emit" in verbs
    assert "ternary_blocks" in (site / "configuration.html").read_text()
    for path in sorted((ROOT / "examples" / "gallery").glob("*.py")):
        page = (site / "gallery" / f"{path.stem}.html").read_text()
        assert "sphx_glr_" in page and '<iframe srcdoc="' in page and f"{path.stem}.ipynb" in page


def test_every_page_has_a_place_in_the_navigation():
    index = (ROOT / "docs" / "index.md").read_text().splitlines()
    pages = {p.relative_to(ROOT / "docs").with_suffix("").as_posix() for p in (ROOT / "docs").rglob("*.md")}
    pages |= {p.relative_to(ROOT / "docs").with_suffix("").as_posix() for p in (ROOT / "docs").rglob("*.rst")}
    records = {page for page in pages if page.startswith("decisions/0")}  # by their pattern
    assert pages - records - {"index"} <= set(index) and "gallery/index" in index


def test_public_names_are_found(conf):
    pytest.importorskip("tvm")
    names = conf.public_names()
    assert "load" in names["tilewright"] and len(names) > 30
    assert conf.found("tilewright.runtime", "layout").pack_weights
    assert conf.found("tilewright", "load") is importlib.import_module("tilewright").load


def test_docstrings_become_what_they_say(conf):
    assert conf.restructured("a*b of `x_y` and z_") == r"a\*b of \ ``x_y``\  and z\_"
    lines = ["Do it.", "", "    x = 1", "", "Then `y`.", ">>> y", "2", ""]
    conf.plain_docstrings(None, "function", "f", None, None, lines)
    assert lines[:5] == ["Do it.", "", "", "::", ""] and "        x = 1" in lines and "    >>> y" in lines


def test_links_to_the_root_become_pages(conf):
    for page, text, expected in (
        ("howto", "[c](../CONTRIBUTING.md)", "[c](project/contributing.md)"),
        ("tutorials/x", "[c](../../SECURITY.md#a)", "[c](../project/security.md#a)"),
        ("index", "[c](../examples/gallery/README.rst)", "[c](gallery/index.rst)"),
    ):
        source = [text]
        conf.links_within(None, page, source)
        assert source == [expected]


def test_broken_links_and_loads_are_found(tmp_path, capsys):
    (tmp_path / "a.html").write_text(
        '<p id="here"><a href="#here">x</a><a href="b.html#there">x</a><a href="https://x.org">x</a>'
        '<link rel="stylesheet" href="a.css"><link rel="canonical" href="https://x.org">'
        '<script src="//cdn.org/x.js"></script><img src="data:,">'
    )
    (tmp_path / "b.html").write_text('<a href="a.html">x</a><a href="c.html">x</a><img src="https://x.org/i.png">')
    (tmp_path / "a.css").write_text("")
    assert LINKS.main(str(tmp_path)) == 1
    assert capsys.readouterr().out.splitlines() == [
        "a.html: //cdn.org/x.js: the page loads it from elsewhere",
        "a.html: b.html#there: no such place on that page",
        "b.html: c.html: no such file",
        "b.html: https://x.org/i.png: the page loads it from elsewhere",
    ]
