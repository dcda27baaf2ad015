"""The timeline of a run: bars of instructions and waits, tokens between queues, and how busy each unit is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...hw.units import units
from ...runtime.device import Timeline
from ...runtime.launch import Launch
from ...sim.profile import tokens
from ...sim.trace import levels_of, of_timing

MOST_BARS = 30_000  # on a page; more are joined
MOST_TOKENS = 20_000  # on a page; of more, those that were waited for longest
MOST_TEXT = 800_000  # characters of disassembly on a page
BINS = 400  # of the busy shares
WAITS = " waits"  # ends the name of a track of waits


@dataclass
class Track:
    """Bars of one track, by columns of equal length; `text` is -1 where a bar has no disassembly."""

    start: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)
    operator: list[int] = field(default_factory=list)
    name: list[int] = field(default_factory=list)
    instruction: list[int] = field(default_factory=list)
    count: list[int] = field(default_factory=list)

    def add(self, start: int, end: int, operator: int, name: int, instruction: int, count: int = 1) -> None:
        """Append a bar from cycle `start` to before cycle `end`."""
        for column, value in zip(vars(self).values(), (start, end, operator, name, instruction, count)):
            column.append(value)

    def joined(self, gap: int) -> Track:
        """The same with bars of one operator and one name joined where at most `gap` cycles are between them."""
        found = Track()
        for start, end, operator, name, instruction, count in zip(*vars(self).values()):
            same = found.end and (found.operator[-1], found.name[-1]) == (operator, name)
            if same and start - found.end[-1] <= gap:
                found.end[-1] = max(found.end[-1], end)
                found.count[-1] += count
            else:
                found.add(start, end, operator, name, instruction, count)
        return found


class Collected:
    """The bars and tokens of launches that run one behind the other."""

    def __init__(self) -> None:
        self.cycles = 0
        self.tracks: dict[str, Track] = {}
        self.names: dict[str, int] = {}
        self.texts: list[str] = []
        self.tokens: list[tuple[str, int, int, int]] = []  # channel, cycle given, cycle taken, cycles waited
        self.levels: dict[str, list[tuple[int, int]]] = {}  # track -> (cycle, level behind it)
        self.unjoined = 0

    def add(self, launch: Launch, timeline: Timeline, cycles: int, operators: Sequence[int]) -> None:
        """A run of `launch`; `operators` has the row of each of its instructions in the table of operators."""
        now, first = self.cycles, len(self.texts)
        for unit in units(launch.cfg):
            for track in (unit.name, unit.name + WAITS):
                self.tracks.setdefault(track, Track())
        self.texts += [""] * len(launch.insn)
        for event in of_timing(timeline, launch, launch.cfg):
            number = event.args["instruction"]
            assert isinstance(number, int)
            if "text" in event.args:
                self.texts[first + number] = str(event.args["text"])
            name = self.names.setdefault(event.name, len(self.names))
            self.tracks[event.track].add(now + event.start, now + event.end, operators[number], name, first + number)
        waited = timeline.waits["token"]
        for channel, giver, taker in tokens(launch, timeline):
            given, taken = int(timeline.end[giver]), int(timeline.issue[taker])
            self.tokens.append((str(channel), now + given, now + taken, int(waited[taker])))
        for level in levels_of(timeline, launch):
            self.levels.setdefault(level.track, []).append((now + level.cycle, level.value))
        self.cycles += cycles

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready columns of the events that fit a page, and the number of events left out."""
        self.unjoined = sum(len(track.start) for track in self.tracks.values())
        tracks, gap = self._joined()
        kept = sorted(self.tokens, key=lambda token: -token[3])[:MOST_TOKENS]
        kept.sort(key=lambda token: token[1:])
        channels = list(dict.fromkeys(token[0] for token in kept))
        texts = self.texts if sum(map(len, self.texts)) <= MOST_TEXT else []
        columns: dict[str, list[int]] = {name: [] for name in ("track", *vars(Track()))}
        for number, track in enumerate(tracks.values()):
            columns["track"] += [number] * len(track.start)
            for name, values in vars(track).items():
                columns[name] += values
        return {
            "cycles": self.cycles,
            "tracks": list(tracks),
            "names": list(self.names),
            "texts": texts,
            "bars": columns,
            "channels": channels,
            "tokens": {
                "channel": [channels.index(token[0]) for token in kept],
                **{name: [token[k] for token in kept] for k, name in ((1, "given"), (2, "taken"), (3, "waited"))},
            },
            "left_out": {
                "bars": self.unjoined,
                "joined_gap": gap,
                "tokens": len(self.tokens) - len(kept),
                "texts": bool(self.texts) and not texts,
            },
            "busy": self.busy(),
            "levels": {name: most_in_bins(changes, self._edges()) for name, changes in self.levels.items()},
        }

    def _joined(self) -> tuple[dict[str, Track], int | None]:
        """(tracks of at most `MOST_BARS` bars where that is possible, the gap over which bars were joined)."""
        tracks, gap = self.tracks, None
        while sum(len(track.start) for track in tracks.values()) > MOST_BARS and (gap or 0) < self.cycles:
            gap = 1 if gap is None else 2 * gap
            tracks = {name: track.joined(gap) for name, track in self.tracks.items()}
        return tracks, gap

    def _edges(self) -> np.ndarray:
        return np.linspace(0, max(self.cycles, 1), min(BINS, max(self.cycles, 1)) + 1)

    def busy(self) -> dict[str, Any]:
        """The fraction of the cycles of each bin in which an instruction of the unit executes, from 0 to 1."""
        edges, shares = self._edges(), {}
        for name, track in self.tracks.items():
            if not name.endswith(WAITS):
                at, covered = covered_cycles(np.array(track.start, np.int64), np.array(track.end, np.int64))
                done = np.diff(np.interp(edges, at, covered)) / np.diff(edges)
                shares[name] = [round(float(share), 4) for share in np.clip(done, 0, 1)]
        return {"edges": [round(float(edge), 2) for edge in edges], "units": shares}


def covered_cycles(start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(cycles, how many before each of them lie in an interval), a line between these; intervals may overlap."""
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    before = np.concatenate([[0], np.maximum.accumulate(end)[:-1]]) if len(end) else end
    start = np.maximum(start, before)
    real = end > start
    start, end = start[real], end[real]
    total = np.cumsum(end - start)
    at = np.stack([start, end], axis=1).reshape(-1)
    covered = np.stack([total - (end - start), total], axis=1).reshape(-1)
    return np.concatenate([[0], at]), np.concatenate([[0], covered])


def most_in_bins(changes: Sequence[tuple[int, int]], edges: np.ndarray) -> list[int]:
    """The highest level in each bin of `edges`; `changes` are (cycle, level behind it), in order, from level 0 on."""
    cycles, values = np.array([(0, 0), *changes], np.int64).T
    most = values[np.searchsorted(cycles, edges[:-1], "right") - 1]
    inside = np.clip(np.searchsorted(edges, cycles, "right") - 1, 0, len(most) - 1)
    np.maximum.at(most, inside, values)
    return most.tolist()
