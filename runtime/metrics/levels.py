"""Levels over time: tokens in each channel, instructions in each command queue, from the cycles of instructions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...hw.isa import known_isa
from ...hw.units import Channel, channels, units
from ..device import Timeline
from ..launch import Launch


class Level(NamedTuple):
    """Behind cycle `cycles[k]`, int64 (n,) ascending, the level is `values[k]`; before the first it is 0."""

    cycles: np.ndarray
    values: np.ndarray

    @property
    def most(self) -> int:
        """The highest level."""
        return int(self.values.max()) if len(self.values) else 0


def token_levels(launch: Launch, timeline: Timeline) -> dict[Channel, Level]:
    """Tokens in each channel: given when an instruction ends, taken when the next one is issued."""
    return {
        channel: _level(
            timeline.end[flagged(launch, timeline, channel.source, channel.push)],
            timeline.issue[flagged(launch, timeline, channel.target, channel.pop)],
        )
        for channel in channels(launch.cfg)
    }


def queue_levels(launch: Launch, timeline: Timeline) -> dict[str, Level]:
    """Instructions in each command queue, by the unit's name; empty where it is not seen when they enter."""
    if timeline.queued is None:
        return {}
    mine = {unit.name: timeline.queue == unit.queue for unit in units(launch.cfg)}
    return {name: _level(timeline.queued[at], timeline.issue[at]) for name, at in mine.items()}


def flagged(launch: Launch, timeline: Timeline, queue: int, flag: str) -> np.ndarray:
    """The instructions of `queue` with the `flag`, in the order of the program."""
    field = known_isa(launch.cfg).formats["FINISH"].fields[flag]
    has = (launch.insn[:, 0] >> np.uint64(field.lo) & np.uint64(1)).astype(bool)
    return np.flatnonzero(has & (timeline.queue == queue))


def _level(more: np.ndarray, less: np.ndarray) -> Level:
    """One more in each cycle of `more`, one less in each of `less`."""
    cycles, at = np.unique(np.concatenate([more, less]), return_inverse=True)
    steps = np.concatenate([np.ones(len(more), np.int64), np.full(len(less), -1, np.int64)])
    values = np.zeros(len(cycles), np.int64)
    np.add.at(values, at.reshape(-1), steps)
    return Level(cycles, values.cumsum())
