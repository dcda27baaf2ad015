"""Who uses which bank of accumulators, and when."""

from __future__ import annotations

from collections import deque

_KEPT = 64  # uses: those before them have ended


class Uses:
    """The uses of one unit: from a cycle to another, both included, of some banks, one bit each."""

    def __init__(self) -> None:
        self._uses: deque[tuple[int, int, int]] = deque(maxlen=_KEPT)

    def add(self, begin: int, end: int, banks: int) -> None:
        """The unit uses `banks` from cycle `begin` to `end`."""
        self._uses.append((begin, end, banks))

    def free(self, banks: int, cycle: int, length: int) -> int:
        """The first cycle from `cycle` on which `length` cycles begin in which none of the `banks` is used."""
        for begin, end, used in self._uses:
            if used & banks and cycle <= end and begin < cycle + length:
                cycle = end + 1
        return cycle

    def latest(self, banks: int) -> int:
        """The last cycle in which one of the `banks` is used; -1 where none was."""
        return max((end for _, end, used in self._uses if used & banks), default=-1)
