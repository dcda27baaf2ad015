"""Requests in chunks: split by the client, and received by the server within limits of size, room and time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

from ..hw.errors import BoardError, CapacityError, HangError, InputError, TilewrightError

CHUNK = 1 << 17  # bytes of a request's messages, but for the last


def chunks(data: bytes) -> Iterator[bytes]:
    """The pieces of a request, in order; none of an empty one."""
    return (data[at : at + CHUNK] for at in range(0, len(data), CHUNK))


class Room:
    """Counts the bytes of requests that a server holds, all calls together: `most` at a time."""

    def __init__(self, most: int):
        self.most, self.held, self._lock = most, 0, threading.Lock()

    def take(self, count: int) -> None:
        """Hold `count` bytes more. Raises `CapacityError` where they have no room."""
        with self._lock:
            if self.held + count > self.most:
                raise CapacityError(f"requests of {self.held:,} bytes wait, at most {self.most:,} may; try later")
            self.held += count

    def give(self, count: int) -> None:
        """Let go of `count` bytes."""
        with self._lock:
            self.held -= count


class Upload:
    """The request that arrives as `parts`; in a `with` block, whose variable it is, it has its share of `room`.

    Raises `InputError` where it is larger than `most` bytes, `CapacityError` where it has no room, `HangError` where
    it brings nothing for `idle` seconds or takes more than `seconds`, `BoardError` where the caller is gone.
    """

    def __init__(self, parts: Iterable[bytes], room: Room, most: int, idle: float, seconds: float):
        self._parts, self._room, self._most, self._idle, self._seconds = parts, room, most, idle, seconds
        self._found: list[bytes] = []
        self._size, self._open = 0, True
        self._error: TilewrightError | None = None
        self._lock, self._done = threading.Lock(), threading.Event()

    def __enter__(self) -> bytes:
        # gRPC's iterator blocks without a limit, and ends when the call does: it gets a thread of its own
        threading.Thread(target=self._receive, name="upload", daemon=True).start()
        try:
            self._wait()
            if self._error is not None:
                raise self._error
            whole = b"".join(self._found)
            self._found.clear()
            return whole
        except BaseException:
            self._close()
            raise

    def __exit__(self, *exc: Any) -> None:
        self._close()

    def _wait(self) -> None:
        end, before = time.monotonic() + self._seconds, -1
        while not self._done.wait(max(0.0, min(self._idle, end - time.monotonic()))):
            if self._size == before:
                raise HangError(f"the request brought nothing for {self._idle:g} s, after {self._size:,} bytes")
            if time.monotonic() >= end:
                raise HangError(f"the request was not complete after {self._seconds:g} s")
            before = self._size

    def _receive(self) -> None:
        try:
            for part in self._parts:
                with self._lock:
                    if not self._open:
                        return
                    if self._size + len(part) > self._most:
                        raise InputError(f"a request of more than {self._most:,} bytes; at most that many are allowed")
                    self._room.take(len(part))
                    self._size += len(part)
                    self._found.append(part)
        except TilewrightError as exc:
            self._error = exc
        except Exception:  # gRPC's own kinds, where the call is over
            self._error = BoardError("the call ended before its request was complete")
        finally:
            self._done.set()

    def _close(self) -> None:
        with self._lock:
            if self._open:
                self._open = False
                self._room.give(self._size)
                self._found.clear()
