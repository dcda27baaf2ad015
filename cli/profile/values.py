"""The metrics of a run: of all its launches as one, and of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..layers import ran

if TYPE_CHECKING:
    from ...hw.config import Config
    from ...runtime.device import Stats
    from ...runtime.executable import Executable
    from ...runtime.launch import Launch
    from ...runtime.loader import StepReport
    from ...runtime.metrics import Value


class LaunchRun(NamedTuple):
    """A launch that ran under the name `name`, and what was counted of it."""

    name: str
    launch: Launch
    stats: Stats


def launches_of(executable: Executable, reports: Sequence[StepReport]) -> list[LaunchRun]:
    """The launches of a run of `executable`, in their order; host steps are left out."""
    from ...runtime.executable import LaunchStep

    return [
        LaunchRun(done.name, step.launch, done.stats)
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
    from ...runtime.metrics import combined, of_launch

    found = [{"launch": run.name, "metrics": of_launch(run.launch, run.stats)} for run in runs]
    return {"metrics": combined(configs_of(runs), [each["metrics"] for each in found]), "launches": found}


def declared(configs: Sequence[Config], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What the metrics `names` of `configs` mean."""
    from ...hw.metrics import metrics

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
