"""The parts of the page that move, in Bokeh: sortable table, timeline, busy shares, memory, roofline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from bokeh.models import (
    Arrow,
    ColumnDataSource,
    CustomJS,
    CustomJSHover,
    DataTable,
    FixedTicker,
    HoverTool,
    HTMLTemplateFormatter,
    LabelSet,
    NormalHead,
    NumeralTickFormatter,
    NumberFormatter,
    Range1d,
    TableColumn,
)
from bokeh.palettes import Category20
from bokeh.plotting import figure
from bokeh.transform import linear_cmap

from .timeline import WAITS

_ARROWS = 250  # tokens in view up to which they are drawn
_ROW_PIXELS, _MOST_ROWS = 25, 18  # of the table of operators
_WAIT_COLOURS = {
    "token of the queue before": "#d62728",
    "token of the queue behind": "#ff9896",
    "token": "#d62728",
    "unit": "#bdbdbd",
}
_UNITS = {"load": "#1f77b4", "compute": "#2ca02c", "store": "#ff7f0e", "ternary": "#9467bd"}
_PALETTE = [*Category20[20][::2], *Category20[20][1::2]]
_HATCH = "#e8e8e8"
# key of a row -> title, width, number of decimals; None for text
_COLUMNS: dict[str, tuple[str, int, int | None]] = {
    "operator": ("operator", 190, None),
    "kind": ("kind", 100, None),
    "where": ("runs on", 62, None),
    "macs": ("multiply-accumulates", 125, 0),
    "cycles": ("cycles", 72, 0),
    "share": ("% of cycles", 82, 1),
    "us": ("time, us", 70, 1),
    "macs_per_cycle": ("MACs per cycle", 95, 1),
    "gemm_use": ("GEMM busy, %", 88, 1),
    "ternary_use": ("ternary busy, %", 95, 1),
    "bytes_loaded": ("bytes loaded", 85, 0),
    "bytes_stored": ("bytes stored", 85, 0),
    "wait_token": ("waits: token", 85, 0),
    "wait_unit": ("waits: unit", 78, 0),
    "wait_memory": ("waits: memory", 92, 0),
    "wait_bank": ("waits: bank", 80, 0),
    "instructions": ("instructions", 82, 0),
}
_PERCENT = ("share", "gemm_use", "ternary_use")
_BAR = (
    '<div style="background:linear-gradient(90deg,#9ecae1 <%= value %>%,transparent 0);text-align:right">'
    '<%= value == null ? "" : value.toFixed(1) %></div>'
)
_WHOLE = '<div style="text-align:right"><%= value == null ? "" : value.toLocaleString("en-GB") %></div>'


def short(name: str, most: int = 40) -> str:
    """A name that fits a plot: the first of joined names, cut in the middle."""
    first, more, _ = name.partition(";")
    shown = first + (";..." if more else "")
    return shown if len(shown) <= most else f"{shown[: most // 2 - 1]}...{shown[2 - most // 2 :]}"


def colours(count: int) -> list[str]:
    """A colour for each of `count` operators, in turn."""
    return [_PALETTE[k % len(_PALETTE)] for k in range(count)]


def spans(timeline: dict[str, Any], count: int) -> tuple[list[float], list[float]]:
    """(first, last cycle) of the instructions of each of `count` operators; NaN for one without any."""
    bars = timeline["bars"]
    at, first, last = np.array(bars["operator"], np.int64), np.full(count, np.inf), np.full(count, -np.inf)
    waits = np.array([name.endswith(WAITS) for name in timeline["tracks"]], bool)
    real = ~waits[np.array(bars["track"], np.int64)] if len(at) else np.zeros(0, bool)
    np.minimum.at(first, at[real], np.array(bars["start"], float)[real])
    np.maximum.at(last, at[real], np.array(bars["end"], float)[real])
    known = np.isfinite(first)
    return np.where(known, first, np.nan).tolist(), np.where(known, last, np.nan).tolist()


def operator_table(rows: Sequence[dict[str, Any]], timeline: dict[str, Any] | None, view: Range1d | None) -> DataTable:
    """Every operator; a click on a heading sorts, one on a row zooms the timeline to it."""
    shown = {key: column for key, column in _COLUMNS.items() if any(row.get(key) not in (None, "") for row in rows)}
    values: dict[str, Any] = {"colour": colours(len(rows))}
    for key, (_, _, decimals) in shown.items():
        column = [row.get(key) for row in rows]
        if key in _PERCENT:
            column = [None if value is None else 100 * value for value in column]
        values[key] = [value or "" for value in column] if decimals is None else column
    if timeline is not None:
        values["first"], values["last"] = spans(timeline, len(rows))
    source = ColumnDataSource(values)
    mark = HTMLTemplateFormatter(
        template='<span style="display:inline-block;width:9px;height:9px;margin-right:5px;background:<%= colour %>">'
        '</span><span title="<%- value %>"><%- value %></span>'
    )
    columns = []
    for key, (title, width, decimals) in shown.items():
        if key == "operator":
            formatter: Any = mark
        elif decimals is None:
            formatter = HTMLTemplateFormatter(template="<%- value %>")
        elif key in _PERCENT:
            formatter = HTMLTemplateFormatter(template=_BAR)
        elif decimals == 0:
            formatter = HTMLTemplateFormatter(template=_WHOLE)
        else:
            formatter = NumberFormatter(format="0,0." + "0" * decimals, text_align="right", nan_format="")
        columns.append(TableColumn(field=key, title=title, width=width, formatter=formatter))
    height = _ROW_PIXELS * (min(len(rows), _MOST_ROWS) + 1) + 20
    table = DataTable(
        source=source,
        columns=columns,
        index_position=None,
        sortable=True,
        selectable=True,
        height=height,
        row_height=_ROW_PIXELS,
        sizing_mode="stretch_width",
        autosize_mode="none",
        name="operators",
    )
    if view is not None and timeline is not None:
        code = """
        const at = cb_obj.indices.filter(k => isFinite(source.data.first[k]))
        if (!at.length) { view.start = 0; view.end = total; return }
        const low = Math.min(...at.map(k => source.data.first[k])), high = Math.max(...at.map(k => source.data.last[k]))
        const margin = Math.max(1, (high - low) * 0.05)
        view.setv({start: Math.max(0, low - margin), end: Math.min(total, high + margin)})"""
        arguments = {"source": source, "view": view, "total": timeline["cycles"]}
        source.selected.js_on_change("indices", CustomJS(args=arguments, code=code))
    return table


def _plot(title: str, **options: Any) -> Any:
    plot = figure(title=title, sizing_mode="stretch_width", output_backend="canvas", **options)
    plot.toolbar.logo = None
    plot.grid.grid_line_color = "#eeeeee"
    plot.title.text_font_style = "normal"
    return plot


def _cycles_axis(plot: Any) -> None:
    plot.xaxis.axis_label = "cycle"
    plot.xaxis.formatter = NumeralTickFormatter(format="0,0")


def timeline_plot(timeline: dict[str, Any], rows: Sequence[dict[str, Any]], view: Range1d) -> Any:
    """Instructions of each unit in the colours of their operators, their waits, and tokens between the units."""
    tracks = timeline["tracks"]
    plot = _plot(
        "",
        height=70 + 34 * len(tracks),
        x_range=view,
        y_range=Range1d(-0.6, len(tracks) - 0.4),
        tools="xpan,xwheel_zoom,xbox_zoom,reset",
        active_scroll="xwheel_zoom",
        name="timeline",
    )
    heights = [len(tracks) - 1 - k for k in range(len(tracks))]
    plot.yaxis.ticker = FixedTicker(ticks=heights)
    plot.yaxis.major_label_overrides = {height: name for height, name in zip(heights, tracks)}
    _cycles_axis(plot)
    bars = {key: np.array(values, np.int64) for key, values in timeline["bars"].items()}
    waiting = np.array([name.endswith(WAITS) for name in tracks], bool)[bars["track"]]
    names, operators = timeline["names"], [short(row["operator"]) for row in rows]
    for some, what in ((~waiting, "instruction"), (waiting, "waits for")):
        held = {key: _compact(values[some]) for key, values in bars.items()}
        held["y"] = np.array(heights, np.int8)[bars["track"][some]]
        source = ColumnDataSource(held)
        if what == "instruction":
            fill: Any = linear_cmap("operator", colours(len(rows)), -0.5, len(rows) - 0.5)
        else:
            fill = linear_cmap("name", [_WAIT_COLOURS.get(n, "#bdbdbd") for n in names], -0.5, len(names) - 0.5)
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
        told = CustomJSHover(args={"texts": timeline["texts"]}, code="return texts[value] ?? ''")
        tips = [(what, "@name{custom}"), ("of", "@operator{custom}"), ("cycles", "@start{0,0} to @end{0,0}")]
        if timeline["left_out"]["joined_gap"] is not None:
            tips.append(("joined bars", "@count{0,0}"))
        tips.append(("number", "@instruction{0,0}"))
        formatters: dict[str, Any] = {"@name": named, "@operator": owner}
        if timeline["texts"]:
            tips.append(("", "@{at}{custom}"))
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
    place = {name: height for name, height in zip(timeline["tracks"], heights)}
    ends = [[place[queue.lower()] for queue in channel.split(" -> ")] for channel in channels]
    every = ColumnDataSource(
        {key: _compact(np.array(values, np.int64)) for key, values in tokens.items()}, name="tokens"
    )
    shown = ColumnDataSource({"x0": [], "y0": [], "x1": [], "y1": [], "colour": []})
    head = NormalHead(size=6, fill_color="colour", line_color="colour")
    arrow = Arrow(
        end=head,
        x_start="x0",
        y_start="y0",
        x_end="x1",
        y_end="y1",
        line_color="colour",
        line_width=1.2,
        source=shown,
        line_alpha=0.8,
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
    """The share of each unit's busy cycles, over time."""
    busy = timeline["busy"]
    plot = _plot(
        "", height=190, x_range=view, y_range=Range1d(0, 104), tools="xpan,xwheel_zoom,xbox_zoom,reset", name="busy"
    )
    edges = np.array(busy["edges"])
    for unit, shares in busy["units"].items():
        held = {"left": edges[:-1], "right": edges[1:], "share": 100 * np.array(shares)}
        held["middle"] = (held["left"] + held["right"]) / 2
        source = ColumnDataSource({key: values.astype(np.float32) for key, values in held.items()})
        line = plot.step("middle", "share", mode="center", source=source, color=_UNITS[unit], legend_label=unit)
        tips = [("unit", unit), ("cycles", "@left{0,0} to @right{0,0}"), ("busy", "@share{0.0} %")]
        plot.add_tools(HoverTool(renderers=[line], tooltips=tips, mode="vline"))
    plot.yaxis.axis_label = "% of cycles busy"
    _cycles_axis(plot)
    plot.legend.orientation, plot.legend.click_policy = "horizontal", "hide"
    plot.add_layout(plot.legend[0], "above")
    return plot


def _boxes(plot: Any, rows: Sequence[dict[str, Any]], ends: tuple[str, str], extra: int, top: int, wide: int) -> None:
    """Boxes of buffers: from `first` to `last` plus `extra` across, from their address on upwards."""
    fills = colours(len(rows))
    source = ColumnDataSource(
        {
            "left": [row["first"] for row in rows],
            "right": [row["last"] + extra for row in rows],
            "bottom": [row["address"] for row in rows],
            "top": [row["address"] + row["bytes"] for row in rows],
            "name": [row["name"] for row in rows],
            "label": [short(row["name"], 26) for row in rows],
            "bytes": [row["bytes"] for row in rows],
            "last": [row["last"] for row in rows],
            "colour": fills,
        }
    )
    box = plot.quad(
        left="left",
        right="right",
        bottom="bottom",
        top="top",
        fill_color="colour",
        fill_alpha=0.75,
        line_color="white",
        source=source,
    )
    tips = [("buffer", "@name"), ("bytes", "@bytes{0,0}"), ("address", "@bottom{0,0}")]
    tips.append((ends[0], f"@left{{0,0}} {ends[1]} @last{{0,0}}"))
    plot.add_tools(HoverTool(renderers=[box], tooltips=tips))
    large = [
        k for k, row in enumerate(rows) if 14 * row["bytes"] > top and 4 * (row["last"] - row["first"] + extra) > wide
    ]
    labels = {key: [source.data[key][k] for k in large] for key in ("left", "bottom", "top", "label")}
    labels["middle"] = [(low + high) / 2 for low, high in zip(labels["bottom"], labels["top"])]
    plot.add_layout(
        LabelSet(
            x="left",
            y="middle",
            text="label",
            source=ColumnDataSource(labels),
            text_font_size="11px",
            x_offset=4,
            text_baseline="middle",
        )
    )
    plot.yaxis.axis_label = "byte address"
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0")


def arena_plot(arena: dict[str, Any]) -> Any:
    """Activations of a launch: which bytes each has, from the step that writes it to the last that reads it."""
    rows = arena["buffers"]
    steps = 1 + max((row["last"] for row in rows), default=0)
    plot = _plot("", height=340, tools="pan,wheel_zoom,box_zoom,reset", name="arena")
    _boxes(plot, rows, ("alive in steps", "to"), 1, arena["bytes"], steps)
    plot.xaxis.axis_label = "operator of the launch, by number"
    return plot


def buffer_plot(rows: Sequence[dict[str, Any]], cycles: int) -> Any:
    """Buffers of the launches: which bytes each has, from its first access to its last."""
    used = [row for row in rows if row["first"] is not None]
    plot = _plot("", height=340, tools="pan,wheel_zoom,box_zoom,reset", name="buffers")
    top = max((row["address"] + row["bytes"] for row in used), default=1)
    _boxes(plot, used, ("used in cycles", "to"), 0, top, cycles)
    _cycles_axis(plot)
    return plot


def roofline_plot(limits: dict[str, Any], rows: Sequence[dict[str, Any]]) -> Any:
    """Operators against what products and transfers allow."""
    points, peak, widths = limits["points"], limits["peak"], limits["bytes_per_cycle"]
    plot = _plot(
        "", height=400, x_axis_type="log", y_axis_type="log", tools="pan,wheel_zoom,box_zoom,reset", name="roofline"
    )
    intensities = [point["macs_per_byte"] for point in points]
    rates = [point["macs_per_cycle"] for point in points]
    low = min([*intensities, peak / widths["both"]]) / 2
    high = max([*intensities, peak / widths["load"]]) * 3
    for name, width, dash in (("loads", widths["load"], "dashed"), ("all transfers", widths["both"], "solid")):
        knee = peak / width
        x, y = ([low, knee, high], [low * width, peak, peak]) if low < knee else ([low, high], [peak, peak])
        label = f"{name}: {width} bytes per cycle; array: {peak:,} MACs per cycle"
        plot.line(x, y, line_color="#444444", line_dash=dash, line_width=1.5, legend_label=label)
    colour = {row["operator"]: fill for row, fill in zip(rows, colours(len(rows)))}
    source = ColumnDataSource(
        {
            "x": intensities,
            "y": rates,
            "operator": [point["operator"] for point in points],
            "label": [short(point["operator"], 24) for point in points],
            "cycles": [point["cycles"] for point in points],
            "share": [100 * point["macs_per_cycle"] / peak for point in points],
            "colour": [colour[point["operator"]] for point in points],
        }
    )
    dots = plot.scatter("x", "y", source=source, size=10, fill_color="colour", line_color="#333333")
    tips = [("operator", "@operator"), ("cycles", "@cycles{0,0}"), ("MACs per cycle", "@y{0.0}")]
    tips += [("of the array", "@share{0.0} %"), ("MACs per byte", "@x{0.0}")]
    plot.add_tools(HoverTool(renderers=[dots], tooltips=tips))
    plot.xaxis.axis_label = "multiply-accumulates (MACs) per byte moved"
    plot.yaxis.axis_label = "MACs per cycle"
    plot.y_range.start, plot.y_range.end = min([*rates, peak / 4]) / 2, 2 * peak
    plot.x_range.start, plot.x_range.end = low, high
    for axis in (plot.xaxis, plot.yaxis):
        axis.formatter = NumeralTickFormatter(format="0,0.[00]")
    plot.legend.location = "bottom_right"
    plot.legend.background_fill_alpha = 0.8
    return plot
