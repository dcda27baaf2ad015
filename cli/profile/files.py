"""`--profile`: the metrics of a run into files, by their suffixes, or as a table on standard output."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...hw.errors import UnsupportedError
from .. import report
from ..options import TIMED
from ..programs import check_output
from .timeline import write_timeline
from .values import declared, profile, rows, table_rows

if TYPE_CHECKING:
    from ...hw.config import Config
    from ...runtime.executable import Executable
    from ...runtime.loader import StepReport
    from ...runtime.metrics.values import Value

TABLE = "-"
TRACE = ".trace"
SUFFIXES = (".json", ".csv", TRACE)
_COLUMNS = ("launch", "metric", "kind", "unit", "bin", "value")

profile_option = click.option(
    "--profile",
    "profiles",
    multiple=True,
    metavar="FILE",
    help="Write the metrics of the last input's run to FILE.json or .csv, a timeline with levels to .trace, for "
    "ui.perfetto.dev; '-': print a table. May be given several times.",
)


def check_profiles(paths: Sequence[str], device: str, sources: Mapping[str, str | None]) -> None:
    """Raise `FileError` for a path that cannot be written or has another suffix, `UnsupportedError` for a timeline of
    a `device` that has none; called before the run.
    """
    for path in paths:
        if path == TABLE:
            continue
        check_output(path, SUFFIXES, dict(sources))
        if path.endswith(TRACE) and device not in TIMED:
            raise UnsupportedError(
                f"--profile {path}: device {device!r} has no cycles of instructions; use timing or rtl, or .json"
            )


def write_profiles(
    paths: Sequence[str],
    executable: Executable,
    reports: Sequence[StepReport],
    about: Mapping[str, Any],
    layers: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Write what `paths` name; gives what the verb's result has of it: their names, and the metrics of a table.

    `about` says what ran, and is part of the JSON file, as `layers` is: the rows of steps and operators.
    """
    if not paths:
        return {}
    found, cfg = profile(executable, reports), executable.cfg
    for path in paths:
        if path.endswith(TRACE):
            write_timeline(path, executable, reports, str(about["device"]))
        elif path.endswith(".csv"):
            _write_csv(path, executable, found)
        elif path != TABLE:
            meanings = declared(cfg, list(found["metrics"]))
            text = json.dumps({**about, **found, "declared": meanings, "layers": layers}, indent=1)
            _write(path, text + "\n")
    files = {"profile": [path for path in paths if path != TABLE]}
    return files | ({"metrics": found["metrics"]} if TABLE in paths else {})


def print_metrics(cfg: Config, values: Mapping[str, Value]) -> None:
    """Print a table of `values`."""
    report.table(["metric", "value", "unit", "meaning"], table_rows(cfg, values))


def _write_csv(path: str, executable: Executable, found: Mapping[str, Any]) -> None:
    """A row per value, first of the whole run, for which `launch` is empty."""
    from ...runtime.files import atomic_write

    every = [("", found["metrics"]), *((each["launch"], each["metrics"]) for each in found["launches"])]
    with atomic_write(path) as temporary, temporary.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(_COLUMNS)
        for launch, values in every:
            writer.writerows((launch, *row) for row in rows(executable.cfg, values))


def _write(path: str, text: str) -> None:
    from ...runtime.files import atomic_write

    with atomic_write(path) as temporary:
        Path(temporary).write_text(text)
