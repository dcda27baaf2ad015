"""The process that owns a server's device: it runs one job after the other, and can be ended without harm to the rest.

Parent and worker exchange the bytes of messages over a pipe; data from a client is never unpickled or executed.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import resource
import signal
import sys
from collections import OrderedDict
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from ..hw.config import Config
from ..hw.errors import BoardError, CapacityError, HangError, TilewrightError
from ..runtime.device import Device, open_device
from ..runtime.executable import Executable
from ..runtime.loader import Loaded
from . import messages
from .limits import Limits
from .sessions import Sessions
from .wipe import wipe

DIGEST = 32  # bytes of a program's SHA-256
KEPT = 4  # programs that stay in device memory
_LOAD, _RUN, _END_SESSION = b"L", b"R", b"E"
_START = 900.0  # seconds that a device may take to open: a circuit is built first
_END = 3.0  # seconds that a worker may take to stop its device


@dataclass(frozen=True)
class Offer:
    """The device that a server offers: its name in `runtime.device`, its configuration, and options of its class."""

    device: str
    cfg: Config
    options: dict[str, object] = field(default_factory=dict)


class Worker:
    """A device in a process of its own. One call at a time."""

    def __init__(self, offer: Offer, limits: Limits):
        self._offer, self._limits = offer, limits
        self._process: Any = None
        self._pipe: Connection | None = None

    def start(self) -> None:
        """Open the device. Raises the errors of opening it."""
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_main, args=(theirs, self._offer, self._limits), daemon=True)
        self._process.start()
        theirs.close()
        try:
            reply = messages.parse("LoadReply", self._pipe.recv_bytes() if self._pipe.poll(_START) else b"")
        except EOFError:
            self.stop()
            raise BoardError("the process that opens the device ended; run the server again") from None
        if reply.failure:
            self.stop()
        messages.raise_failure(reply.failure)

    def load(self, digest: bytes, program: bytes) -> bytes:
        """Check `program`, the contents of a .tw file, and load it under its `digest`; a LoadReply."""
        return self._call(_LOAD + digest + program)

    def run(self, request: bytes) -> bytes:
        """Execute a RunRequest; a RunReply."""
        return self._call(_RUN + request)

    def end(self, request: bytes) -> bytes:
        """Drop the state of an EndRequest's session; an EndReply."""
        return self._call(_END_SESSION + request)

    def stop(self) -> None:
        """End the process; the device is stopped first."""
        process, self._process = self._process, None
        pipe, self._pipe = self._pipe, None
        if process is not None:
            process.terminate()
            process.join(_END)
            process.kill()
            process.join()
        if pipe is not None:
            pipe.close()

    def _call(self, request: bytes) -> bytes:
        """The answer. Raises `HangError` after `max_seconds`, `BoardError` where the process died."""
        if self._process is None:
            self.start()
        pipe = self._pipe
        assert pipe is not None
        try:
            pipe.send_bytes(request)
            if pipe.poll(self._limits.max_seconds):
                return pipe.recv_bytes()
        except (EOFError, OSError):
            self.stop()
            raise BoardError(
                "the process ended while it ran the job; the job may have exceeded the memory limit"
            ) from None
        self.stop()
        raise HangError(f"the job was stopped after {self._limits.max_seconds:g} s, the time limit of one job")


class Jobs:
    """The work of the worker process: keeps programs in the memory of `device`, and runs them.

    A program finds nothing of others: the scratchpads are wiped when another one ran before it, and its memory starts
    at zero, its state at that of the client's session. Raises `CapacityError` for a device whose memory does not even
    hold the wiping program.
    """

    def __init__(self, device: Device, limits: Limits):
        self._device, self._limits = device, limits
        self._placed: OrderedDict[bytes, Loaded] = OrderedDict()
        self._sessions = Sessions(limits.max_bytes)
        self._wipe, self._last = Loaded(wipe(device.cfg), device), b""

    def load(self, digest: bytes, data: bytes) -> Any:
        """Load a program; a LoadReply with its digest or the error."""
        try:
            if digest not in self._placed:
                executable = Executable.from_bytes(data, "the program", most=self._limits.max_bytes)
                while len(self._placed) >= KEPT:
                    self._drop_oldest()
                self._placed[digest] = self._place(executable)
            return messages.make("LoadReply", digest=digest)
        except TilewrightError as exc:
            return messages.make("LoadReply", failure=[messages.failure(exc)])

    def run(self, request: Any) -> Any:
        """A RunReply for a RunRequest: outputs and reports, or the error; `unknown` where the program is not loaded."""
        loaded = self._placed.get(request.digest)
        if loaded is None:
            return messages.make("RunReply", unknown=True)
        self._placed.move_to_end(request.digest)
        try:
            if request.digest != self._last:
                self._wipe.run({})
                self._last = request.digest
            outputs = self._run(loaded, request)
        except TilewrightError as exc:
            return messages.make("RunReply", failure=[messages.failure(exc)])
        return messages.make("RunReply", outputs=messages.tensors(outputs), steps=messages.steps(loaded.reports))

    def _run(self, loaded: Loaded, request: Any) -> dict[str, np.ndarray]:
        """The outputs; a program with state starts from its session's, which gets what it leaves."""
        inputs = messages.arrays(request.inputs)
        if not loaded.executable.states:
            return loaded.run(inputs)
        key = request.session, request.digest
        state = self._sessions.find(key, request.runs)
        if state is None:
            loaded.reset()
        else:
            loaded.state = state
        outputs = loaded.run(inputs)
        self._sessions.keep(key, request.runs + 1, loaded.state)
        return outputs

    def end(self, request: Any) -> Any:
        """Drop the state of a session."""
        self._sessions.end(request.session)
        return messages.make("EndReply")

    def close(self) -> None:
        """Free the device's memory."""
        while self._placed:
            self._drop_oldest()
        self._wipe.close()

    def _place(self, executable: Executable) -> Loaded:
        while True:
            try:
                return Loaded(executable, self._device)
            except CapacityError:
                if not self._placed:
                    raise
                self._drop_oldest()

    def _drop_oldest(self) -> None:
        self._placed.popitem(last=False)[1].close()


def _main(pipe: Connection, offer: Offer, limits: Limits) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # as an exception, so that a running accelerator is stopped
    try:
        device: Any = open_device(offer.device, offer.cfg, **offer.options)
        if hasattr(device, "open"):
            device.open()  # a missing board is reported at once
        jobs = Jobs(device, limits)
    except TilewrightError as exc:
        pipe.send_bytes(messages.make("LoadReply", failure=[messages.failure(exc)]).SerializeToString())
        return
    memory = min(_taken() + limits.max_memory, sys.maxsize)
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    pipe.send_bytes(messages.make("LoadReply").SerializeToString())
    with contextlib.suppress(EOFError):
        while True:
            pipe.send_bytes(_answer(jobs, pipe.recv_bytes()).SerializeToString())


def _taken() -> int:
    """Bytes of this process's address space that are in use, by its libraries and the device; 0 if nobody says so."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return 0


def _answer(jobs: Jobs, request: bytes) -> Any:
    kind, body = request[:1], request[1:]
    if kind == _LOAD:
        return jobs.load(body[:DIGEST], body[DIGEST:])
    if kind == _END_SESSION:
        return jobs.end(messages.parse("EndRequest", body))
    return jobs.run(messages.parse("RunRequest", body))
