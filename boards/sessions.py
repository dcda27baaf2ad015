"""The state of clients' programs on a shared device, from one run to the next: each client has its own.

A client names its session by random bytes, and says with every run how many it has seen since the initial state. A
server that has lost the state, or was asked twice, refuses: no run continues from values that the client does not
expect.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

import numpy as np

from ..hw.errors import BoardError, CapacityError

ID = 16  # random bytes that name a session, which nobody else guesses
MOST = 64  # sessions whose state is kept

Key = tuple[bytes, bytes]  # of a session and a program's digest


class Sessions:
    """The states that sessions left: at most `MOST`, of `nbytes` bytes together; those used last stay."""

    def __init__(self, nbytes: int):
        self._nbytes = nbytes
        self._kept: OrderedDict[Key, tuple[int, dict[str, np.ndarray]]] = OrderedDict()

    def find(self, key: Key, runs: int) -> Mapping[str, np.ndarray] | None:
        """The state after `runs` runs; None for the initial one, after none.

        Raises `BoardError` where the state is not there.
        """
        if not runs:
            return None
        before, state = self._kept.get(key, (0, None))
        if before != runs:
            raise BoardError(
                f"the server does not have this session's state after {runs} runs (after {before or 'none'}): it was "
                "restarted, or dropped the state for others'; reset the program, and run its inputs again"
            )
        return state

    def keep(self, key: Key, runs: int, state: dict[str, np.ndarray]) -> None:
        """Keep the `state` after `runs` runs; others go where it has no room.

        Raises `CapacityError` where it is larger than what may be kept.
        """
        if _nbytes(state) > self._nbytes:
            raise CapacityError(f"the program's state has {_nbytes(state):,} bytes; at most {self._nbytes:,} are kept")
        self._kept.pop(key, None)
        self._kept[key] = runs, state
        while len(self._kept) > MOST or sum(_nbytes(one) for _, one in self._kept.values()) > self._nbytes:
            self._kept.popitem(last=False)

    def end(self, session: bytes) -> None:
        """Drop what `session` left."""
        for key in [key for key in self._kept if key[0] == session]:
            del self._kept[key]


def _nbytes(state: Mapping[str, np.ndarray]) -> int:
    return sum(array.nbytes for array in state.values())
