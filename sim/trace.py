"""What happened when: one event format for whoever executes a program, and files for Chrome and Perfetto."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..hw.config import Config
from ..hw.isa import Isa, Queue
from ..runtime.device import Stats
from ..runtime.files import atomic_write
from ..runtime.launch import Launch

if TYPE_CHECKING:
    from .timing import Timing

# reason in Timing.waits -> what the track of waits shows
_REASONS = {"token_prev": "token of the queue before", "token_next": "token of the queue behind", "unit": "unit"}


@dataclass(frozen=True)
class Event:
    """Something on `track` from cycle `start` until before cycle `end`; `args` are shown with it."""

    track: str
    name: str
    start: int
    end: int
    args: dict[str, object] = field(default_factory=dict)


def of_timing(timing: Timing, program: Launch | np.ndarray, cfg: Config) -> list[Event]:
    """Every instruction of `program` (or its words, uint64 (n, 2)) as `timing` has it.

    The track of a unit shows what executes; that of its waits what the first instruction of the queue waits for.
    """
    words, isa, events = program.insn if isinstance(program, Launch) else program, Isa(cfg), []
    for k, fields in enumerate(isa.decode(words)):
        unit = Queue(timing.queue[k]).name.lower()
        waits = {name: int(values[k]) for name, values in timing.waits.items() if values[k]}
        args = {"instruction": k, "text": isa.disassemble(fields), **{f"wait_{name}": n for name, n in waits.items()}}
        events.append(Event(unit, isa.mnemonic(fields), int(timing.start[k]), int(timing.end[k]) + 1, args))
        cycle = int(timing.arrive[k])
        for reason, text in _REASONS.items():
            if reason in waits:
                events.append(Event(f"{unit} waits", text, cycle, cycle + waits[reason], {"instruction": k}))
                cycle += waits[reason]
    return events


def of_counters(stats: Stats, name: str = "run") -> list[Event]:
    """What a device that counts cycles tells of a whole run: one event per unit, with its counters."""
    if stats.cycles is None:
        return []
    events = []
    for queue in Queue:
        mine = {key.lower(): value for key, value in stats.counters.items() if key.startswith(f"{queue.name}_")}
        events.append(Event(queue.name.lower(), name, 0, stats.cycles, {**mine}))
    return events


def write_chrome(path: str | Path, events: Iterable[Event], title: str = "tilewright") -> None:
    """Write `events` as JSON for chrome://tracing and ui.perfetto.dev, one cycle shown as one microsecond.

    Events of one track that overlap go to several rows of it. Raises `FileError` where that fails.
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
    with atomic_write(path) as temporary:
        Path(temporary).write_text(json.dumps({"traceEvents": rows, "displayTimeUnit": "ns"}))
