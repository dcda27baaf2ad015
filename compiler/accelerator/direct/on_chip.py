"""Scratchpad entries of the kernels that are still recorded instruction by instruction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from ....hw.isa import Mem, depth
from ....runtime.buffer import Buffer
from ...kernels import on_chip as places
from ...kernels.on_chip import KEPT as KEPT
from ..recording import Recording


class OnChip(places.OnChip):
    """As that of the language; regions may share entries with what was taken before."""

    def region(self, mem: Mem, size: int, low: int = 0, high: int | None = None) -> int:
        """The first of `size` entries within [low, high), by default anywhere in `mem`."""
        high = depth(self.rec.cfg, mem) if high is None else high
        base = self.rec.placement.region(mem, size, low, high)
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
        """The first of `size` entries with `data`, loaded once in a launch where nothing takes their place."""
        base, there = self.stays(mem, data)
        if not there:
            self.rec.program.load(mem, base, self.rec.constant(name, data), 0, x_size=size)
        return base

    def constant(self, mem: Mem, buffer: Buffer, size: int = 1, high: int | None = None) -> int:
        """The first of `size` entries that stay on chip, loaded from the beginning of `buffer`."""
        base = self.region(mem, size, 0, high)
        self.rec.program.load(mem, base, buffer, 0, x_size=size)
        return base


@contextmanager
def on_chip(rec: Recording) -> Iterator[OnChip]:
    """Scratchpads while a kernel is recorded; at its end the entries that it took count as used last."""
    chip = OnChip(rec)
    with chip.scope():
        yield chip
