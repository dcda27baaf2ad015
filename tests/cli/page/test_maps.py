"""cli/page/maps.py: boxes of buffers, points under their limits."""

import pytest

pytest.importorskip("bokeh")

from bokeh.models import Line, Quad, Scatter

from tilewright.cli.page.maps import arena_plot, buffer_plot, roofline_plot


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
