"""The timeline of launches, one behind the other, with the levels of queues and token channels."""

from __future__ import annotations

from collections.abc import Sequence

from ...hw.errors import UnsupportedError
from .values import LaunchRun


def write_timeline(path: str, runs: Sequence[LaunchRun], title: str, device: str) -> None:
    """Write `path` for ui.perfetto.dev. Raises `UnsupportedError` where a launch has no cycles of instructions."""
    from dataclasses import replace

    from ...sim.trace import levels_of, of_launch, write_chrome

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
