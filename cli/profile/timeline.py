"""The timeline of a run's launches, one behind the other, with the levels of queues and token channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...hw.errors import UnsupportedError
from ..layers import ran

if TYPE_CHECKING:
    from ...runtime.executable import Executable
    from ...runtime.loader import StepReport


def write_timeline(path: str, executable: Executable, reports: Sequence[StepReport], device: str) -> None:
    """Write `path` for ui.perfetto.dev. Raises `UnsupportedError` where a launch has no cycles of instructions."""
    from dataclasses import replace

    from ...runtime.executable import LaunchStep
    from ...sim.trace import levels_of, of_launch, write_chrome

    events, levels, now = [], [], 0
    for step, done in ran(executable, reports):
        if not isinstance(step, LaunchStep):
            continue
        if done.stats.timeline is None:
            raise UnsupportedError(f"{path}: device {device!r} has no cycles of instructions; use timing or rtl")
        timeline = done.stats.timeline()
        events += [
            replace(event, start=event.start + now, end=event.end + now) for event in of_launch(timeline, step.launch)
        ]
        levels += [replace(level, cycle=level.cycle + now) for level in levels_of(timeline, step.launch)]
        now += done.stats.cycles or 0
    write_chrome(path, events, executable.name, levels)
