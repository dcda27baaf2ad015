"""Timelines: one event format for the timing model and the circuit, and files for Chrome and Perfetto."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..hw.config import Config
from ..hw.isa import Isa
from ..hw.units import units
from ..runtime.device import Timeline
from ..runtime.files import atomic_write
from ..runtime.launch import Launch
from ..runtime.metrics import queue_levels, token_levels

if TYPE_CHECKING:
    from .rtl.watch import Trace
    from .timing.engine import Timing

# why the head of a queue waits -> text on the track of waits
_REASONS = {
    "token_prev": "token of the queue before",
    "token_next": "token of the queue behind",
    "token": "token",
    "unit": "unit",
}


@dataclass(frozen=True)
class Event:
    """An event on `track` from cycle `start` to before cycle `end`; `args` are shown with it."""

    track: str
    name: str
    start: int
    end: int
    args: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class LevelChange:
    """After `cycle` the level of `track` is `value`."""

    track: str
    cycle: int
    value: int


def of_launch(timeline: Timeline, launch: Launch) -> list[Event]:
    """The events of `of_timing`, each with the origin of its instruction, and a track of the operators."""
    events = of_timing(timeline, launch, launch.cfg)
    origins = launch.known_origins
    paths = [origins.paths[k] for k in origins.of]
    spans: dict[str, tuple[int, int]] = {}
    for event in events:
        number = event.args["instruction"]
        assert isinstance(number, int)
        if paths[number]:
            event.args["for"] = " / ".join(paths[number])
            first, last = spans.get(paths[number][0], (event.start, event.end))
            spans[paths[number][0]] = min(first, event.start), max(last, event.end)
    return [Event("operator", name, first, last) for name, (first, last) in spans.items()] + events


def of_timing(timing: Timing | Timeline, program: Launch | np.ndarray, cfg: Config) -> list[Event]:
    """Every instruction of `program` (or its words, uint64 (n, 2)) with the cycles of `timing`.

    A unit's track shows the instructions that execute; its track of waits shows what the head of its queue waits for.
    """
    events = []
    for k, event in enumerate(of_trace(timing, program, cfg)):
        waits = {name: int(values[k]) for name, values in timing.waits.items() if values[k]}
        event.args.update({f"wait_{name}": n for name, n in waits.items()})
        events.append(event)
        cycle = int(timing.issue[k]) - sum(waits.get(reason, 0) for reason in _REASONS)
        for reason, text in _REASONS.items():
            if reason in waits:
                events.append(Event(f"{event.track} waits", text, cycle, cycle + waits[reason], {"instruction": k}))
                cycle += waits[reason]
    return events


def of_trace(trace: Timing | Trace | Timeline, program: Launch | np.ndarray, cfg: Config) -> list[Event]:
    """Every instruction of `program` (or its words, uint64 (n, 2)), in program order, with the cycles of `trace`.

    An instruction that starts in the cycle in which its predecessor ends is shown from the next cycle on.
    """
    names = [unit.name for unit in units(cfg)]
    words, isa, events = program.insn if isinstance(program, Launch) else program, Isa(cfg), []
    ended: dict[str, int] = {}
    for k, fields in enumerate(isa.decode(words)):
        args: dict[str, object] = {"instruction": k, "text": isa.disassemble(fields)}
        unit, start, end = names[trace.queue[k]], int(trace.start[k]), int(trace.end[k])
        start += ended.get(unit) == start < end
        ended[unit] = end
        events.append(Event(unit, isa.mnemonic(fields), start, end + 1, args))
    return events


def levels_of(timeline: Timeline, launch: Launch) -> list[LevelChange]:
    """The levels of token channels, and of command queues where it is seen when instructions enter."""
    found = {f"tokens {channel}": level for channel, level in token_levels(launch, timeline).items()}
    found |= {f"queue of {name}": level for name, level in queue_levels(launch, timeline).items()}
    return [
        LevelChange(track, cycle, value)
        for track, level in found.items()
        for cycle, value in zip(level.cycles.tolist(), level.values.tolist())
    ]


def write_chrome(
    path: str | Path, events: Iterable[Event], title: str = "tilewright", levels: Iterable[LevelChange] = ()
) -> None:
    """Write `events` as JSON for chrome://tracing and ui.perfetto.dev, one cycle shown as one microsecond.

    Overlapping events of one track are put into several rows; `levels` are drawn as steps. Raises `FileError`.
    """
    rows: list[dict[str, object]] = [{"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": title}}]
    lanes: dict[str, list[int]] = {}
    slices: dict[tuple[str, int], list[dict[str, object]]] = {}
    for event in sorted(events, key=lambda e: (e.start, e.end)):
        ends = lanes.setdefault(event.track, [])
        lane = next((k for k, end in enumerate(ends) if end <= event.start), len(ends))
        ends[lane : lane + 1] = [event.end]
        one = {"ph": "X", "cat": event.track, "name": event.name, "ts": event.start, "dur": event.end - event.start}
        slices.setdefault((event.track, lane), []).append({**one, "args": event.args})
    for number, ((track, lane), found) in enumerate(sorted(slices.items()), 1):
        label = track if not lane else f"{track} ({lane + 1})"
        rows.append({"ph": "M", "name": "thread_name", "pid": 1, "tid": number, "args": {"name": label}})
        rows.append({"ph": "M", "name": "thread_sort_index", "pid": 1, "tid": number, "args": {"sort_index": number}})
        rows += [one | {"pid": 1, "tid": number} for one in found]
    for level in levels:
        rows.append({"ph": "C", "name": level.track, "pid": 1, "ts": level.cycle, "args": {"level": level.value}})
    with atomic_write(path) as temporary:
        Path(temporary).write_text(json.dumps({"traceEvents": rows, "displayTimeUnit": "ns"}))
