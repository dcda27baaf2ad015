"""A server that shares one device: `tilewright serve`. It accepts jobs by gRPC and runs one at a time.

A client can use the device, and nothing else: accesses of a program are checked against its own buffers, the size of
messages, time and memory are limited, and jobs run in a process that can be ended (boards/worker.py).
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

import grpc

from ..hw.errors import BoardError, ConfigError, FileError, HangError, InputError
from . import messages
from .messages import SERVICE
from .worker import Limits, Offer, Worker

PORT = 50_177
LEAST_TOKEN = 16  # characters
OVERHEAD = 1 << 16  # bytes of a message besides its arrays
KEPT_PROGRAMS = 4  # times `max_bytes` of programs that the server remembers
_SPARE = 4  # calls that are answered while the queue is full


def is_loopback(host: str) -> bool:
    """True where only this machine can reach `host`."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def read_token(path: str | Path) -> str:
    """The shared token in the file `path`. Raises `FileError`, and `ConfigError` for a token that is easy to guess."""
    try:
        token = Path(path).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise FileError(f"{path}: the token cannot be read ({getattr(exc, 'strerror', None) or 'not ASCII'})") from None
    if len(token) < LEAST_TOKEN or not token.isprintable() or " " in token:
        raise ConfigError(
            f"{path}: a token must have at least {LEAST_TOKEN} printable characters and no space; "
            "make one with: python3 -c 'import secrets; print(secrets.token_hex(16))'"
        )
    return token


class Server:
    """Serves `offer` at `host`:`port` (0: any free port, then in `port`) from `start` to `stop`.

    With `token`, callers must send it; `tls` is (certificate, key), PEM. Raises `ConfigError` for an address that
    others can reach without both.
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
        calls = self.limits.queue + _SPARE
        most = self.limits.max_bytes + OVERHEAD
        options = [
            ("grpc.max_receive_message_length", most),
            ("grpc.max_send_message_length", most),
            ("grpc.so_reuseport", 0),
            (
                "grpc.max_connection_age_ms",
                int(1e3 * self.limits.max_seconds),
            ),  # ends calls of clients that send nothing
            ("grpc.max_connection_age_grace_ms", int(1e3 * self.limits.max_seconds * calls)),
        ]
        self._server = grpc.server(
            ThreadPoolExecutor(calls, "call"),
            handlers=[grpc.method_handlers_generic_handler(SERVICE, self._handlers())],
            interceptors=[_Token(token)] if token else [],
            options=options,
            maximum_concurrent_rpcs=calls,
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
        """Open the device, then answer calls. Raises the errors of opening the device."""
        self._worker.start()
        self._server.start()

    def wait(self) -> None:
        """Block until `stop`."""
        self._server.wait_for_termination()

    def stop(self) -> None:
        """Refuse further calls, end the job, close the device."""
        self._server.stop(0)
        self._jobs.shutdown(wait=False, cancel_futures=True)
        self._worker.stop()

    def _handlers(self) -> dict[str, Any]:
        methods = {"Info": self._info, "Load": self._load, "Run": self._run}
        return {name: grpc.unary_unary_rpc_method_handler(_checked(method)) for name, method in methods.items()}

    def _info(self, request: bytes, context: Any) -> bytes:
        return messages.make(
            "Info",
            version=messages.VERSION,
            device=self._offer.device,
            config=json.dumps(self._offer.cfg.to_dict()),
            max_bytes=self.limits.max_bytes,
            max_seconds=self.limits.max_seconds,
            waiting=self._waiting,
        ).SerializeToString()

    def _load(self, request: bytes, context: Any) -> bytes:
        program = messages.parse("LoadRequest", request).program
        digest = hashlib.sha256(program).digest()
        reply = self._queue(lambda: self._worker.load(digest, program), context)
        if not messages.parse("LoadReply", reply).failure:
            self._remember(digest, program)
        return reply

    def _run(self, request: bytes, context: Any) -> bytes:
        digest = messages.parse("RunRequest", request).digest

        def job() -> bytes:
            reply = self._worker.run(request)
            program = self._programs.get(digest)
            if (
                program is not None and messages.parse("RunReply", reply).unknown
            ):  # the worker was restarted, or evicted it
                self._worker.load(digest, program)
                reply = self._worker.run(request)
            return reply

        return self._queue(job, context)

    def _remember(self, digest: bytes, program: bytes) -> None:
        with self._lock:
            self._programs[digest] = program
            self._programs.move_to_end(digest)
            while sum(map(len, self._programs.values())) > KEPT_PROGRAMS * self.limits.max_bytes:
                self._programs.popitem(last=False)

    def _queue(self, job: Callable[[], bytes], context: Any) -> bytes:
        """The result of `job`, run after the jobs before it; a job whose caller has disconnected by then is dropped."""
        with self._lock:
            if self._waiting >= self.limits.queue:
                _abort(
                    context, grpc.StatusCode.RESOURCE_EXHAUSTED, f"{self._waiting} jobs are already waiting; try later"
                )
            self._waiting += 1
        try:
            future: Future[bytes] = self._jobs.submit(job)
            if not context.add_callback(future.cancel):
                future.cancel()
            return future.result()
        except CancelledError:
            _abort(context, grpc.StatusCode.CANCELLED, "cancelled")
        finally:
            with self._lock:
                self._waiting -= 1


def _checked(method: Callable[[bytes, Any], bytes]) -> Callable[[bytes, Any], bytes]:
    """`method` with our errors as statuses."""

    def call(request: bytes, context: Any) -> bytes:
        try:
            return method(request, context)
        except InputError as exc:
            _abort(context, grpc.StatusCode.INVALID_ARGUMENT, str(exc))
        except HangError as exc:
            _abort(context, grpc.StatusCode.DEADLINE_EXCEEDED, str(exc))
        except BoardError as exc:
            _abort(context, grpc.StatusCode.ABORTED, str(exc))

    return call


def _abort(context: Any, code: grpc.StatusCode, text: str) -> NoReturn:
    context.abort(code, text)
    raise AssertionError  # abort has raised


class _Token(grpc.ServerInterceptor):
    """Refuses calls without the token, before reading anything else of them."""

    def __init__(self, token: str):
        self._expected = f"Bearer {token}".encode()
        self._refusal = grpc.unary_unary_rpc_method_handler(
            lambda request, context: context.abort(grpc.StatusCode.UNAUTHENTICATED, "wrong or missing token")
        )

    def intercept_service(self, continuation, handler_call_details):
        """Called by gRPC for every call."""
        found = dict(handler_call_details.invocation_metadata).get("authorization", "")
        found = found.encode() if isinstance(found, str) else bytes(found)
        return continuation(handler_call_details) if hmac.compare_digest(found, self._expected) else self._refusal
