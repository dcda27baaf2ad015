"""Memory over time, and operators against the limits of the machine, in Bokeh."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bokeh.models import HoverTool, LabelSet, NumeralTickFormatter

from ..layers import short_name
from .looks import NO_COLOUR, colours, columns, cycles_axis, empty_plot, short

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
