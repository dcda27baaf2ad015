"""The page of a report: one HTML document with scripts, styles and data inside."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence
from typing import Any

from ...hw.config import Config
from ...hw.fields import parameters
from ...hw.needs import need
from . import plots

_STYLE = """
body{font:15px/1.45 system-ui,sans-serif;color:#222;margin:0 auto;padding:20px 28px;max-width:1360px}
h1{font-size:25px;margin:0 0 2px}h2{font-size:18px;margin:34px 0 6px;border-bottom:1px solid #ddd;padding-bottom:3px}
p{margin:5px 0 9px;max-width:1000px}.note{color:#555;font-size:13.5px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(155px,1fr));gap:10px;margin:16px 0}
.tile{border:1px solid #d5d5d5;border-radius:7px;padding:9px 13px}
.tile b{display:block;font-size:21px;font-weight:600}.tile small{color:#555;font-size:13px}
table.plain{border-collapse:collapse;font-size:13.5px;margin:4px 0 10px}
table.plain th{text-align:left;background:#f3f3f3;font-weight:600}
table.plain th,table.plain td{border:1px solid #ddd;padding:3px 9px;vertical-align:top}
td.number{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
.good{color:#1a7f37}.bad{color:#b3261e;font-weight:600}.wide{overflow-x:auto}
details>summary{cursor:pointer;margin:6px 0}nav a{margin-right:14px}
""".strip()
_HEADINGS = {
    "headroom": "spare bits of accumulators",
    "us": "us in this run",
    "alone us": "us predicted",
    "runner-up": "second best",
    "runner-up us": "us predicted there",
    "why others refuse": "why others cannot",
}  # of what `assign` says
_CYCLES = (
    "Every cycle belongs to one operator, so the cycles add up to those of all launches; row launch is what belongs to "
    "none, as the beginning and the end. A load that runs beside the operator before costs no cycles. Waits are cycles "
    "of all units, which wait at the same time: they do not add up to the cycles."
)
_LEGEND = (
    "Wheel: zoom; drag: move. Bars are instructions in the colours of the table; below each unit stands what the head "
    "of its queue waits for: red a token, grey the unit itself. Arrows are tokens, red where they were waited for; "
    "they appear once at most 250 are in view."
)
_LIMITS = (
    "Lines: what the array multiplies, and the ports move, at most. The time of a point is that of the operator's own "
    "cycles, or of its busiest unit where that is more: a load beside the operator before takes no cycles of its own, "
    "but keeps the port busy."
)
_MOST_CHANGES = 40  # operators in the table of differences


def page(data: dict[str, Any]) -> str:
    """The document of the report `data`. Raises `UnsupportedError` without Bokeh."""
    need("the page of a report", "report", "bokeh")
    from bokeh.embed import components
    from bokeh.resources import Resources

    moving = _moving(data)
    script, places = components(moving)
    resources = Resources(mode="inline", components=["bokeh", "bokeh-widgets", "bokeh-tables"])
    sections = [
        ("summary", "Summary", _summary(data)),
        ("difference", "Differences from an earlier report", _difference(data["difference"])),
        ("placement", "Placement", _placement(data["placement"])),
        ("operators", "Operators", _operators(data, places)),
        ("slow", "What makes it slow", _warnings(data)),
        ("timeline", "Timeline", _timeline(data, places)),
        ("memory", "Memory", _memory(data, places)),
        ("roofline", "Limits of the machine", note(_LIMITS) + places["roofline"] if "roofline" in places else ""),
        ("exactness", "Exactness", _exactness(data)),
        ("metrics", "Metrics", _metrics(data)),
        ("configuration", "Configuration", _configuration(data)),
    ]
    title = f"{data['program']} on {data['config']['name']}"
    return document(title, _ran(data), _tiles(data), sections, data, resources.render_js(), script)


def document(
    title: str,
    subtitle: str,
    figures: str,
    sections: Iterable[tuple[str, str, str]],
    data: dict[str, Any],
    head: str = "",
    end: str = "",
) -> str:
    """An HTML document: `figures`, then the sections (key, heading, HTML) that are not empty, with `data` inside.

    `head` and `end` are HTML, as scripts.
    """
    sections = [section for section in sections if section[2]]
    links = "".join(f'<a href="#{key}">{_text(name)}</a>' for key, name, _ in sections)
    body = "".join(f'<section id="{key}"><h2>{_text(name)}</h2>{text}</section>' for key, name, text in sections)
    inside = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{_text(title)}</title>'
        f'<link rel="icon" href="data:,">'  # or a browser asks the server for one
        f"<style>{_STYLE}</style>{head}</head><body><h1>{_text(title)}</h1>"
        f"<p class=note>{_text(subtitle)}</p>{figures}<nav>{links}</nav>{body}"
        f'<script type="application/json" id="report">{inside}</script>{end}</body></html>'
    )


def _moving(data: dict[str, Any]) -> dict[str, Any]:
    """Bokeh's models by the name of their place."""
    from bokeh.models import Range1d

    timeline, rows, found = data["timeline"], data["operators"], {}
    total = max(timeline["cycles"], 1) if timeline else 1
    view = Range1d(start=0, end=total, bounds=(0, total))
    found["operators"] = plots.operator_table(rows, timeline, view if timeline else None)
    if timeline:
        found["timeline"] = plots.timeline_plot(timeline, rows, view)
        found["busy"] = plots.busy_plot(timeline, view)
        found["levels"] = plots.level_plot(timeline, view)
        found["buffers"] = plots.buffer_plot(data["buffers"])
    for k, arena in enumerate(arena for arena in data["arenas"] if arena["buffers"]):
        found[f"arena{k}"] = plots.arena_plot(arena, rows)
    if data["roofline"] and data["roofline"]["points"]:
        found["roofline"] = plots.roofline_plot(data["roofline"], rows)
    return found


def _text(value: object) -> str:
    return html.escape(str(value))


def shown(value: object) -> str:
    """A value as a reader wants it: separators, three digits or so behind the point of small numbers."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:,.3g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def html_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table whose numbers are aligned right; cells are escaped."""
    head = "".join(f"<th>{_text(name)}</th>" for name in header)
    lines = []
    for row in rows:
        kinds = [isinstance(cell, (int, float)) and not isinstance(cell, bool) for cell in row]
        cells = [f"<td{' class=number' * number}>{_text(shown(cell))}</td>" for cell, number in zip(row, kinds)]
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f"<div class=wide><table class=plain><tr>{head}</tr>{''.join(lines)}</table></div>"


def note(text: str) -> str:
    """A paragraph in small letters; `text` is escaped."""
    return f"<p class=note>{_text(text)}</p>"


def _ran(data: dict[str, Any]) -> str:
    where = f"Run on device {data['device']} with {data['inputs']}"
    if data["source_of_cycles"]:
        where += f"; cycles: {data['source_of_cycles']}; times if the circuit closes at {data['clock_mhz']:g} MHz"
    if data["dram"]:
        where += f", memory {data['dram']['name']}"
    return f"{where}. From {data['model']}, tilewright {data['tilewright']}."


def _tiles(data: dict[str, Any]) -> str:
    figures = {one["key"]: one for one in data["summary"]}
    found = []
    for key in ("cycles", "device_us", "host_us", "macs_per_cycle", "array_share", "gemm_use"):
        if key in figures:
            one = figures[key]
            unit = "" if one["unit"] == key else one["unit"]
            found.append((one["name"], f"{shown(one['value'])} {unit}", one["source"]))
    equal = {True: "yes", False: "NO", None: "not compared"}[data["exactness"]["equal"]]
    return tiles([*found, ("Results exact", equal, data["exactness"].get("reference") or "")])


def tiles(figures: Iterable[tuple[str, str, str]]) -> str:
    """Figures side by side: what each is, its value, and where it comes from."""
    cells = (
        f"<div class=tile><small>{_text(a)}</small><b>{_text(b)}</b><small>{_text(c)}</small></div>"
        for a, b, c in figures
    )
    return f"<div class=tiles>{''.join(cells)}</div>"


def _summary(data: dict[str, Any]) -> str:
    rows = [(one["name"], one["value"], one["unit"], one["source"]) for one in data["summary"]]
    text = html_table(("figure", "value", "unit", "where the number comes from"), rows)
    if not data["source_of_cycles"]:
        text = note(f"Device {data['device']} counts no cycles; --on timing or rtl does.") + text
    return text


def _placement(placement: dict[str, Any]) -> str:
    rows = placement["rows"]
    if not rows:
        return ""
    table = html_table([_HEADINGS.get(name) or name for name in rows[0]], [list(row.values()) for row in rows])
    count = "1 operator" if len(rows) == 1 else f"{len(rows):,} operators"
    advice = note(placement["remedy"]) if placement.get("remedy") else ""  # reports of earlier versions have none
    apart = placement.get("breaks")
    between = html_table([*apart[0]], [[*row.values()] for row in apart]) if apart else ""
    return f"{note(placement['why'])}{advice}{between}<details open><summary>{count}</summary>{table}</details>"


def _operators(data: dict[str, Any], places: dict[str, str]) -> str:
    zooms = ", a row to zoom the timeline to it" if data["timeline"] else ""
    text = [f"Click a heading to sort{zooms}."]
    if any("cycles" in row for row in data["operators"]):
        text.append(_CYCLES)
    if any(row.get("us") for row in data["operators"] if row["where"] == "host"):
        text.append("The host's times are modelled.")
    text.append("MACs: multiply-accumulates. us: microseconds.")
    if floats := data["float32_on_host"]:
        text.append(f"In float32 on the host: {', '.join(floats)}.")
    return note(" ".join(text)) + places["operators"]


def _warnings(data: dict[str, Any]) -> str:
    found = [(w["operator"], w["cycles"], w["text"]) for one in data["launches"] for w in one["warnings"]]
    if found:
        told = note("The bound of the summary and these add up to the cycles of the timing model.")
        return told + html_table(("operator / statement", "cycles", "what happens, and what to do"), found)
    return ""


def _timeline(data: dict[str, Any], places: dict[str, str]) -> str:
    timeline = data["timeline"]
    if not timeline:
        return note(f"Device {data['device']} has no cycles of instructions; --on timing or rtl has.")
    left, text = timeline["left_out"], [_LEGEND]
    if len(data["launches"]) > 1:
        text.append(
            f"The {len(data['launches'])} launches stand one behind the other, without the host's time between."
        )
    if left["joined_gap"] is not None:
        text.append(
            f"{left['bars']:,} bars are too many for a page: those of one operator and kind are joined where at most "
            f"{left['joined_gap']:,} cycles are between them."
        )
    if left["tokens"]:
        text.append(f"{left['tokens']:,} tokens are left out, those that were waited for least.")
    if left["texts"]:
        text.append("Texts of instructions are left out; `tilewright disasm` prints them by their numbers.")
    bins = len(timeline["busy"]["edges"]) - 1
    share = f"Part of the cycles in which the unit executes, in {bins} pieces of the run."
    level = "The most instructions in each queue, where that is seen, and the most tokens in each channel."
    drawn = note(" ".join(text)) + places["timeline"] + note(share) + places["busy"]
    return drawn + note(f"{level} A full strip is the most of this run, which stands beside it.") + places["levels"]


def _metrics(data: dict[str, Any]) -> str:
    rows = []
    for name, one in data["metrics"].items():
        value = one["value"]
        if isinstance(value, dict):
            value = ", ".join(f"{part}: {count:,}" for part, count in value.items())
        rows.append((name, value, one["unit"], one["doc"]))
    table = html_table(("metric", "value", "unit", "what it counts"), rows)
    return f"<details><summary>{len(rows):,} metrics of all launches</summary>{table}</details>" if rows else ""


def _memory(data: dict[str, Any], places: dict[str, str]) -> str:
    text = ""
    drawn = [arena for arena in data["arenas"] if arena["buffers"]]
    for k, arena in enumerate(drawn):
        over = f"{arena['bytes']:,} bytes; no plan needs fewer than {arena['bound']:,}."
        text += note(f"Arena of the activations of {arena['launch']}: {over}") + places[f"arena{k}"]
    if "buffers" in places:
        text += note("All buffers in DRAM, one behind the other, over the cycles from first to last access.")
        text += places["buffers"]
    rows = sorted(data["buffers"], key=lambda row: -row["bytes"])
    table = html_table(("buffer", "kind", "bytes"), [(row["name"], row["kind"], row["bytes"]) for row in rows])
    text += f"<details><summary>{len(rows):,} buffers</summary>{table}</details>"
    used = [
        (one["launch"], name, held["entries"], held["depth"], f"{100 * held['entries'] / held['depth']:.0f} %")
        for one in data["launches"]
        for name, held in one["occupancy"].items()
    ]
    head = ("launch", "scratchpad", "entries used", "of", "share")
    return text + (
        note("Scratchpads: entries that some instruction accesses.") + html_table(head, used) if used else ""
    )


def _exactness(data: dict[str, Any]) -> str:
    found = data["exactness"]
    name = {True: "good", False: "bad", None: ""}[found["equal"]]
    return f'<p class="{name}">{_text(found["text"])}.</p>'


def _configuration(data: dict[str, Any]) -> str:
    known = parameters(Config)
    rows = [(key, value, known[key].meaning if key in known else "") for key, value in data["config"].items()]
    rounding = f"Rounding contract: {data['contract']}. " if data["contract"] else ""
    text = note(f"{rounding}Fingerprint {data['fingerprint']}. Fields that are not named have their defaults.")
    text += html_table(("field", "value", "meaning"), rows)
    if data["dram"]:
        rows = [(key, value) for key, value in data["dram"].items() if value is not None]
        text += note("The memory that the device simulates, in cycles and bytes per cycle:") + html_table(
            ("field", "value"), rows
        )
    return text


def _difference(found: dict[str, Any] | None) -> str:
    if found is None:
        return ""
    text = f"<p>A: {_text(found['before'])} ({_text(found['source'])}). B: {_text(found['now'])}, this report.</p>"
    rows = [(one["name"], one["before"], one["now"], one["unit"], _change(one)) for one in found["summary"]]
    text += html_table(("figure", "A", "B", "unit", "change"), rows)
    if changed := found["operators"]:
        some = [(one["operator"], one["before"], one["now"], _change(one)) for one in changed[:_MOST_CHANGES]]
        text += note("Operators whose cycles differ, the largest change first; empty where one report lacks it.")
        text += html_table(("operator", "cycles A", "cycles B", "change"), some)
        if left := len(changed) - len(some):
            text += note(f"{left:,} more changed by less.")
    else:
        text += note("No operator's cycles differ.")
    if found["config"]:
        rows = [(one["field"], one["before"], one["now"]) for one in found["config"]]
        text += note("Fields that differ; empty: the default.") + html_table(("field", "A", "B"), rows)
    return text


def _change(one: dict[str, Any]) -> str:
    before, now = one["before"], one["now"]
    if before is None or now is None or before == now:
        return ""
    return f"{100 * (now / before - 1):+.1f} %" if before else "from 0"
