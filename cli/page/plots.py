"""The parts of the page that move, in Bokeh: the table of operators, the timeline, busy shares, memory and limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

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
    Range1d,
    TableColumn,
)
from bokeh.palettes import Category20
from bokeh.plotting import figure
from bokeh.transform import linear_cmap

from ..layers import short_name
from .timeline import WAITS

NO_COLOUR = "#bdbdbd"
_PALETTE = [*Category20[20][::2], *Category20[20][1::2]]
_LEFT = 200  # pixels


def short(name: str, most: int = 40) -> str:
    """A name that fits a plot: the first of joined names, cut in the middle."""
    first, more, _ = name.partition(";")
    shown = first + (";..." if more else "")
    return shown if len(shown) <= most else f"{shown[: most // 2 - 1]}...{shown[2 - most // 2 :]}"


def colours(count: int) -> list[str]:
    """A colour for each of `count` operators, in turn."""
    return [_PALETTE[k % len(_PALETTE)] for k in range(count)]


def columns(values: Mapping[str, Any], **options: Any) -> Any:
    """A data source of Bokeh with the columns `values`."""
    source: Any = ColumnDataSource(**options)
    source.data = dict(values)
    return source


def empty_plot(title: str, **options: Any) -> Any:
    """A plot as wide as the page; `options` go to Bokeh's `figure`."""
    plot: Any = figure(title=title, sizing_mode="stretch_width", output_backend="canvas", **options)
    plot.toolbar.logo = None
    plot.grid.grid_line_color = "#eeeeee"
    plot.title.text_font_style = "normal"
    return plot


def cycles_axis(plot: Any) -> None:
    """Name the axis, and let the cycles of all plots stand below each other."""
    plot.xaxis.axis_label = "cycle"
    plot.xaxis.formatter = NumeralTickFormatter(format="0,0")
    plot.min_border_left = _LEFT


_ROW_PIXELS, _MOST_ROWS = 25, 18
# key of a row -> title, width, number of decimals; None for text
_COLUMNS: dict[str, tuple[str, int, int | None]] = {
    "operator": ("operator", 210, None),
    "kind": ("kind", 100, None),
    "where": ("runs on", 62, None),
    "macs": ("MACs", 90, 0),
    "cycles": ("cycles", 72, 0),
    "share": ("% of cycles", 85, 1),
    "us": ("us", 65, 1),
    "macs_per_cycle": ("MACs/cycle", 82, 1),
    "gemm_use": ("GEMM use, %", 90, 1),
    "ternary_use": ("ternary use, %", 102, 1),
    "bytes_loaded": ("bytes loaded", 90, 0),
    "bytes_stored": ("bytes stored", 88, 0),
    "wait_token": ("wait: token", 85, 0),
    "wait_unit": ("wait: unit", 75, 0),
    "wait_memory": ("wait: memory", 95, 0),
    "wait_bank": ("wait: bank", 78, 0),
    "instructions": ("instructions", 85, 0),
}
_PERCENT = ("share", "gemm_use", "ternary_use")
_BAR = (
    '<div style="background:linear-gradient(90deg,#9ecae1 <%= value %>%,transparent 0);text-align:right">'
    '<%= !value ? "" : value.toFixed(1) %></div>'
)
_NUMBER = (
    '<div style="text-align:right"><%= !value ? "" : value.toLocaleString("en-GB", '
    "{minimumFractionDigits: DIGITS, maximumFractionDigits: DIGITS}) %></div>"
)


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
    shown = {key: column for key, column in _COLUMNS.items() if any(row.get(key) for row in rows)}
    values: dict[str, Any] = {"colour": colours(len(rows))}
    for key, (_, _, decimals) in shown.items():
        column = [row.get(key) for row in rows]
        if key in _PERCENT:
            column = [None if value is None else 100 * value for value in column]
        values[key] = [value or ("" if decimals is None else 0) for value in column]  # or sorting has no order
    if timeline is not None:
        values["first"], values["last"] = spans(timeline, len(rows))
    source = columns(values)
    mark = HTMLTemplateFormatter(
        template='<span style="display:inline-block;width:9px;height:9px;margin-right:5px;background:<%= colour %>">'
        '</span><span title="<%- value %>"><%- value %></span>'
    )
    shown_columns = []
    for key, (title, width, decimals) in shown.items():
        if key == "operator":
            formatter: Any = mark
        elif decimals is None:
            formatter = HTMLTemplateFormatter(template="<%- value %>")
        elif key in _PERCENT:
            formatter = HTMLTemplateFormatter(template=_BAR)
        else:
            formatter = HTMLTemplateFormatter(template=_NUMBER.replace("DIGITS", str(decimals)))
        shown_columns.append(TableColumn(field=key, title=title, width=width, formatter=formatter))
    height = _ROW_PIXELS * (min(len(rows), _MOST_ROWS) + 1) + 20
    table = DataTable(
        source=source,
        columns=shown_columns,
        index_position=None,
        sortable=True,
        reorderable=False,
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


_KINDS = {"input": "#1f77b4", "output": "#d62728", "constant": "#9e9e9e", "temp": "#2ca02c", "state": "#9467bd"}
_LABELLED = 0.7  # of the array: operators below it have their names in the roofline


def _boxes(plot: Any, rows: Sequence[dict[str, Any]], fills: Sequence[str], when: str, extra: int) -> None:
    """Boxes of buffers: from `first` to `last` plus `extra` across, from their address on upwards.

    `label` of a row stands in the box where that is large; `when` says what lies across.
    """
    top = max((row["address"] + row["bytes"] for row in rows), default=1)
    wide = max((row["last"] + extra for row in rows), default=1)
    source = columns(
        {
            "left": [row["first"] for row in rows],
            "right": [row["last"] + extra for row in rows],
            "bottom": [row["address"] for row in rows],
            "top": [row["address"] + row["bytes"] for row in rows],
            "middle": [row["address"] + row["bytes"] / 2 for row in rows],
            "label": [short(row["label"], 26) for row in rows],
            "colour": list(fills),
            **{key: [row[key] for row in rows] for key in ("name", "kind", "bytes", "last")},
        }
    )
    box = plot.quad(
        **{side: side for side in ("left", "right", "bottom", "top")},
        fill_color="colour",
        fill_alpha=0.7,
        line_color="white",
        source=source,
    )
    tips = [("buffer", "@name"), ("of", "@kind"), ("bytes", "@bytes{0,0} from address @bottom{0,0} on")]
    plot.add_tools(HoverTool(renderers=[box], tooltips=[*tips, (when, "@left{0,0} to @last{0,0}")]))
    large = [
        k for k, row in enumerate(rows) if 18 * row["bytes"] > top and 6 * (row["last"] - row["first"] + extra) > wide
    ]
    labels = {key: [source.data[key][k] for k in large] for key in ("left", "middle", "label")}
    plot.add_layout(
        LabelSet(
            x="left",
            y="middle",
            text="label",
            source=columns(labels),
            text_font_size="12px",
            x_offset=4,
            text_baseline="middle",
        )
    )
    plot.yaxis.axis_label = "byte address"
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0")


def arena_plot(arena: dict[str, Any], rows: Sequence[dict[str, Any]]) -> Any:
    """Activations of a launch: which bytes each has, from the operator that writes it to the last that reads it."""
    known = {row["operator"]: fill for row, fill in zip(rows, colours(len(rows)))}
    boxes = [one | {"label": one["operator"], "kind": f"result of {one['operator']}"} for one in arena["buffers"]]
    plot = empty_plot("", height=340, tools="pan,wheel_zoom,box_zoom,reset", name="arena")
    _boxes(plot, boxes, [known.get(short_name(one["operator"]), NO_COLOUR) for one in boxes], "alive in steps", 1)
    plot.xaxis.axis_label = "operators of the launch, by number"
    return plot


def buffer_plot(rows: Sequence[dict[str, Any]]) -> Any:
    """Buffers of the launches: which bytes each has, from its first access to its last."""
    used = [row | {"label": row["name"]} for row in rows if row["first"] is not None]
    plot = empty_plot("", height=340, tools="pan,wheel_zoom,box_zoom,reset", name="buffers")
    _boxes(plot, used, [_KINDS.get(row["kind"], NO_COLOUR) for row in used], "used in cycles", 0)
    cycles_axis(plot)
    return plot


def roofline_plot(limits: dict[str, Any], rows: Sequence[dict[str, Any]]) -> Any:
    """Operators against what products and transfers allow."""
    points, peak, widths = limits["points"], limits["peak"], limits["bytes_per_cycle"]
    plot = empty_plot(
        "", height=400, x_axis_type="log", y_axis_type="log", tools="pan,wheel_zoom,box_zoom,reset", name="roofline"
    )
    intensities = [point["macs_per_byte"] for point in points]
    rates = [point["macs_per_cycle"] for point in points]
    low = min([*intensities, peak / widths["both"]]) / 2
    high = max([*intensities, peak / widths["port"]]) * 3
    for name, width, dash in (("one port", widths["port"], "dashed"), ("all ports", widths["both"], "solid")):
        knee = peak / width
        x, y = ([low, knee, high], [low * width, peak, peak]) if low < knee else ([low, high], [peak, peak])
        label = f"{name}: {width} bytes per cycle"
        plot.line(x, y, line_color="#444444", line_dash=dash, line_width=1.5, legend_label=label)
    colour = {row["operator"]: fill for row, fill in zip(rows, colours(len(rows)))}
    source = columns(
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
    low_ones = [k for k, rate in enumerate(rates) if rate < _LABELLED * peak]
    named = columns({key: [source.data[key][k] for k in low_ones] for key in ("x", "y", "label")})
    plot.add_layout(LabelSet(x="x", y="y", text="label", source=named, text_font_size="12px", x_offset=8, y_offset=-7))
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
