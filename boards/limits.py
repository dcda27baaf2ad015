"""What a server allows its clients, from the memory of the machine that it runs on."""

from __future__ import annotations

import resource
from dataclasses import dataclass, field

from ..hw.foreign import machine_memory

_SPARE = 4  # calls that are answered while the queue is full
_HELD = 4  # times `max_bytes` of requests that the server holds
_MAX_BYTES = 64 << 20
_MAX_MEMORY = 4 << 30
_MAX_CONNECTIONS = 2048
_OTHER_FILES = 128


def most_connections() -> int:
    """Connections that a server accepts: about 20 kB each, and enough files of the process stay for other uses."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MAX_CONNECTIONS if files == resource.RLIM_INFINITY else min(_MAX_CONNECTIONS, max(16, files - _OTHER_FILES))


@dataclass(frozen=True)
class Limits:
    """Limits of jobs: `max_bytes` of a request, a reply and an unpacked program, `max_seconds` of a job, `max_memory`
    bytes that the process that runs them may take besides what its device takes, `queue` jobs that may wait,
    `idle_seconds` for which a request that is not complete may bring nothing.

    By default a request has up to a 16th of the machine's memory, at most 64 MiB, and a job half of it, at most 4 GiB.
    """

    max_bytes: int = field(default_factory=lambda: min(_MAX_BYTES, machine_memory() // 16))
    max_seconds: float = 60.0
    max_memory: int = field(default_factory=lambda: min(_MAX_MEMORY, machine_memory() // 2))
    queue: int = 16
    idle_seconds: float = 10.0

    @property
    def calls(self) -> int:
        """Calls that may be open, those in the queue included."""
        return self.queue + _SPARE

    @property
    def held_bytes(self) -> int:
        """Bytes of requests that the server holds, all calls together."""
        return _HELD * self.max_bytes

    @property
    def call_seconds(self) -> float:
        """Seconds after which a call ends: one job's time for its request, one per job before it, two for its own,
        because a program may have to be loaded again, and one for its reply.
        """
        return self.max_seconds * (self.queue + 4)
