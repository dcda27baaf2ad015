"""An earlier report's JSON: reading it, and what changed since."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from ...hw.errors import FileError, printable
from ...hw.foreign import read_json
from ...runtime.schema import Anything, Flag, Int, Kind, ListOf, MapOf, OneOf, Optional, Real, Text

VERSION = 1  # of the data's form
_WANTED = "what `tilewright report --json` printed"
_ADVICE = f"; give {_WANTED}"
_MOST_BYTES = 1 << 23
_NUMBER = Real(-1e18, 1e18)
_COUNT = Int(0, 1 << 62)
_OBJECTS = ListOf(MapOf(Anything()))
# what a report has, by key; of lists of objects, what each object has
FIELDS: dict[str, Kind] = {
    "report": OneOf((VERSION,)),
    "tilewright": Text(),
    "program": Text(),
    "model": Text(),
    "device": Text(),
    "source_of_cycles": Optional(Text()),
    "config": MapOf(Anything()),
    "fingerprint": Text(),
    "contract": Optional(Text()),
    "dram": Optional(MapOf(Anything())),
    "clock_mhz": Real(0, 1e6),
    "inputs": Text(),
    "summary": _OBJECTS,
    "placement": MapOf(Anything()),
    "operators": _OBJECTS,
    "float32_on_host": ListOf(Text()),
    "launches": _OBJECTS,
    "timeline": Optional(MapOf(Anything())),
    "arenas": _OBJECTS,
    "buffers": _OBJECTS,
    "roofline": Optional(MapOf(Anything())),
    "exactness": MapOf(Anything()),
    "metrics": MapOf(MapOf(Anything())),
    "difference": Optional(MapOf(Anything())),
}
OBJECTS: dict[str, dict[str, Kind]] = {
    "summary": {"key": Text(), "name": Text(), "value": _NUMBER, "unit": Text(), "source": Text()},
    "operators": {"operator": Text(), "kind": Text(), "where": OneOf(("device", "host")), "macs": _COUNT},
    "launches": {"launch": Text(), "cycles": Optional(_COUNT), "counters": MapOf(_COUNT), "warnings": _OBJECTS},
    "buffers": {"name": Text(), "kind": Text(), "bytes": _COUNT, "address": _COUNT},
    "arenas": {"launch": Text(), "bytes": _COUNT, "bound": _COUNT, "buffers": _OBJECTS},
}
_VALUES = {"operators": {"cycles": _COUNT, "share": Real(0, 1), "gemm_use": Real(0, 1), "us": Optional(_NUMBER)}}
_EXACT = {"equal": Optional(Flag()), "text": Text()}


def check(data: object, where: str) -> dict[str, Any]:
    """`data`, a report's, of the file `where`. Raises `FileError`, naming the first value that a report cannot have.

    Of a report of another release it names the release, too.
    """
    if not isinstance(data, dict) or "report" not in data:
        raise FileError(f"{where}: is no report{_ADVICE}")
    try:
        return _checked(data, where)
    except FileError as exc:
        made, now = data.get("tilewright"), metadata.version("tilewright")
        if made == now or not isinstance(made, str):
            raise
        raise FileError(
            f"{str(exc).removesuffix(_ADVICE)}; the report is of tilewright {printable(made[:40])}, this is {now}: "
            "make it again with this release, by `tilewright report --json`"
        ) from None


def _checked(data: dict[str, Any], where: str) -> dict[str, Any]:
    _has(data, FIELDS, where)
    for key, fields in OBJECTS.items():
        for k, one in enumerate(data[key]):
            _has(one, fields, f"{where}: {key}[{k}]")
            _has(
                one, {name: kind for name, kind in _VALUES.get(key, {}).items() if name in one}, f"{where}: {key}[{k}]"
            )
    _has(data["exactness"], _EXACT, f"{where}: exactness")
    return data


def _has(data: Mapping[str, Any], fields: Mapping[str, Kind], where: str) -> None:
    for key, kind in fields.items():
        if key not in data:
            raise FileError(f"{where}: lacks {key!r}{_ADVICE}")
        if not kind.allows(data[key]):
            shown = repr(data[key])
            raise FileError(f"{where}: {key} is {shown[:60]}{'...' * (len(shown) > 60)}, must be {kind}")


def read(path: str | Path) -> dict[str, Any]:
    """The data of an earlier report. Raises `FileError` where the file is none."""
    return check(read_json(path, _WANTED, _MOST_BYTES), str(path))


def between(before: Mapping[str, Any], now: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Changes from the report `before`, of the file `source`, to `now`: figures, operators, configuration."""
    figures = {one["key"]: one for one in before["summary"]}
    summary = [
        {"name": one["name"], "unit": one["unit"], "before": figures[one["key"]]["value"], "now": one["value"]}
        for one in now["summary"]
        if one["key"] in figures
    ]
    return {
        "source": Path(source).name,
        "before": _name(before),
        "now": _name(now),
        "summary": summary,
        "operators": _operators(before["operators"], now["operators"]),
        "config": _fields(before["config"], now["config"])
        + _fields(before["dram"] or {}, now["dram"] or {}, "memory: "),
    }


def _name(data: Mapping[str, Any]) -> str:
    return f"{data['program']} on {data['config'].get('name', '?')}, {data['device']}"


def _operators(before: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Operators whose cycles differ, the largest change first; None where one of the two reports lacks it."""
    old, new = _cycles(before), _cycles(now)
    found = [{"operator": name, "before": old.get(name), "now": new.get(name)} for name in dict.fromkeys([*new, *old])]
    changed = [pair for pair in found if pair["before"] != pair["now"]]
    return sorted(changed, key=lambda pair: -abs((pair["now"] or 0) - (pair["before"] or 0)))


def _cycles(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Cycles by operator, summed over launches that have an operator of that name."""
    found: dict[str, int] = {}
    for row in rows:
        if "cycles" in row:
            found[row["operator"]] = found.get(row["operator"], 0) + row["cycles"]
    return found


def _fields(before: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> list[dict[str, Any]]:
    """Fields that differ; one that a report lacks has its default, and is None here."""
    names = dict.fromkeys([*before, *now])
    return [
        {"field": prefix + name, "before": before.get(name), "now": now.get(name)}
        for name in names
        if before.get(name) != now.get(name)
    ]
