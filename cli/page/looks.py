"""What the parts of the page have in common: colours, names that fit, empty plots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bokeh.models import ColumnDataSource, NumeralTickFormatter
from bokeh.palettes import Category20
from bokeh.plotting import figure

NO_COLOUR = "#bdbdbd"
_PALETTE = [*Category20[20][::2], *Category20[20][1::2]]
_LEFT = 115  # pixels


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
    """A plot as wide as the page; `options` are those of Bokeh's `figure`."""
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
