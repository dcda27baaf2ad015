"""Scratchpad entries of a kernel that is recorded directly: regions, constants, and pairs of alternating slots."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from ....hw.errors import CapacityError
from ....hw.isa import Mem, depth
from ....runtime.buffer import Buffer
from ..recording import Recording

KEPT = 16  # the last one of so many parts of a scratchpad is for what stays


class OnChip:
    """The scratchpad entries that a kernel takes: the least recently used, by `rec.placement`."""

    def __init__(self, rec: Recording, outer: OnChip | None = None):
        self.rec = rec
        self._held: list[tuple[Mem, int, int]] = [*outer._held, *outer._taken, *outer._stays] if outer else []
        self._taken: list[tuple[Mem, int, int]] = []
        self._stays: list[tuple[Mem, int, int]] = []

    def region(self, mem: Mem, size: int, low: int = 0, high: int | None = None, *, alone: bool = False) -> int:
        """The first of `size` entries within [low, high), by default anywhere in `mem`.

        `alone` keeps them apart from all that was taken before, and from what is kept for this kernel.
        """
        before = [*self._held, *self._taken, *self._stays] if alone else []
        apart = [range(base, base + count) for other, base, count in before if other is mem]
        high = depth(self.rec.cfg, mem) if high is None else high
        base = self.rec.placement.region(mem, size, low, high, apart)
        self._taken.append((mem, base, size))
        return base

    def slots(self, mem: Mem, size: int) -> tuple[int, int]:
        """Two adjacent slots of `size` entries: while tile k is computed in slot k % 2, the next one is loaded."""
        base = self.region(mem, 2 * size)
        return base, base + size

    def banks(self, first: int, second: int, half: int) -> tuple[int, int]:
        """Accumulators in the first and the second `half` entries, a bank each: one is stored, the other computed."""
        return self.region(Mem.ACC, first, 0, half), self.region(Mem.ACC, second, half, 2 * half)

    def kept(self, mem: Mem, name: str, data: np.ndarray, size: int) -> int:
        """The first of `size` entries with `data`, loaded once in a launch where nothing takes their place.

        They lie at the end of `mem` where that has room, apart from what was taken before. `name` is that of the
        constant. Raises `CapacityError` where nothing is free.
        """
        rec, key, entries = self.rec, (mem, data.tobytes()), depth(self.rec.cfg, mem)
        taken, stays = (
            [range(base, base + count) for other, base, count in places if other is mem]
            for places in ([*self._held, *self._taken], self._stays)
        )
        found = rec.kept.get(key)
        met = found is not None and any(found.start < r.stop and r.start < found.stop for r in taken)
        if found is None or met or not rec.placement.reserved(mem, found.start, size):
            low, apart = min(entries - size, entries - entries // KEPT), [*taken, *stays]
            try:
                base = rec.placement.region(mem, size, low, entries, apart)
            except CapacityError:
                base = rec.placement.region(mem, size, 0, entries, apart)
            found = range(base, base + size)
            rec.program.load(mem, base, rec.constant(name, data), 0, x_size=size)
            rec.placement.reserve(mem, base, size)
            others = {k: v for k, v in rec.kept.items() if k[0] != mem or v.stop <= base or found.stop <= v.start}
            rec.kept = {**others, key: found}
        self._stays.append((mem, found.start, size))
        return found.start

    def constant(self, mem: Mem, buffer: Buffer, size: int = 1, high: int | None = None) -> int:
        """The first of `size` entries that stay on chip, loaded from the beginning of `buffer`."""
        base = self.region(mem, size, 0, high)
        self.rec.program.load(mem, base, buffer, 0, x_size=size)
        return base


@contextmanager
def on_chip(rec: Recording, outer: OnChip | None = None) -> Iterator[OnChip]:
    """Scratchpads while a kernel is recorded; at its end the entries that it took count as used last.

    Regions that are taken alone are apart from those of `outer`, too.
    """
    taken = OnChip(rec, outer)
    yield taken
    for mem, base, size in taken._taken:
        rec.placement.use(mem, base, size)
