"""Operands of products, kept while the entries that they were made of are unchanged.

A tile of inputs meets several tiles of weights, and the other way round. Each is gathered and converted to float32
once, until something is loaded over it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np

_BYTES = 1 << 19  # of all operands of a scratchpad; more would leave the processor's caches before they are used again


class Operands:
    """The operands that were made of entries of one scratchpad."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[int, int, np.ndarray]] = {}
        self._bytes = 0

    def get(self, key: Hashable, limits: tuple[int, int], make: Callable[[], np.ndarray]) -> np.ndarray:
        """The operand of `key`, made of entries from the first to the last of `limits`; the result of `make` if new."""
        found = self._kept.get(key)
        if found is not None:
            return found[2]
        operand = make()
        self._bytes += operand.nbytes
        if self._bytes > _BYTES:
            self.clear()
            self._bytes = operand.nbytes
        self._kept[key] = (*limits, operand)
        return operand

    def changed(self, low: int, high: int) -> None:
        """To be called when the entries `low` to `high` were loaded: operands made of any of them are dropped."""
        stale = []
        for key, (first, last, _) in self._kept.items():
            if first <= high and low <= last:
                stale.append(key)
        for key in stale:
            self._bytes -= self._kept.pop(key)[2].nbytes

    def clear(self) -> None:
        """Drop all operands."""
        self._kept.clear()
        self._bytes = 0
