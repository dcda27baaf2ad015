"""A server that shares one device: `tilewright serve`. It accepts jobs by gRPC and runs one at a time.

Who calls is checked on the metadata of a call. Requests are streams of chunks, because gRPC receives the message of a
unary call whole before it asks anybody; of a refused call it holds no more than its window of 64 KiB.

A client can use the device, and nothing else: accesses of a program are checked against its own buffers, the size of
messages, time and memory are limited, and jobs run in a process that can be ended (boards/worker.py).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NoReturn

import grpc

from ..hw.errors import BoardError, CapacityError, ConfigError, HangError, InputError, TilewrightError
from . import messages
from .credentials import forget_token, is_loopback, keep_token
from .messages import SERVICE
from .worker import Limits, Offer, Worker, most_connections

Call = Callable[[Iterator[bytes], grpc.ServicerContext], bytes]
PORT = 50_177
CHUNK = 1 << 17  # bytes of a request's messages, but for the last
OVERHEAD = 1 << 16  # bytes of a message besides its arrays
KEPT_PROGRAMS = 4  # times `max_bytes` of programs that the server remembers
_REFUSERS = 4  # threads that calls never fill: they refuse
_FREE = 2  # calls that one connection leaves to the others
# of connections, with or without a token; options that a version of gRPC does not know have no effect
_CONNECTIONS = {
    "grpc.max_receive_message_length": CHUNK,
    "grpc.server_handshake_timeout_ms": 5_000,
    "grpc.max_connection_idle_ms": 30_000,
    "grpc.max_metadata_size": 8 << 10,
    "grpc.absolute_max_metadata_size": 16 << 10,
    "grpc.http2.bdp_probe": 0,  # measures a connection, and then lets calls that nobody reads have megabytes
    "grpc.http2.lookahead_bytes": 64 << 10,
    "grpc.keepalive_time_ms": 60_000,
    "grpc.keepalive_timeout_ms": 20_000,
    "grpc.http2.max_ping_strikes": 2,
    "grpc.so_reuseport": 0,
}


class Server:
    """Serves `offer` at `host`:`port` (0: any free port, then in `port`) from `start` to `stop`.

    Callers must send `token`. Without one the server makes its own when it starts, and keeps it until `stop` in
    `token_file`, where clients of the same user on this machine find it. `tls` is (certificate, key), PEM. Raises
    `ConfigError` for an address that others can reach without both.
    """

    def __init__(
        self,
        offer: Offer,
        *,
        host: str = "127.0.0.1",
        port: int = PORT,
        token: str = "",
        tls: tuple[bytes, bytes] | None = None,
        limits: Limits | None = None,
    ):
        if not is_loopback(host) and not (token and tls):
            raise ConfigError(
                f"other machines can reach {host}: add --token-file, --tls-cert and --tls-key, "
                "or serve on 127.0.0.1 and connect through an SSH tunnel"
            )
        self.limits, self._offer = limits or Limits(), offer
        self._worker = Worker(offer, self.limits)
        self._jobs = ThreadPoolExecutor(1, "job")  # one job at a time, in the order of their arrival
        self._programs: OrderedDict[bytes, bytes] = OrderedDict()  # by digest, the least recently used first
        self._lock, self._waiting = threading.Lock(), 0
        self._room, self._gate = Room(self.limits.held_bytes), _Gate(token, self.limits)
        self.token_file: Path | None = None
        age = int(1e3 * self.limits.max_seconds)
        options = _CONNECTIONS | {
            "grpc.max_allowed_incoming_connections": most_connections(),
            "grpc.max_concurrent_streams": self.limits.calls - _FREE,
            "grpc.max_send_message_length": self.limits.max_bytes + OVERHEAD,
            "grpc.max_connection_age_ms": age,
            "grpc.max_connection_age_grace_ms": int(1e3 * self.limits.call_seconds),
        }
        self._server = grpc.server(
            ThreadPoolExecutor(self.limits.calls + _REFUSERS, "call"),
            handlers=[grpc.method_handlers_generic_handler(SERVICE, self._handlers())],
            interceptors=[self._gate],
            options=list(options.items()),
        )
        address = f"[{host}]:{port}" if ":" in host.strip("[]") else f"{host}:{port}"
        try:
            if tls:
                credentials = grpc.ssl_server_credentials([(tls[1], tls[0])])
                self.port = self._server.add_secure_port(address, credentials)
            else:
                self.port = self._server.add_insecure_port(address)
        except (RuntimeError, ValueError) as exc:
            raise BoardError(f"cannot serve at {address} ({' '.join(str(exc).split())})") from None

    def start(self) -> None:
        """Open the device, then answer calls. Raises the errors of opening the device, and `FileError` where a token
        cannot be kept.
        """
        self._worker.start()
        if not self._gate.token:
            self._gate.token, self.token_file = keep_token(self.port)
        self._server.start()

    def wait(self) -> None:
        """Block until `stop`."""
        self._server.wait_for_termination()

    def stop(self) -> None:
        """Refuse further calls, end the job, close the device."""
        self._server.stop(0)
        self._jobs.shutdown(wait=False, cancel_futures=True)
        self._worker.stop()
        if self.token_file is not None:
            forget_token(self.token_file)

    def _handlers(self) -> dict[str, grpc.RpcMethodHandler]:
        methods = {"Info": self._info, "Load": self._load, "Run": self._run, "End": self._end}
        return {name: grpc.stream_unary_rpc_method_handler(self._checked(method)) for name, method in methods.items()}

    def _checked(self, method: Callable[[bytes, grpc.ServicerContext], bytes]) -> Call:
        """`method` on a request in chunks, with our errors as statuses."""
        limits = self.limits
        most = limits.max_bytes + OVERHEAD

        def call(chunks: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
            try:
                with Upload(chunks, self._room, most, limits.idle_seconds, limits.max_seconds) as request:
                    return method(request, context)
            except InputError as exc:
                _abort(context, grpc.StatusCode.INVALID_ARGUMENT, str(exc))
            except CapacityError as exc:
                _abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, str(exc))
            except HangError as exc:
                _abort(context, grpc.StatusCode.DEADLINE_EXCEEDED, str(exc))
            except BoardError as exc:
                _abort(context, grpc.StatusCode.ABORTED, str(exc))

        return call

    def _info(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        return messages.make(
            "Info",
            version=messages.VERSION,
            device=self._offer.device,
            config=json.dumps(self._offer.cfg.to_dict()),
            max_bytes=self.limits.max_bytes,
            max_seconds=self.limits.max_seconds,
            waiting=self._waiting,
        ).SerializeToString()

    def _load(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        program = messages.parse("LoadRequest", request).program
        digest = hashlib.sha256(program).digest()
        reply = self._queue(lambda wanted: self._worker.load(digest, program, wanted), context)
        if not messages.parse("LoadReply", reply).failure:
            self._remember(digest, program)
        return reply

    def _run(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        digest = messages.parse("RunRequest", request).digest

        def job(wanted: Callable[[], bool]) -> bytes:
            reply = self._worker.run(request, wanted)
            program = self._programs.get(digest)
            if (
                program is not None and messages.parse("RunReply", reply).unknown
            ):  # the worker was restarted, or evicted it
                self._worker.load(digest, program, wanted)
                reply = self._worker.run(request, wanted)
            return reply

        return self._queue(job, context)

    def _end(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        messages.parse("EndRequest", request)
        return self._queue(lambda wanted: self._worker.end(request, wanted), context)

    def _remember(self, digest: bytes, program: bytes) -> None:
        with self._lock:
            self._programs[digest] = program
            self._programs.move_to_end(digest)
            while sum(map(len, self._programs.values())) > KEPT_PROGRAMS * self.limits.max_bytes:
                self._programs.popitem(last=False)

    def _queue(self, job: Callable[[Callable[[], bool]], bytes], context: grpc.ServicerContext) -> bytes:
        """The result of `job`, run after the jobs before it with a function that tells whether its caller still waits.

        A job whose caller has disconnected is dropped before it runs, and stopped while it does.
        """

        def cancel() -> None:
            future.cancel()

        with self._lock:
            if self._waiting >= self.limits.queue:
                _abort(
                    context, grpc.StatusCode.RESOURCE_EXHAUSTED, f"{self._waiting} jobs are already waiting; try later"
                )
            self._waiting += 1
        try:
            future: Future[bytes] = self._jobs.submit(job, context.is_active)
            if not context.add_callback(cancel):
                future.cancel()
            return future.result()
        except CancelledError:
            _abort(context, grpc.StatusCode.CANCELLED, "cancelled")
        finally:
            with self._lock:
                self._waiting -= 1


def _abort(context: grpc.ServicerContext, code: grpc.StatusCode, text: str) -> NoReturn:
    context.abort(code, text)
    raise AssertionError  # abort has raised


class _Gate(grpc.ServerInterceptor):
    """Refuses calls without `token`, and calls beyond the limit, before any of their bodies is read.

    Refused calls are not counted: those of strangers take no place of a client. A call that is let in ends by itself
    after its time, also where its caller does not take the reply.
    """

    def __init__(self, token: str, limits: Limits):
        self.token, self._limits = token, limits
        self._lock, self._open = threading.Lock(), 0

    def intercept_service(self, continuation, handler_call_details):
        """Called by gRPC for every call, when its metadata is there."""
        found = dict(handler_call_details.invocation_metadata).get("authorization", "")
        found = found.encode() if isinstance(found, str) else bytes(found)
        if not hmac.compare_digest(found, f"Bearer {self.token}".encode()):
            return _refusal(grpc.StatusCode.UNAUTHENTICATED, "wrong or missing token")
        handler = continuation(handler_call_details)
        method = handler and handler.stream_unary
        if method is None:
            return None  # no such method
        with self._lock:
            if self._open >= self._limits.calls:
                return _refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{self._open} calls are already open; try later")
            self._open += 1
        return grpc.stream_unary_rpc_method_handler(partial(self._timed, method))

    def _timed(self, method: Call, chunks: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        timer = threading.Timer(self._limits.call_seconds, context.cancel)
        timer.daemon = True
        timer.start()

        def leave() -> None:
            timer.cancel()
            with self._lock:
                self._open -= 1

        if not context.add_callback(leave):
            leave()
        return method(chunks, context)


def _refusal(code: grpc.StatusCode, text: str) -> grpc.RpcMethodHandler:
    return grpc.stream_unary_rpc_method_handler(lambda chunks, context: _abort(context, code, text))


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

    def __exit__(self, *exc: object) -> None:
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
