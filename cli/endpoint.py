"""The completions protocol over HTTP, for this machine: requests in, documents or streams out."""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
import select
import socket
import socketserver
import threading
import time
from http.server import BaseHTTPRequestHandler
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from ..boards.credentials import LEAST_TOKEN, is_loopback
from ..hw.errors import ConfigError, FileError
from ..hw.foreign import parse_json
from . import report
from .completions import Completions, Refused, Reply, error_of

PORT = 8080
CONNECTIONS = 32  # at a time; one of them has the device, the others wait
REQUEST_BYTES = 1 << 20
SILENCE = 30.0  # seconds after which a connection ends that brings or takes nothing
_LINGER, _CHUNK = 2.0, 1 << 16  # seconds, and bytes at a time, in which what a caller still sends is read and dropped


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `ADDRESS:PORT`, either of which may be left out.

    Raises `ConfigError`, also for an address that other machines reach.
    """
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname or "127.0.0.1", PORT if parts.port is None else parts.port
    except ValueError:
        parts, host, port = None, "", 0
    if parts is None or parts.netloc != text or "@" in text:
        raise ConfigError(f"--serve {text!r}: is no ADDRESS:PORT; give one as 127.0.0.1:{PORT}")
    if text.isdecimal():
        raise ConfigError(f"--serve {text}: is no ADDRESS:PORT; for that port give :{text}")
    if not is_loopback(host):
        raise ConfigError(
            f"--serve {text}: others could read what travels to this address; give a local one, as 127.0.0.1:{PORT}, "
            "behind a proxy with TLS where others call"
        )
    return ("127.0.0.1" if host == "localhost" else host), port


def new_key() -> str:
    """A random key for callers."""
    return secrets.token_hex(LEAST_TOKEN)


class Endpoint(socketserver.ThreadingTCPServer):
    """Serves `completions` at `host` and `port` (0: any free one) to callers with the `key`."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = CONNECTIONS

    def __init__(self, completions: Completions, host: str, port: int, key: str):
        self.completions, self.key = completions, key
        self.device = threading.Lock()
        self.ends = threading.Event()
        self._slots = threading.BoundedSemaphore(CONNECTIONS)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), _Handler)
        except OSError as exc:
            raise ConfigError(f"--serve {host}:{port}: {exc.strerror or exc}; give another port") from None
        self.port: int = self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own, or end the connection where there are too many."""
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and give the connection's place back."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections that break are none of ours; the handler answers all other errors."""

    def close(self) -> None:
        """End what is being written, and the server; `serve_forever` has ended before."""
        self.ends.set()
        with self.device:
            self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "tilewright", ""
    timeout = SILENCE

    @property
    def _endpoint(self) -> Endpoint:
        return cast(Endpoint, self.server)

    def do_GET(self) -> None:
        """The model, or the list of it."""
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # what a body holds is no next request
        self._answered(self._get)

    def do_POST(self) -> None:
        """Completions, of a text or of a chat."""
        self._answered(self._post)

    def _answered(self, answer: Any) -> None:
        try:
            self._check_key()
            answer(self._path())
        except OSError:  # the caller is gone, or takes nothing
            self.close_connection = True
        except Exception as exc:
            self._refuse(error_of(exc))

    def _path(self) -> str:
        try:
            return urlsplit(self.path).path.rstrip("/")
        except ValueError:
            raise Refused(f"{self.path[:80]!r} is no address; give a path, as /v1/models") from None

    def _check_key(self) -> None:
        kind, _, key = self.headers.get("Authorization", "").partition(" ")
        right = hmac.compare_digest(key.strip().encode(), self._endpoint.key.encode())
        if kind.lower() != "bearer" or not right:
            raise Refused("wrong or missing API key; give the server's", 401, code="invalid_api_key")

    def _get(self, path: str) -> None:
        served = self._endpoint.completions
        if path == "/v1/models":
            self._send(200, served.models())
        elif path.startswith("/v1/models/"):
            self._send(200, served.model(unquote(path.removeprefix("/v1/models/"))))
        else:
            raise self._unknown(path)

    def _post(self, path: str) -> None:
        if path not in ("/v1/completions", "/v1/chat/completions"):
            raise self._unknown(path)
        request = self._body()
        with self._endpoint.device:
            self._check_caller()
            start = time.perf_counter()
            reply = self._endpoint.completions.reply(request, chat=path == "/v1/chat/completions")
            if reply.stream:
                self._stream(reply)
            else:
                for _ in reply.answer:
                    self._check_caller()
                self._send(200, reply.document())
            seconds = time.perf_counter() - start
        tokens = report.counted(len(reply.answer.tokens), "token")
        report.say(f"{path}: {reply.prompt_tokens} + {tokens}, {seconds:.1f} s", err=True)

    def _unknown(self, path: str) -> Refused:
        return Refused(f"{self.command} {path}: this server has /v1/models, /v1/completions, /v1/chat/completions", 404)

    def _body(self) -> Any:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()) or "Transfer-Encoding" in self.headers:
            raise Refused("a request needs Content-Length", 411)
        if len(length) > 9 or int(length) > REQUEST_BYTES:
            raise Refused(f"the request has {length} bytes; at most {REQUEST_BYTES:,} are allowed", 413)
        try:
            return parse_json(self.rfile.read(int(length)), "the request")
        except FileError as exc:
            raise Refused(str(exc)) from None

    def _check_caller(self) -> None:
        """Raise `ConnectionError` where nobody waits for the answer any more, or the server ends."""
        readable = select.select([self.connection], [], [], 0)[0]
        if self._endpoint.ends.is_set() or (readable and not self.connection.recv(1, socket.MSG_PEEK)):
            raise ConnectionError

    def _stream(self, reply: Reply) -> None:
        self.close_connection = True  # the end of the connection is the end of the stream
        self.send_response(200)
        for name, value in (("Content-Type", "text/event-stream"), ("Cache-Control", "no-cache")):
            self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        try:
            for chunk in reply.chunks():
                self._check_caller()
                self._event(chunk)
            self.wfile.write(b"data: [DONE]\n\n")
        except OSError:
            raise
        except Exception as exc:
            self._event(error_of(exc).document())

    def _event(self, document: object) -> None:
        self.wfile.write(b"data: " + json.dumps(document).encode() + b"\n\n")

    def _send(self, status: int, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def _refuse(self, exc: Refused) -> None:
        self.close_connection = True  # the body may not have been read
        self._send(exc.status, exc.document())

    def finish(self) -> None:
        """End the connection when the caller has read all: closed with unread bytes, it would lose the answer."""
        super().finish()
        end = time.monotonic() + _LINGER
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            while (left := end - time.monotonic()) > 0:
                self.connection.settimeout(left)
                if not self.connection.recv(_CHUNK):
                    break

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """An error of HTTP itself, in the protocol's form."""
        self._refuse(Refused(message or self.responses[code][0], code))

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: answers are said when they are written."""
