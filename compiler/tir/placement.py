"""Addresses that change while a program is recorded: slots that tiles take in turn, and what was in use when."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from ...hw.config import Config
from ...hw.isa import Mem, depth
from ..intrin import SCOPES


class Placement:
    """When each entry of the scratchpads was last given away, over all that is recorded into one program.

    What comes next takes entries that have been free for longest, so that its loads need not wait.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        self._clock = 0
        self._last = {mem: np.zeros(depth(cfg, mem), np.int64) for mem in SCOPES.values()}

    def use(self, mem: Mem, base: int, size: int) -> int:
        """Note that `size` entries from `base` on are in use now; the time."""
        self._clock += 1
        self._last[mem][base : base + size] = self._clock
        return self._clock

    def last_use(self, mem: Mem, base: int, size: int) -> int:
        """The time at which any of `size` entries from `base` on was last in use; 0 for never."""
        return int(self._last[mem][base : base + size].max(initial=0))

    def region(self, mem: Mem, size: int, low: int, high: int) -> int:
        """The first of `size` entries within [low, high) that were all free for longest."""
        changes = np.flatnonzero(np.diff(self._last[mem])) + 1
        starts = {low, high - size, *(int(c) for c in changes if low <= c <= high - size)}
        return min(sorted(starts), key=lambda start: self.last_use(mem, start, size))


class Slots:
    """Equal parts of a scratchpad, at `bases`, which the tiles of one tensor take in turn.

    A tile that is still there is not loaded again; another takes the slot that was taken the longest time ago. Each
    virtual thread holds one.
    """

    def __init__(self, mem: Mem, bases: Sequence[int], size: int, placement: Placement):
        self.mem, self.size, self.placement = mem, size, placement
        times = {base: placement.last_use(mem, base, size) for base in bases}
        self._used = dict(sorted(times.items(), key=lambda item: item[1]))  # base -> when it was last taken
        self._tiles: dict[Hashable, int] = {}
        self._held: dict[int, int] = {}

    def take(self, thread: int, tile: Hashable) -> tuple[int, bool]:
        """(first entry of the slot that `thread` holds from now on, whether `tile` is in it already)."""
        base = self._tiles.get(tile)
        present = base is not None
        if base is None:
            busy = {held for other, held in self._held.items() if other != thread}
            base = min((b for b in self._used if b not in busy), key=self._used.__getitem__)
            self._tiles = {key: b for key, b in self._tiles.items() if b != base}
            self._tiles[tile] = base
        self._held[thread] = base
        self._used[base] = self.placement.use(self.mem, base, self.size)
        return base, present

    def forget(self) -> None:
        """Nothing that was loaded is valid any more."""
        self._tiles.clear()
