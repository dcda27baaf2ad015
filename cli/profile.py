"""`--profile`: the metrics of a run as a table, JSON, CSV, or a timeline with the levels of queues and channels."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import click

from ..hw.config import Config
from ..hw.errors import UnsupportedError
from ..hw.metrics import metrics
from ..runtime.device import Stats
from ..runtime.executable import Executable, LaunchStep
from ..runtime.files import atomic_write
from ..runtime.launch import Launch
from ..runtime.loader import StepReport
from ..runtime.metrics import Value, combined
from ..runtime.metrics import of_launch as metrics_of
from ..sim.trace import levels_of, of_launch, write_chrome
from . import report
from .layers import ran
from .options import TIMED
from .programs import check_output


class LaunchRun(NamedTuple):
    """A launch that ran under the name `name`, and what was counted of it."""

    name: str
    launch: Launch
    stats: Stats


def launches_of(executable: Executable, reports: Sequence[StepReport]) -> list[LaunchRun]:
    """The launches of a run of `executable`, in their order; host steps are left out."""
    return [
        LaunchRun(done.name, step.which(done.steady), done.stats)
        for step, done in ran(executable, reports)
        if isinstance(step, LaunchStep)
    ]


def configs_of(runs: Sequence[LaunchRun]) -> list[Config]:
    """The configurations of launches, each once."""
    return list(dict.fromkeys(run.launch.cfg for run in runs))


def profile(runs: Sequence[LaunchRun]) -> dict[str, Any]:
    """`metrics`, by name as hw/metrics.py declares them, of all launches as one, and of each one in `launches`.

    No launch has no metrics.
    """
    found = [{"launch": run.name, "metrics": metrics_of(run.launch, run.stats)} for run in runs]
    return {"metrics": combined(configs_of(runs), [each["metrics"] for each in found]), "launches": found}


def declared(configs: Sequence[Config], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Descriptions of the metrics `names` for `configs`."""
    every = metrics(*configs)
    return {
        name: {"kind": every[name].kind.value, "unit": every[name].unit, "doc": every[name].doc, "by": every[name].by}
        for name in names
    }


def rows(configs: Sequence[Config], values: Mapping[str, Value]) -> Iterator[tuple[str, str, str, str, int | float]]:
    """(metric, kind, unit, bin, value) of each value; of a histogram one per bin, of others the bin is empty."""
    for name, meaning in declared(configs, list(values)).items():
        value = values[name]
        for one, count in value.items() if isinstance(value, dict) else [("", value)]:
            yield name, meaning["kind"], meaning["unit"], one, count


def table_rows(configs: Sequence[Config], values: Mapping[str, Value]) -> list[list[object]]:
    """(metric, value, unit, meaning) of each value, a histogram in one line."""
    found: list[list[object]] = []
    for name, meaning in declared(configs, list(values)).items():
        value = values[name]
        if isinstance(value, dict):
            shown: object = ", ".join(f"{one}: {count:,}" for one, count in value.items())
        else:
            shown = f"{value:,}" if isinstance(value, int) else f"{value:.4f}"
        found.append([name, shown, meaning["unit"], meaning["doc"]])
    return found


def write_timeline(path: str, runs: Sequence[LaunchRun], title: str, device: str) -> None:
    """Write `path` for ui.perfetto.dev. Raises `UnsupportedError` where a launch has no cycles of instructions."""
    events, levels, now = [], [], 0
    for run in runs:
        if run.stats.timeline is None:
            raise UnsupportedError(f"{path}: device {device!r} has no cycles of instructions; use timing or rtl")
        timeline = run.stats.timeline()
        events += [
            replace(event, start=event.start + now, end=event.end + now) for event in of_launch(timeline, run.launch)
        ]
        levels += [replace(level, cycle=level.cycle + now) for level in levels_of(timeline, run.launch)]
        now += run.stats.cycles or 0
    write_chrome(path, events, title, levels)


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
    """The files of `--profile`. A verb adds the launches of its run, writes the files, and prints their names.

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
        """Write the files. Returns entries for the verb's result: names, and metrics where a table is asked for.

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
                with atomic_write(path) as temporary:
                    temporary.write_text(json.dumps({**about, **found, "declared": meanings}, indent=1) + "\n")
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
        every = [("", found["metrics"]), *((each["launch"], each["metrics"]) for each in found["launches"])]
        with atomic_write(path) as temporary, temporary.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(_COLUMNS)
            for launch, values in every:
                writer.writerows((launch, *row) for row in rows(configs_of(self._runs), values))
