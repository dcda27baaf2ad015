"""The page of a report: sections, sources, data inside, nothing from elsewhere; its table and plots in Bokeh."""

import json
import math
import re
from typing import Any

import pytest

pytest.importorskip("bokeh")

from bokeh.models import Arrow, HBar, HoverTool, Line, Quad, Range1d, Scatter

from tilewright.cli.page import report
from tilewright.cli.page.page import page, shown
from tilewright.cli.page.plots import (
    arena_plot,
    buffer_plot,
    busy_plot,
    level_plot,
    operator_table,
    roofline_plot,
    short,
    spans,
    timeline_plot,
)


def outside_scripts(text):
    return re.sub(r"<script.*?</script>", "", text, flags=re.S)


def test_sections_and_the_data_inside(recorded):
    text = recorded.to_html()
    assert text.startswith("<!doctype html>") and len(text.encode()) < 3_000_000
    for key in ("summary", "placement", "operators", "slow", "timeline", "memory", "roofline", "exactness", "metrics"):
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
    data["operators"][0]["operator"] = "</script><!--<script>"
    text = page(data)
    assert "&lt;/script&gt;&lt;b&gt;x on tiny" in text and "&lt;i&gt;y&lt;/i&gt;" in text
    assert "</script><b>x" not in text and "</script><!--" not in text and "<!--<script>" not in text


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


def values(table: Any) -> dict[str, Any]:
    """The columns of the table's source."""
    return table.source.data


def test_columns_without_a_value_are_left_out(recorded):
    rows, timeline = recorded.data["operators"], recorded.data["timeline"]
    table = operator_table(rows, timeline, Range1d(start=0, end=timeline["cycles"]))
    fields = [column.field for column in table.columns]
    assert fields[:2] == ["operator", "where"] or fields[:3] == ["operator", "kind", "where"]
    assert "cycles" in fields and "ternary_use" not in fields
    assert table.sortable and values(table)["cycles"] == [row["cycles"] for row in rows]
    assert values(table)["gemm_use"] == [100 * row["gemm_use"] for row in rows]


def test_a_row_without_a_number_sorts_as_0():
    rows = [{"operator": "a", "where": "host", "macs": 4, "us": None}, {"operator": "b", "where": "device", "macs": 1}]
    rows[1] |= {"cycles": 7, "us": 0.07}
    table = operator_table(rows, None, None)
    assert values(table)["cycles"] == [0, 7] and values(table)["us"] == [0, 0.07]
    assert "first" not in values(table)


def test_spans_are_those_of_instructions_not_of_waits(recorded):
    timeline = recorded.data["timeline"]
    count = len(recorded.data["operators"])
    first, last = spans(timeline, count + 1)
    assert math.isnan(first[-1]) and math.isnan(last[-1])
    assert all(0 <= a < b <= timeline["cycles"] + 1 for a, b in zip(first[:-1], last[:-1]))
    rows = [row["operator"] for row in recorded.data["operators"]]
    assert first[rows.index("weights")] < first[rows.index("results")]


@pytest.fixture
def view(data):
    return Range1d(start=0, end=data["timeline"]["cycles"])


def test_bars_of_instructions_and_waits(data, view):
    plot = timeline_plot(data["timeline"], data["operators"], view)
    bars = [one for one in plot.renderers if isinstance(one.glyph, HBar)]
    assert sum(len(one.data_source.data["start"]) for one in bars) == len(data["timeline"]["bars"]["start"])
    assert set(plot.yaxis.major_label_overrides.values()) == set(data["timeline"]["tracks"])
    assert plot.x_range is view and len(plot.select(HoverTool)) == 2


def test_few_tokens_are_arrows_at_once_and_many_wait_for_the_zoom(data, view):
    few = timeline_plot(data["timeline"], data["operators"], view).select_one(Arrow)
    assert len(few.source.data["x0"]) == len(data["timeline"]["tokens"]["given"]) > 0
    assert "#d62728" in few.source.data["colour"]
    assert all(abs(a - b) == 2 for a, b in zip(few.source.data["y0"], few.source.data["y1"]))
    tokens = data["timeline"]["tokens"]
    data["timeline"]["tokens"] = {key: 100 * values for key, values in tokens.items()}
    many = timeline_plot(data["timeline"], data["operators"], view).select_one(Arrow)
    assert many.source.data["x0"] == [] and view.js_property_callbacks


def test_a_strip_for_each_unit_never_above_its_place(data, view):
    plot = busy_plot(data["timeline"], view)
    strips = [one for one in plot.renderers if isinstance(one.glyph, Quad)]
    assert len(strips) == 3
    for one in strips:
        assert max(one.data_source.data["top"]) <= one.glyph.bottom + 1
        assert 0 <= min(one.data_source.data["value"]) and max(one.data_source.data["value"]) <= 100


def test_a_strip_for_each_level(data, view):
    plot = level_plot(data["timeline"], view)
    labels = list(plot.yaxis.major_label_overrides.values())
    assert len(labels) == len(data["timeline"]["levels"]) == len(plot.renderers) > 3
    most = max(data["timeline"]["levels"]["tokens LOAD -> COMPUTE"])
    assert f"tokens LOAD -> COMPUTE ({most})" in labels


def boxes(plot):
    (found,) = (one for one in plot.renderers if isinstance(one.glyph, Quad))
    return found.data_source.data


def test_the_arena(network):
    (arena,) = network.data["arenas"]
    drawn = boxes(arena_plot(arena, network.data["operators"]))
    assert max(drawn["top"]) == arena["bytes"] and drawn["name"] == [b["name"] for b in arena["buffers"]]
    assert all(right == last + 1 for right, last in zip(drawn["right"], drawn["last"]))


def test_buffers_without_an_access_are_left_out(data):
    rows = data["buffers"]
    rows.append({"name": "z", "kind": "temp", "bytes": 4, "address": 1 << 20, "first": None, "last": None})
    assert "z" not in boxes(buffer_plot(rows))["name"] and len(boxes(buffer_plot(rows))["name"]) == len(rows) - 1
    assert boxes(buffer_plot([]))["name"] == []


def test_points_lie_under_the_roof(data):
    limits = data["roofline"]
    plot = roofline_plot(limits, data["operators"])
    (points,) = (one for one in plot.renderers if isinstance(one.glyph, Scatter))
    drawn = points.data_source.data
    assert drawn["operator"] == ["products"] and max(drawn["share"]) <= 100
    for x, y in zip(drawn["x"], drawn["y"]):
        assert y <= min(limits["peak"], x * limits["bytes_per_cycle"]["both"])
    assert len([one for one in plot.renderers if isinstance(one.glyph, Line)]) == 2


@pytest.mark.parametrize(
    ("name", "shown"),
    [("conv1", "conv1"), ("a;b;c", "a;..."), ("x" * 50, f"{'x' * 19}...{'x' * 18}"), ("x" * 40, "x" * 40)],
)
def test_short_names(name, shown):
    assert short(name) == shown and len(short(name)) <= 40
