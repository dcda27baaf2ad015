"""The metrics of a run: of all its launches as one, and of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..layers import ran

if TYPE_CHECKING:
    from ...hw.config import Config
    from ...runtime.executable import Executable
    from ...runtime.loader import StepReport
    from ...runtime.metrics.values import Value


def profile(executable: Executable, reports: Sequence[StepReport]) -> dict[str, Any]:
    """`metrics`, by name as hw/metrics.py declares them, of all launches of a run, and of each one in `launches`.

    A program without launches has none.
    """
    from ...runtime.executable import LaunchStep
    from ...runtime.metrics.values import combined, of_launch

    found = [
        {"launch": done.name, "metrics": of_launch(step.launch, done.stats)}
        for step, done in ran(executable, reports)
        if isinstance(step, LaunchStep)
    ]
    return {"metrics": combined(executable.cfg, [each["metrics"] for each in found]), "launches": found}


def declared(cfg: Config, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What the metrics `names` mean."""
    from ...hw.metrics import metrics

    every = metrics(cfg)
    return {
        name: {"kind": every[name].kind.value, "unit": every[name].unit, "doc": every[name].doc, "by": every[name].by}
        for name in names
    }


def rows(cfg: Config, values: Mapping[str, Value]) -> Iterator[tuple[str, str, str, str, int | float]]:
    """(metric, kind, unit, bin, value) of each value; of a histogram one per bin, of others the bin is empty."""
    for name, meaning in declared(cfg, list(values)).items():
        value = values[name]
        for one, count in value.items() if isinstance(value, dict) else [("", value)]:
            yield name, meaning["kind"], meaning["unit"], one, count


def table_rows(cfg: Config, values: Mapping[str, Value]) -> list[list[object]]:
    """(metric, value, unit, meaning) of each value, a histogram in one line."""
    found: list[list[object]] = []
    for name, meaning in declared(cfg, list(values)).items():
        value = values[name]
        if isinstance(value, dict):
            shown: object = ", ".join(f"{one}: {count:,}" for one, count in value.items())
        else:
            shown = f"{value:,}" if isinstance(value, int) else f"{value:.4f}"
        found.append([name, shown, meaning["unit"], meaning["doc"]])
    return found
