"""cli/page/page.py: sections, sources, data inside, and nothing from elsewhere."""

import json
import re

import pytest

pytest.importorskip("bokeh")

from tilewright.cli.page import report
from tilewright.cli.page.page import page, shown


def outside_scripts(text):
    return re.sub(r"<script.*?</script>", "", text, flags=re.S)


def test_sections_and_the_data_inside(recorded):
    text = recorded.to_html()
    assert text.startswith("<!doctype html>") and len(text.encode()) < 3_000_000
    for key in ("summary", "placement", "operators", "slow", "timeline", "memory", "roofline", "exactness"):
        assert f'<section id="{key}">' in text
    assert '<section id="difference">' not in text
    inside = re.search(r'<script type="application/json" id="report">(.*?)</script>', text, re.S)
    assert inside and json.loads(inside[1]) == json.loads(recorded.to_json())


def test_every_number_of_the_summary_has_its_source(recorded):
    text = outside_scripts(recorded.to_html())
    for one in recorded.data["summary"]:
        assert one["name"].replace("'", "&#x27;") in text
    assert "timing model (simulated)" in text and "counted in the program" in text


def test_it_names_no_other_place(recorded, network):
    for found in (recorded, network):
        text = found.to_html()
        assert not re.findall(r"<(?:script|img|iframe)[^>]*\bsrc=", outside_scripts(text))
        assert not re.findall(r"<script[^>]*\bsrc=", text)
        assert re.findall(r"<link[^>]*>", outside_scripts(text)) == ['<link rel="icon" href="data:,">']


def test_names_are_text_not_markup(recorded):
    data = json.loads(recorded.to_json()) | {"program": "</script><b>x"}
    data["buffers"][0]["name"] = "<i>y</i>"
    text = page(data)
    assert "&lt;/script&gt;&lt;b&gt;x on tiny" in text and "&lt;i&gt;y&lt;/i&gt;" in text
    assert text.count("</script><b>x") == 0


def test_a_device_without_cycles(tiles_py):
    text = outside_scripts(report(f"{tiles_py}:tiles", "tiny", on="model").to_html())
    assert "Device model counts no cycles" in text and "Device model has no cycles of instructions" in text
    assert '<section id="roofline">' not in text


def test_differences_and_what_was_left_out(data):
    data["difference"] = {
        "source": "a.json",
        "before": "tiles on tiny, timing",
        "now": "tiles on tiny, rtl",
        "summary": [{"name": "Cycles", "unit": "cycles", "before": 100, "now": 110}],
        "operators": [{"operator": f"op{k}", "before": 100 - k, "now": None} for k in range(42)],
        "config": [{"field": "queue_depth", "before": 8, "now": None}],
    }
    data["timeline"]["left_out"] = {"bars": 99_999, "joined_gap": 64, "tokens": 5, "texts": True}
    data["timeline"]["texts"] = []
    data["exactness"] |= {"equal": False, "text": "y differ"}
    text = outside_scripts(page(data))
    assert "+10.0 %" in text and "2 more changed by less" in text and "queue_depth" in text
    assert "99,999 bars are too many for a page" in text and "64 cycles" in text and "5 tokens are left out" in text
    assert "tilewright disasm" in text and '<p class="bad">y differ.</p>' in text


VALUES = {
    None: "",
    True: "yes",
    1234567: "1,234,567",
    0.5: "0.5",
    12.0: "12",
    1234.5: "1,234",
    3.14159: "3.14",
    "x": "x",
}


def test_values_as_readers_want_them():
    assert [shown(value) for value in VALUES] == list(VALUES.values())
    assert (shown(["a", "b"]), shown([]), shown(False)) == ("a, b", "none", "no")
