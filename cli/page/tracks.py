"""The timeline and the busy shares, in Bokeh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from bokeh.models import (
    Arrow,
    CustomJS,
    CustomJSHover,
    FixedTicker,
    HoverTool,
    NormalHead,
    Range1d,
)
from bokeh.transform import linear_cmap

from .looks import NO_COLOUR, colours, columns, cycles_axis, empty_plot, short
from .timeline import WAITS

_ARROWS = 250  # tokens in view up to which they are drawn
_WAIT_COLOURS = {"token": "#d62728"}  # the others wait for their unit
_TOKENS = "#7f7f7f"
_UNITS = {"load": "#1f77b4", "compute": "#2ca02c", "store": "#ff7f0e", "ternary": "#9467bd"}
_TEXT = """
const report = window.tilewright_report ??= JSON.parse(document.getElementById("report").textContent)
return report.timeline.texts[value] ?? ""
"""  # of an instruction: it is on the page once, in the data


def timeline_plot(timeline: dict[str, Any], rows: Sequence[dict[str, Any]], view: Range1d) -> Any:
    """Instructions of each unit in the colours of their operators, their waits, and tokens between the units."""
    tracks = timeline["tracks"]
    plot = empty_plot(
        "",
        height=70 + 34 * len(tracks),
        x_range=view,
        y_range=Range1d(start=-0.6, end=len(tracks) - 0.4),
        tools="xpan,xwheel_zoom,xbox_zoom,reset",
        active_scroll="xwheel_zoom",
        name="timeline",
    )
    heights = [len(tracks) - 1 - k for k in range(len(tracks))]
    plot.yaxis.ticker = FixedTicker(ticks=heights)
    plot.yaxis.major_label_overrides = dict(zip(heights, tracks))
    cycles_axis(plot)
    bars = {key: np.array(values, np.int64) for key, values in timeline["bars"].items()}
    waiting = np.array([name.endswith(WAITS) for name in tracks], bool)[bars["track"]]
    names, operators = timeline["names"], [short(row["operator"]) for row in rows]
    for some, what in ((~waiting, "instruction"), (waiting, "waits for")):
        held = {key: _compact(values[some]) for key, values in bars.items()}
        held["y"] = np.array(heights, np.int8)[bars["track"][some]]
        source = columns(held)
        if what == "instruction":
            fill: Any = linear_cmap("operator", colours(len(rows)), -0.5, len(rows) - 0.5)
        else:
            fill = linear_cmap("name", [_WAIT_COLOURS.get(n, NO_COLOUR) for n in names], -0.5, len(names) - 0.5)
        bar = plot.hbar(
            y="y",
            left="start",
            right="end",
            height=0.84 if what == "instruction" else 0.5,
            fill_color=fill,
            line_width=0,
            source=source,
        )
        named = CustomJSHover(args={"names": names}, code="return names[value]")
        owner = CustomJSHover(args={"names": operators}, code="return names[value]")
        told = CustomJSHover(code=_TEXT)
        tips = [(what, "@name{custom}"), ("of", "@operator{custom}"), ("cycles", "@start{0,0} to @end{0,0}")]
        if timeline["left_out"]["joined_gap"] is not None:
            tips.append(("joined bars", "@count{0,0}"))
        tips.append(("number", "@instruction{0,0}"))
        formatters: dict[str, Any] = {"@name": named, "@operator": owner}
        if timeline["texts"]:
            tips.append(("text", "@{at}{custom}"))
            source.data["at"] = held["instruction"]
            formatters["@{at}"] = told
        plot.add_tools(HoverTool(renderers=[bar], tooltips=tips, formatters=formatters, point_policy="follow_mouse"))
    if timeline["tokens"]["given"]:
        _arrows(plot, timeline, heights, view)
    return plot


def _compact(values: np.ndarray) -> np.ndarray:
    """The same numbers in the smallest type that JavaScript has arrays of."""
    for dtype in (np.uint8, np.uint16, np.int32):
        info = np.iinfo(dtype)
        if not len(values) or info.min <= values.min() and values.max() <= info.max:
            return values.astype(dtype)
    return values.astype(np.float64)


def _arrows(plot: Any, timeline: dict[str, Any], heights: Sequence[int], view: Range1d) -> None:
    """Tokens, drawn once few enough are in view: red where the taker waited for it."""
    tokens, channels = timeline["tokens"], timeline["channels"]
    place = dict(zip(timeline["tracks"], heights))
    ends = [[place[queue.lower()] for queue in channel.split(" -> ")] for channel in channels]
    every = columns({key: _compact(np.array(values, np.int64)) for key, values in tokens.items()}, name="tokens")
    shown = columns({"x0": [], "y0": [], "x1": [], "y1": [], "colour": []})
    head = NormalHead(size=6, fill_color="colour", line_color="colour")
    kind: Any = Arrow
    arrow = kind(
        end=head,
        source=shown,
        line_color="colour",
        line_width=1.2,
        line_alpha=0.8,
        x_start="x0",
        y_start="y0",
        x_end="x1",
        y_end="y1",
    )
    plot.add_layout(arrow)
    code = """
    const d = every.data, found = []
    for (let k = 0; k < d.given.length; k++)
      if (d.taken[k] >= view.start && d.given[k] <= view.end) { found.push(k); if (found.length > most) break }
    const some = found.length > most ? [] : found
    shown.data = {x0: some.map(k => d.given[k]), x1: some.map(k => d.taken[k]),
      y0: some.map(k => ends[d.channel[k]][0]), y1: some.map(k => ends[d.channel[k]][1]),
      colour: some.map(k => d.waited[k] > 0 ? "#d62728" : "#777777")}"""
    draw = CustomJS(args={"every": every, "shown": shown, "view": view, "ends": ends, "most": _ARROWS}, code=code)
    view.js_on_change("start", draw)
    view.js_on_change("end", draw)
    if len(tokens["given"]) <= _ARROWS:
        start, end = ([pair[k] for pair in ends] for k in (0, 1))
        shown.data = {
            "x0": tokens["given"],
            "x1": tokens["taken"],
            "y0": [start[k] for k in tokens["channel"]],
            "y1": [end[k] for k in tokens["channel"]],
            "colour": ["#d62728" if waited else "#777777" for waited in tokens["waited"]],
        }


def busy_plot(timeline: dict[str, Any], view: Range1d) -> Any:
    """The share of each unit's busy cycles over time: a strip for each unit, full where it is always busy."""
    shares = {unit: 100 * np.array(some) for unit, some in timeline["busy"]["units"].items()}
    strips = {unit: _Strip(unit, some, 100, _UNITS[unit]) for unit, some in shares.items()}
    return _strips(timeline, view, strips, 55, ("busy", "@value{0.0} %"))


def level_plot(timeline: dict[str, Any], view: Range1d) -> Any:
    """The most instructions in each command queue, and tokens in each channel, over time."""
    strips = {}
    for name, values in timeline["levels"].items():
        most = max(values, default=0)
        colour = _UNITS.get(name.rpartition(" ")[2], _TOKENS)
        strips[name] = _Strip(f"{name} ({most:,})", np.array(values), max(most, 1), colour)
    return _strips(timeline, view, strips, 38, ("level", "@value{0,0}"))


class _Strip(NamedTuple):
    """Values of a strip, one per bin; it is full at `most`."""

    label: str
    values: np.ndarray
    most: int
    colour: str


def _strips(
    timeline: dict[str, Any], view: Range1d, strips: Mapping[str, _Strip], height: int, told: tuple[str, str]
) -> Any:
    """A plot of `strips`, one below the other, each `height` pixels high."""
    count, edges = len(strips), np.array(timeline["busy"]["edges"])
    plot = empty_plot(
        "",
        height=70 + height * count,
        x_range=view,
        y_range=Range1d(start=-0.05, end=count),
        tools="xpan,xwheel_zoom,xbox_zoom,reset",
    )
    for k, (name, strip) in enumerate(strips.items()):
        low = count - 1 - k
        held = {"left": edges[:-1], "right": edges[1:], "value": strip.values}
        held["top"] = low + 0.9 * strip.values / strip.most
        source = columns({key: values.astype(np.float32) for key, values in held.items()})
        box = plot.quad(
            left="left", right="right", bottom=low, top="top", color=strip.colour, line_width=0.6, source=source
        )
        tips = [("of", name), ("cycles", "@left{0,0} to @right{0,0}"), told]
        plot.add_tools(HoverTool(renderers=[box], tooltips=tips, point_policy="follow_mouse"))
    places = [count - 0.55 - k for k in range(count)]
    plot.yaxis.ticker = FixedTicker(ticks=places)
    plot.yaxis.major_label_overrides = {place: strip.label for place, strip in zip(places, strips.values())}
    plot.ygrid.visible = False
    cycles_axis(plot)
    return plot
