"""boards/sessions.py: each session finds what it left, and nobody else's."""

import numpy as np
import pytest

from tilewright.boards.worker import ID, KEPT_SESSIONS, Sessions
from tilewright.hw.errors import BoardError, CapacityError

PROGRAM = b"p"


def session(k):
    return k.to_bytes(ID, "little")


def state(value, count=4):
    return {"s": np.full(count, value, np.int8)}


def test_a_session_finds_what_it_left():
    sessions = Sessions(100)
    key, other = (session(1), PROGRAM), (session(2), PROGRAM)
    assert sessions.find(key, 0) is None
    sessions.keep(key, 1, state(7))
    found = sessions.find(key, 1)
    assert found is not None and found["s"].tolist() == [7] * 4 and sessions.find(key, 0) is None
    for wrong, runs, before in ((key, 2, "1"), (other, 1, "none"), ((session(1), b"q"), 1, "none")):
        with pytest.raises(BoardError, match=f"state after {runs} runs .after {before}.: .* reset the program"):
            sessions.find(wrong, runs)
    sessions.end(session(1))
    with pytest.raises(BoardError):
        sessions.find(key, 1)


def test_those_used_last_stay():
    sessions = Sessions(1 << 20)
    for k in range(KEPT_SESSIONS + 1):
        sessions.keep((session(k), PROGRAM), 1, state(k % 100))
        assert sessions.find((session(0), PROGRAM), 1) if k < KEPT_SESSIONS else True
    with pytest.raises(BoardError):
        sessions.find((session(0), PROGRAM), 1)
    assert sessions.find((session(KEPT_SESSIONS), PROGRAM), 1)


def test_bytes_are_counted():
    sessions = Sessions(10)
    for k in range(3):
        sessions.keep((session(k), PROGRAM), 1, state(k))
    with pytest.raises(BoardError):
        sessions.find((session(0), PROGRAM), 1)
    assert sessions.find((session(1), PROGRAM), 1)
    with pytest.raises(CapacityError, match="the program's state has 11 bytes; at most 10 are kept"):
        sessions.keep((session(1), PROGRAM), 1, state(0, 11))
