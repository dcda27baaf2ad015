"""boards/uploads.py: chunks of requests, without a network; tests/boards/test_strangers.py sends them."""

import threading

import pytest

from tilewright.boards.server import CHUNK, Room, Upload, chunks
from tilewright.hw.errors import BoardError, CapacityError, HangError, InputError

LONG = 60.0  # seconds that no test waits


@pytest.mark.parametrize("size", [0, 1, CHUNK, CHUNK + 1, 3 * CHUNK])
def test_a_request_is_whole_again(size):
    data, room = bytes(range(251)) * (size // 251 + 1), Room(1 << 20)
    data = data[:size]
    assert all(len(part) <= CHUNK for part in chunks(data))
    with Upload(chunks(data), room, 1 << 20, LONG, LONG) as found:
        assert found == data and room.held == size
    assert room.held == 0


def test_a_request_that_is_too_large_is_not_read_on():
    read = []

    def endless():
        while True:
            read.append(10)
            yield bytes(10)

    room = Room(1000)
    with pytest.raises(InputError, match="a request of more than 35 bytes; at most that many are allowed"):
        Upload(endless(), room, 35, LONG, LONG).__enter__()
    assert sum(read) == 40 and room.held == 0


def test_all_requests_together_have_limited_room():
    room = Room(100)
    with Upload([bytes(60)], room, 80, LONG, LONG):
        with pytest.raises(CapacityError, match="requests of 80 bytes wait, at most 100 may; try later"):
            Upload([bytes(20), bytes(30)], room, 80, LONG, LONG).__enter__()
        assert room.held == 60
    with Upload([bytes(20), bytes(30)], room, 80, LONG, LONG) as found:
        assert len(found) == 50


@pytest.fixture
def over():
    """Set when the test ends, so that what blocks does."""
    event = threading.Event()
    yield event
    event.set()


def test_silence_ends_a_request(over):
    def silent():
        yield b"four"
        over.wait(LONG)
        yield b"more"

    room = Room(100)
    with pytest.raises(HangError, match="the request brought nothing for 0.05 s, after 4 bytes"):
        Upload(silent(), room, 80, 0.05, LONG).__enter__()
    assert room.held == 0


def test_a_trickle_ends_too(over):
    def trickle():
        while not over.wait(0.01):
            yield b"."

    room = Room(1 << 20)
    with pytest.raises(HangError, match="the request was not complete after 0.2 s"):
        Upload(trickle(), room, 1 << 20, LONG, 0.2).__enter__()
    assert room.held == 0


def test_a_caller_that_is_gone():
    def broken():
        yield b"four"
        raise RuntimeError

    room = Room(100)
    with pytest.raises(BoardError, match="the call ended before its request was complete"):
        Upload(broken(), room, 80, LONG, LONG).__enter__()
    assert room.held == 0
