"""Who uses which bank of accumulators, and when."""

from __future__ import annotations

from bisect import insort

from .read_port import NEVER

_KEPT = 1024  # uses: those before them have ended


class Uses:
    """The uses of one unit: from a cycle to another, both included, of some banks, one bit each."""

    def __init__(self) -> None:
        self._uses: list[tuple[int, int, int]] = []  # in the order in which they begin

    def add(self, begin: int, end: int, banks: int) -> None:
        """The unit uses `banks` from cycle `begin` to `end`."""
        insort(self._uses, (begin, end, banks))
        del self._uses[:-_KEPT]

    def free(self, banks: int, cycle: int) -> int:
        """The first cycle from `cycle` on in which none of the `banks` is used."""
        for begin, end, used in self._uses:
            if used & banks and begin <= cycle <= end:
                cycle = end + 1
        return cycle

    def next(self, banks: int, cycle: int) -> int:
        """The first cycle behind `cycle` in which a use of one of the `banks` begins, `NEVER` if none does."""
        return next((begin for begin, _, used in self._uses if used & banks and begin > cycle), NEVER)

    def latest(self, banks: int) -> int:
        """The last cycle in which one of the `banks` is used; -1 where none was."""
        return max((end for _, end, used in self._uses if used & banks), default=-1)
