"""cli/page/tracks.py: bars, arrows and strips as Bokeh gets them."""

import pytest

pytest.importorskip("bokeh")

from bokeh.models import Arrow, HBar, HoverTool, Quad, Range1d

from tilewright.cli.page.tracks import busy_plot, timeline_plot


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
        assert 0 <= min(one.data_source.data["share"]) and max(one.data_source.data["share"]) <= 100
