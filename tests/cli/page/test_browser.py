"""Pages of `tilewright report` in a headless Chromium: they render, sort, zoom, ask and say nothing."""

import runpy
import shutil
from pathlib import Path

import pytest

from tilewright.cli.page import report

sync_api = pytest.importorskip("playwright.sync_api")
pytest.importorskip("bokeh")
pytest.importorskip("tvm")
ROOT = Path(__file__).parents[3]
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium; on Debian: apt-get install chromium"),
    pytest.mark.filterwarnings("default::ResourceWarning"),  # of playwright's driver
]
RESNET8 = ROOT.parent / "shared" / "models" / "resnet8_int8.tflite"
MOST_BYTES = 6_000_000  # of ResNet-18's page
RANGE = """() => { for (const d of Bokeh.documents) { const p = d.get_model_by_name("timeline")
    if (p) return [p.x_range.start, p.x_range.end] } }"""
SHOW = """([start, end]) => { for (const d of Bokeh.documents) { const p = d.get_model_by_name("timeline")
    if (p) p.x_range.setv({start, end}) } }"""
ARROWS = """() => { for (const d of Bokeh.documents) { const p = d.get_model_by_name("timeline")
    if (p) return p.center.filter(a => a.type == "Arrow")[0].source.data.x0.length } }"""


def model(name, folder):
    """The network or schedule `name`."""
    if name == "resnet8":
        if not RESNET8.exists():
            pytest.skip("the file of resnet8 is missing")
        return RESNET8
    if name == "resnet18":
        made = runpy.run_path(str(ROOT / "examples" / "resnet18" / "make_model.py"))
        path = folder / "resnet18.onnx"
        onnx = pytest.importorskip("onnx")
        onnx.save(made["resnet18"](), str(path))
        return path
    return ROOT / "examples" / "matmul_vthread.py:schedule"


@pytest.mark.parametrize("name", ["resnet8", "resnet18", "schedule"])
def test_a_page(name, tmp_path):
    found = report(model(name, tmp_path))
    path = tmp_path / "page.html"
    found.save(path)
    assert path.stat().st_size < MOST_BYTES
    assert sum(row.get("cycles", 0) for row in found.data["operators"]) == found.cycles
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        said, asked = [], []
        page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        page.wait_for_selector(".slick-row")
        assert_it_draws(page, found)
        assert_it_sorts(page, found)
        assert_it_zooms(page, found)
        browser.close()
    assert said == []
    assert [url for url in asked if not url.startswith(("data:", "blob:"))] == [path.as_uri()]


def assert_it_draws(page, found):
    plots = 3 + len(found.data["arenas"]) + bool(found.data["roofline"])
    page.wait_for_function("n => document.querySelectorAll('.bk-Figure').length == n", arg=plots)
    inside = page.evaluate("() => JSON.parse(document.getElementById('report').textContent)")
    assert inside["operators"] == found.data["operators"]


def assert_it_sorts(page, found):
    heading = page.locator(".slick-header-column", has=page.get_by_text("cycles", exact=True))
    for ascending in (True, False):
        heading.click()
        wanted = sorted((row.get("cycles", 0) for row in found.data["operators"]), reverse=not ascending)
        column = next(k for k, name in enumerate(headings(page)) if name == "cycles")
        page.wait_for_timeout(300)
        shown = page.locator(f".slick-row .slick-cell.l{column}").all_inner_texts()
        assert [int(text.replace(",", "") or 0) for text in shown][:5] == wanted[:5]


def headings(page):
    return page.locator(".slick-column-name").all_inner_texts()


def assert_it_zooms(page, found):
    """A click on the largest operator, which the sorting has put first, shows its cycles."""
    assert page.evaluate(RANGE) == [0, found.cycles]
    page.locator(".slick-row").first.locator(".slick-cell").nth(1).click()
    page.wait_for_timeout(500)
    start, end = page.evaluate(RANGE)
    assert 0 <= start < end <= found.cycles and end - start < found.cycles
    largest = max(row.get("cycles", 0) for row in found.data["operators"])
    assert end - start >= largest
    low = (start + end) / 2
    page.evaluate(SHOW, [low, low + found.cycles / 200])
    page.wait_for_timeout(300)
    tokens = found.data["timeline"]["tokens"]
    spans = zip(tokens["given"], tokens["taken"])
    seen = sum(taken >= low and given <= low + found.cycles / 200 for given, taken in spans)
    assert page.evaluate(ARROWS) == (seen if seen <= 250 else 0)
