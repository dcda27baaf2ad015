"""Scratchpad addresses that change while a program is recorded: slots of tiles, and the last use of entries."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from ...hw.config import Config
from ...hw.errors import CapacityError
from ...hw.isa import Mem, depth
from ..intrin import SCOPES

_RESERVED = np.iinfo(np.int64).max  # later than any use


class Placement:
    """Time of the last use of each scratchpad entry, in all that is recorded into one program.

    New tensors get the least recently used entries, so that their loads need not wait.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        self._clock = 0
        self._last = {mem: np.zeros(depth(cfg, mem), np.int64) for mem in (*SCOPES.values(), Mem.TWGT)}

    def use(self, mem: Mem, base: int, size: int) -> int:
        """Mark `size` entries from `base` on as used now, and return the time."""
        self._clock += 1
        self._last[mem][base : base + size] = self._clock
        return self._clock

    def reserve(self, mem: Mem, base: int, size: int) -> None:
        """Keep `size` entries from `base` on from all who have a choice."""
        self._last[mem][base : base + size] = _RESERVED

    def reserved(self, mem: Mem, base: int, size: int) -> bool:
        """True where nobody has used any of `size` entries from `base` on since they were reserved."""
        return bool((self._last[mem][base : base + size] == _RESERVED).all())

    def last_use(self, mem: Mem, base: int, size: int) -> int:
        """The time of the last use of any of `size` entries from `base` on; 0 if none was used."""
        return int(self._last[mem][base : base + size].max(initial=0))

    def region(self, mem: Mem, size: int, low: int, high: int, apart: Sequence[range] = ()) -> int:
        """The first of the `size` adjacent entries within [low, high) that are least recently used.

        They have none of the entries `apart`. Raises `CapacityError` where there are no such entries.
        """
        changes = np.flatnonzero(np.diff(self._last[mem])) + 1
        starts = {low, high - size, *changes.tolist(), *(start for r in apart for start in (r.stop, r.start - size))}
        free = [
            start
            for start in sorted(starts)
            if low <= start <= high - size and not any(start < r.stop and r.start < start + size for r in apart)
        ]
        if not free:
            raise CapacityError(f"{size} entries of {mem.name}: they do not fit those that are free in {low} to {high}")
        return min(free, key=lambda start: self.last_use(mem, start, size))


class Slots:
    """Equal parts of a scratchpad, at `bases`, for the tiles of one tensor.

    A tile that is still in a slot is not loaded again; a new one takes the least recently used slot. Each virtual
    thread holds one slot.
    """

    def __init__(self, mem: Mem, bases: Sequence[int], size: int, placement: Placement):
        self.mem, self.size, self.placement = mem, size, placement
        times = {base: placement.last_use(mem, base, size) for base in bases}
        self._used = dict(sorted(times.items(), key=lambda item: item[1]))  # base -> time of its last use
        self._tiles: dict[Hashable, int] = {}
        self._held: dict[int, int] = {}

    def take(self, thread: int, tile: Hashable) -> tuple[int, bool]:
        """Assign a slot to `thread`: (its first entry, True if `tile` is in it already)."""
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
        """Mark all loaded tiles as invalid."""
        self._tiles.clear()
