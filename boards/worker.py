"""The process that owns a server's device: it runs one job after the other, and can be ended without harm to the rest.

Parent and worker exchange the bytes of messages over a pipe; data from a client is never unpickled or executed. Each
client has a session of its own. It names it by random bytes, and says with every run how many it has seen since the
initial state; where the server has lost the state, or was asked twice, the run is refused: none continues from values
that its client does not expect.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import signal
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from ..hw.config import Config
from ..hw.errors import BoardError, CapacityError, HangError, InputError, ProgramError, TilewrightError
from ..hw.foreign import machine_memory
from ..hw.isa import MICRO_OPS, SCRATCHPADS, AluOp, Op, entry_bytes, instruction, room
from ..runtime.device import Device, open_device
from ..runtime.executable import Executable
from ..runtime.launch import Launch
from ..runtime.loader import Loaded
from ..runtime.program import Program
from ..runtime.verify import verify, verify_steady
from . import messages
from .messages import Message

DIGEST = 32  # bytes of a program's SHA-256
KEPT = 4  # programs that stay in device memory
_LOAD, _RUN, _END_SESSION = b"L", b"R", b"E"
_START = 900.0  # seconds that a device may take to open: a circuit is built first
_END = 3.0  # seconds that a job may take to stop, and after that the process; both stop the device
_LOOK = 0.05  # seconds between two looks whether the caller still waits, and between two signals to stop
ID = 16  # random bytes that name a session, which nobody else guesses
KEPT_SESSIONS = 64  # sessions whose state is kept
Key = tuple[bytes, bytes]  # of a session and a program's digest
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


@dataclass(frozen=True)
class Offer:
    """The device that a server offers: its name in `runtime.device`, its configuration, and options of its class."""

    device: str
    cfg: Config
    options: dict[str, object] = field(default_factory=dict)


class Worker:
    """A device in a process of its own. One call at a time, which ends when it is not `wanted` any more."""

    def __init__(self, offer: Offer, limits: Limits):
        self._offer, self._limits = offer, limits
        self._process: Any = None
        self._pipe: Connection | None = None
        self._sender: threading.Thread | None = None  # of the request; a worker that reads nothing blocks it

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

    def load(self, digest: bytes, program: bytes, wanted: Callable[[], bool]) -> bytes:
        """Check `program`, the contents of a .tw file, and load it under its `digest`; a LoadReply."""
        return self._call(_LOAD + digest + program, wanted)

    def run(self, request: bytes, wanted: Callable[[], bool]) -> bytes:
        """Execute a RunRequest; a RunReply."""
        return self._call(_RUN + request, wanted)

    def end(self, request: bytes, wanted: Callable[[], bool]) -> bytes:
        """Drop the state of an EndRequest's session; an EndReply."""
        return self._call(_END_SESSION + request, wanted)

    def stop(self) -> None:
        """End the process; it stops the device first, if it can within `_END` seconds."""
        process, self._process = self._process, None
        pipe, self._pipe = self._pipe, None
        if process is not None:
            process.terminate()
            process.join(_END)
            process.kill()
            process.join()
        if self._sender is not None:
            self._sender.join()  # it writes no more: nobody reads
        if pipe is not None:
            pipe.close()

    def _call(self, request: bytes, wanted: Callable[[], bool]) -> bytes:
        """The answer. Raises `HangError` after `max_seconds`, `CancelledError` where it is not `wanted` any more.

        `BoardError` where the process died.
        """
        if self._process is None:
            self.start()
        pipe, process = self._pipe, self._process
        assert pipe is not None and process is not None
        try:
            self._sender = threading.Thread(target=_send, args=(pipe, request), daemon=True)
            self._sender.start()
            end = time.monotonic() + self._limits.max_seconds
            while wanted() and time.monotonic() < end:
                if pipe.poll(max(0.0, min(_LOOK, end - time.monotonic()))):
                    return pipe.recv_bytes()
            for _ in range(round(_END / _LOOK)):
                os.kill(process.pid, signal.SIGUSR1)  # again, since a job that has not begun ignores it
                if pipe.poll(_LOOK):  # the job was stopped, or has just ended
                    pipe.recv_bytes()
                    break
            else:
                self.stop()
        except (EOFError, OSError):
            self.stop()
            raise BoardError(
                "the process ended while it ran the job; the job may have exceeded the memory limit"
            ) from None
        if not wanted():
            raise CancelledError
        raise HangError(f"the job was stopped after {self._limits.max_seconds:g} s, the time limit of one job")


def _send(pipe: Connection, request: bytes) -> None:
    with contextlib.suppress(OSError):  # the process ended, which whoever waits for the reply is told
        pipe.send_bytes(request)


class Jobs:
    """The work of the worker process: keeps programs in the memory of `device`, and runs them.

    A client finds nothing of others: when another session ran before it, the scratchpads and all memory that programs
    write are wiped, and state starts at that of its session. Programs that `verify` does not prove are refused.
    Raises `CapacityError` for a device whose memory does not even hold the wiping program.
    """

    def __init__(self, device: Device, limits: Limits):
        self._device, self._limits = device, limits
        self._placed: OrderedDict[bytes, Loaded] = OrderedDict()
        self._sessions = Sessions(limits.max_bytes)
        self._wipe = Loaded(wipe(device.cfg), device)
        self._session: bytes | None = None  # that of the last run
        self._used = set[bytes]()  # digests of the programs that it ran
        self._stops = False  # whether `interrupt` stops what is done now

    def load(self, digest: bytes, data: bytes) -> Message:
        """Load a program; a LoadReply with its digest or the error."""
        try:
            if digest not in self._placed:
                with self._interruptible():
                    executable = Executable.from_bytes(data, "the program", most=self._limits.max_bytes)
                    _prove(executable)
                while len(self._placed) >= KEPT:
                    self._drop_oldest()
                self._placed[digest] = self._place(executable)
            return messages.make("LoadReply", digest=digest)
        except TilewrightError as exc:
            return messages.make("LoadReply", failure=[messages.failure(exc)])

    def run(self, request: Message) -> Message:
        """A RunReply for a RunRequest: outputs and reports, or the error; `unknown` where the program is not loaded."""
        loaded = self._placed.get(request.digest)
        if loaded is None:
            return messages.make("RunReply", unknown=True)
        self._placed.move_to_end(request.digest)
        try:
            if len(request.session) != ID:
                raise InputError(f"a session of {len(request.session)} bytes; every run names one of {ID}")
            with self._interruptible():
                if request.session != self._session:
                    self._clear()
                    self._session = request.session
                self._used.add(request.digest)
                outputs = self._run(loaded, request)
        except KeyboardInterrupt:
            self._session = None
            self._drop(request.digest)
            raise
        except TilewrightError as exc:
            return messages.make("RunReply", failure=[messages.failure(exc)])
        return messages.make("RunReply", outputs=messages.tensors(outputs), steps=messages.steps(loaded.reports))

    def _run(self, loaded: Loaded, request: Message) -> dict[str, np.ndarray]:
        """The outputs; a program with state starts from the state of its session, which keeps the new state."""
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

    def _clear(self) -> None:
        """Zero the scratchpads and all memory that programs write, before another client runs."""
        self._session = None  # until all is wiped
        for digest in self._used & self._placed.keys():
            self._placed[digest].clear()
        self._wipe.run({})
        self._used.clear()

    @contextlib.contextmanager
    def _interruptible(self) -> Iterator[None]:
        try:
            self._stops = True
            yield
        finally:
            self._stops = False

    def interrupt(self) -> None:
        """Raise `KeyboardInterrupt`, which stops a device, where a job loads a program or runs one."""
        if self._stops:
            self._stops = False
            raise KeyboardInterrupt

    def end(self, request: Message) -> Message:
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
        self._drop(next(iter(self._placed)))

    def _drop(self, digest: bytes) -> None:
        self._placed.pop(digest).close()


def _prove(executable: Executable) -> None:
    """Raise the errors of `verify` for a launch that they refuse, such as one that reads what it has not written, and
    those of `verify_steady`.
    """
    for step in executable.launches:
        try:
            verify(step.launch, memory=True)
        except ProgramError as exc:
            text = f"step {step.name!r}: {exc}; a shared device runs only programs that `tilewright verify` proves"
            raise type(exc)(text) from None
    verify_steady(executable.steps)


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
    signal.signal(signal.SIGUSR1, lambda *_: jobs.interrupt())
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


def _answer(jobs: Jobs, request: bytes) -> Message:
    kind, body = request[:1], request[1:]
    with contextlib.suppress(KeyboardInterrupt):
        if kind == _LOAD:
            return jobs.load(body[:DIGEST], body[DIGEST:])
        if kind == _END_SESSION:
            return jobs.end(messages.parse("EndRequest", body))
        return jobs.run(messages.parse("RunRequest", body))
    return messages.make("EndReply")  # nobody waits for the reply of a job that was stopped


class Sessions:
    """The states that sessions left: at most `KEPT_SESSIONS`, of `nbytes` bytes together; those used last stay."""

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
        while len(self._kept) > KEPT_SESSIONS or sum(_nbytes(one) for _, one in self._kept.values()) > self._nbytes:
            self._kept.popitem(last=False)

    def end(self, session: bytes) -> None:
        """Drop the states of `session`."""
        for key in [key for key in self._kept if key[0] == session]:
            del self._kept[key]


def _nbytes(state: Mapping[str, np.ndarray]) -> int:
    return sum(array.nbytes for array in state.values())


def wipe(cfg: Config) -> Launch:
    """A launch after which every scratchpad of `cfg` is zero, micro-ops, parameters and tables included."""
    program = Program(cfg, "wipe")
    for mem in SCRATCHPADS:
        row = instruction(Op.LOAD, mem)
        if mem not in MICRO_OPS and row is not None and not row.missing(cfg):
            zero = np.zeros(entry_bytes(cfg, mem), np.uint8)
            entry = program.buffer(mem.name, zero.shape, kind="constant", data=zero)
            program.load(mem, 0, entry, 0, y_size=room(cfg, mem), x_stride=0)  # the same entry again and again
    program.alu_uops(AluOp.ADD, np.zeros((cfg.uop_depth, 2), np.int64), imm=0)
    if "ternary" in cfg.units:
        program.ternary_uops(np.zeros((cfg.uop_depth, 3), np.int64), reset=True)
    return program.finish()
