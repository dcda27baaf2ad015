"""cli/page/table.py: columns that say something, numbers that sort, where operators lie in time."""

import math
from typing import Any

import pytest

pytest.importorskip("bokeh")

from bokeh.models import Range1d

from tilewright.cli.page.table import operator_table, spans


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
