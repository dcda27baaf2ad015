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
from .values import LaunchRun, configs_of, declared, launches_of, profile, rows, table_rows

if TYPE_CHECKING:
    from ...runtime.device import Stats
    from ...runtime.executable import Executable
    from ...runtime.launch import Launch
    from ...runtime.loader import StepReport

TABLE = "-"
TRACE = ".trace"
SUFFIXES = (".json", ".csv", TRACE)
TO_PERFETTO = "; open it in ui.perfetto.dev"
_COLUMNS = ("launch", "metric", "kind", "unit", "bin", "value")

profile_option = click.option(
    "--profile",
    "profiles",
    multiple=True,
    metavar="FILE",
    help="Write the metrics of the last run, of several programs those of each, to FILE.json or .csv, a timeline with "
    "levels to .trace, for ui.perfetto.dev; '-': print a table. May be given several times.",
)


class Profile:
    """What `--profile` asks for: a verb adds the launches that its run had, writes, and says what it wrote.

    `paths` are the option's values, `sources` the other files of the command line by their options, `device` what runs.
    Raises `FileError` for a path that cannot be written or has another suffix, `UnsupportedError` for a timeline of a
    device that has none: before the run.
    """

    def __init__(self, paths: Sequence[str], device: str, sources: Mapping[str, str | None]):
        self.paths, self.device = paths, device
        self._runs: list[LaunchRun] = []
        for path in paths:
            if path == TABLE:
                continue
            check_output(path, SUFFIXES, dict(sources))
            if path.endswith(TRACE) and device not in TIMED:
                raise UnsupportedError(
                    f"--profile {path}: device {device!r} has no cycles of instructions; use timing or rtl, or .json"
                )

    def add(self, name: str, launch: Launch, stats: Stats) -> None:
        """A launch that ran."""
        if self.paths:
            self._runs.append(LaunchRun(name, launch, stats))

    def add_run(self, executable: Executable, reports: Sequence[StepReport], name: str = "") -> None:
        """The launches of a run of `executable`, whose names begin with `name` where it is given."""
        for run in launches_of(executable, reports):
            self.add(f"{name}: {run.name}" if name else run.name, run.launch, run.stats)

    def write_run(
        self, executable: Executable, reports: Sequence[StepReport], about: Mapping[str, Any]
    ) -> dict[str, Any]:
        """`write`, of one run of `executable` alone."""
        self.add_run(executable, reports)
        return self.write(executable.name, about)

    def write(self, title: str, about: Mapping[str, Any]) -> dict[str, Any]:
        """Write the files; gives what the verb's result has of it: their names, and the metrics of a table.

        `about` says what ran, and is part of the JSON file; `title` is the timeline's.
        """
        if not self.paths:
            return {}
        found, configs = profile(self._runs), configs_of(self._runs)
        for path in self.paths:
            if path.endswith(TRACE):
                write_timeline(path, self._runs, title, self.device)
            elif path.endswith(".csv"):
                self._write_csv(path, found)
            elif path != TABLE:
                meanings = declared(configs, list(found["metrics"]))
                _write(path, json.dumps({**about, **found, "declared": meanings}, indent=1) + "\n")
        files = {"profile": [path for path in self.paths if path != TABLE]}
        return files | ({"metrics": found["metrics"]} if TABLE in self.paths else {})

    def say(self, result: Mapping[str, Any]) -> None:
        """Print what `write` gave: the table, and the files that were written."""
        if "metrics" in result:
            cells = table_rows(configs_of(self._runs), result["metrics"])
            report.table(["metric", "value", "unit", "meaning"], cells)
        for path in result.get("profile", ()):
            report.say(f"profile written to {path}{TO_PERFETTO if path.endswith(TRACE) else ''}")

    def _write_csv(self, path: str, found: Mapping[str, Any]) -> None:
        """A row per value, first of the whole run, for which `launch` is empty."""
        from ...runtime.files import atomic_write

        every = [("", found["metrics"]), *((each["launch"], each["metrics"]) for each in found["launches"])]
        with atomic_write(path) as temporary, temporary.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(_COLUMNS)
            for launch, values in every:
                writer.writerows((launch, *row) for row in rows(configs_of(self._runs), values))


def _write(path: str, text: str) -> None:
    from ...runtime.files import atomic_write

    with atomic_write(path) as temporary:
        Path(temporary).write_text(text)
