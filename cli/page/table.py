"""The table of operators, in Bokeh: sortable, and linked with the timeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from bokeh.models import CustomJS, DataTable, HTMLTemplateFormatter, Range1d, TableColumn

from .looks import colours, columns
from .timeline import WAITS

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
