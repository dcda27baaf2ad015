"""Scratchpad entries of a kernel: what its tiles take, and the constants and tables that stay in a launch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from ...hw.errors import CapacityError, Unfit
from ...hw.isa import Mem, depth
from .recording import Recording

KEPT = 16  # the last one of so many parts of a scratchpad is for what stays


class OnChip:
    """The entries that a kernel takes: the least recently used, by `rec.placement`."""

    def __init__(self, rec: Recording):
        self.rec = rec
        self._taken, self._kept = list[tuple[Mem, int, int]](), list[tuple[Mem, int, int]]()

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is taken inside is free at its end, and counts as used last."""
        taken, kept = len(self._taken), len(self._kept)
        try:
            yield
            for place in self._taken[taken:]:
                self.rec.placement.use(*place)
        finally:
            del self._taken[taken:], self._kept[kept:]

    def region(self, mem: Mem, size: int, low: int, high: int | None = None) -> int:
        """The first of `size` entries within [low, high), by default to the end of `mem`, that nothing has taken.

        Raises `Unfit` where there are none.
        """
        if size < 1:
            raise Unfit(f"0 entries of {mem.name}: they do not fit a step of the kernel")
        high = depth(self.rec.cfg, mem) if high is None else high
        try:
            base = self.rec.placement.region(mem, size, low, high, _of(mem, [*self._taken, *self._kept]))
        except CapacityError as exc:
            raise Unfit(str(exc)) from None
        self._taken.append((mem, base, size))
        return base

    def taken(self, mem: Mem, entry: int) -> bool:
        """Whether a tile has this entry, or slots have it, whose scope has not ended."""
        return any(entry in place for place in _of(mem, self._taken))

    def stays(self, mem: Mem, data: np.ndarray) -> tuple[int, bool]:
        """(the first of the entries of `data`, one per element of its first axis; False where it must be loaded).

        They lie at the end of `mem` where that has room. Raises `CapacityError` where nothing is free.
        """
        rec, key, size, entries = self.rec, (mem, data.tobytes()), len(data), depth(self.rec.cfg, mem)
        taken, found = _of(mem, self._taken), rec.kept.get(key, range(0))
        met = any(found.start < r.stop and r.start < found.stop for r in taken)
        there = key in rec.kept and not met and rec.placement.reserved(mem, found.start, size)
        if not there:
            low, apart = min(entries - size, entries - entries // KEPT), [*taken, *_of(mem, self._kept)]
            try:
                base = rec.placement.region(mem, size, low, entries, apart)
            except CapacityError:
                base = rec.placement.region(mem, size, 0, entries, apart)
            found = range(base, base + size)
            rec.placement.reserve(mem, base, size)
            others = {k: v for k, v in rec.kept.items() if k[0] != mem or v.stop <= base or found.stop <= v.start}
            rec.kept = {**others, key: found}
        self._kept.append((mem, found.start, size))
        return found.start, there

    def table(self, values: np.ndarray) -> tuple[int, bool]:
        """(the number of a table of 256 integers, False where it must be loaded in the place of the oldest one)."""
        tables, content = self.rec.tables, values.tobytes()
        there = content in tables
        oldest = content if there else next(iter(tables), b"")
        number = tables.pop(oldest) if there or len(tables) == self.rec.cfg.tables else len(tables)
        tables[content] = number  # the latest last
        return number, there


def _of(mem: Mem, places: list[tuple[Mem, int, int]]) -> list[range]:
    return [range(base, base + size) for other, base, size in places if other is mem]
