"""Runs programs on the device of a server, as `runtime.loader.Loaded` runs them on a device of this machine."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import grpc
import numpy as np

from ..hw.config import Config
from ..hw.errors import BoardError, ConfigError, FileError, FingerprintError, HangError, InputError, TilewrightError
from ..hw.foreign import parse_json
from ..runtime.device import Stats
from ..runtime.executable import Executable
from ..runtime.loader import StepReport, checked_input
from . import messages
from .credentials import find_token, is_loopback
from .messages import Message
from .selftest import Check, run_self_test, stepwise
from .server import OVERHEAD, PORT, chunks
from .worker import ID

SECONDS = 600.0  # that a call may take, the time in the server's queue included
_HINTS = {
    grpc.StatusCode.UNAVAILABLE: "no answer; check that `tilewright serve` runs there, with the same use of TLS",
    grpc.StatusCode.UNAUTHENTICATED: "wrong or missing token; give the server's token with --token-file",
    grpc.StatusCode.UNIMPLEMENTED: "another program than a tilewright server answers at this address",
}


@dataclass(frozen=True)
class Address:
    """A server's address: `host` is NAME[:PORT], `token` the shared token, `ca` the PEM certificates to trust (TLS).

    Without `token`, that which a server of this machine keeps for its user is sent to it.

    Raises `ConfigError` for a token that would cross a network unencrypted.
    """

    host: str
    token: str = ""
    ca: bytes | None = None
    seconds: float = SECONDS

    def __post_init__(self) -> None:
        name = self.target.rpartition(":")[0]
        if self.token and self.ca is None and not is_loopback(name):
            raise ConfigError(
                f"{self.host}: sending a token to another machine needs TLS; add --tls-ca, or use an SSH tunnel: "
                f"ssh -L {PORT}:localhost:{PORT} {name}, then --host localhost"
            )

    @property
    def target(self) -> str:
        """The address as gRPC takes it, NAME:PORT; the default port is added."""
        bare = self.host.rpartition("]")[2] if self.host.startswith("[") else self.host
        return self.host if ":" in bare else f"{self.host}:{PORT}"


class Client:
    """A connection to one server. Calls raise `BoardError` where it does not answer, or answers wrongly."""

    def __init__(self, address: Address):
        self.address = address
        name, _, port = address.target.rpartition(":")
        self._token = address.token or (find_token(int(port)) if is_loopback(name) and port.isdigit() else "")
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        if address.ca is None:
            self._channel = grpc.insecure_channel(address.target, options)
        else:
            self._channel = grpc.secure_channel(address.target, grpc.ssl_channel_credentials(address.ca), options)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def info(self) -> tuple[Message, Config]:
        """The server's Info message, and the configuration of its device."""
        found = messages.parse("Info", self.call("Info", b""))
        if found.version != messages.VERSION:
            raise BoardError(
                f"{self.address.host}: the server speaks protocol version {found.version}, this client "
                f"{messages.VERSION}; install the same release on both"
            )
        try:
            return found, Config.from_dict(parse_json(found.config, "the server's configuration"))
        except (ValueError, TypeError, KeyError, AttributeError, FileError) as exc:
            raise BoardError(
                f"{self.address.host}: the configuration that the server sent is not valid here ({exc})"
            ) from None

    def call(self, method: str, request: bytes) -> bytes:
        """The answer to `request`, the bytes of a message."""
        metadata = (("authorization", f"Bearer {self._token}"),) if self._token else ()
        call = self._channel.stream_unary(f"/{messages.SERVICE}/{method}")
        try:
            return call(chunks(request), timeout=self.address.seconds, metadata=metadata)
        except grpc.RpcError as exc:
            code, details = exc.code(), " ".join((exc.details() or "").split())
            if code == grpc.StatusCode.INVALID_ARGUMENT:
                raise InputError(f"{self.address.host}: {details}") from None
            if code == grpc.StatusCode.DEADLINE_EXCEEDED:
                raise HangError(f"{self.address.host}: {details}") from None
            raise BoardError(f"{self.address.host}: {_HINTS.get(code, details)} ({code.name.lower()})") from None


class RemoteProgram:
    """`executable` on the server at `address`; `run`, `reset`, `reports` and `stats` as of `runtime.loader.Loaded`.

    It is one client of the server: what it leaves there, its state included, no other client sees. Raises
    `FingerprintError` where the server's device is of another configuration, `InputError` for a program larger than the
    server accepts, the errors of loading it there, and those of `verify`: a server runs only programs that are proved.
    """

    def __init__(self, executable: Executable, address: Address):
        self.executable = executable
        self.reports: list[StepReport] = []
        self._session, self._runs = secrets.token_bytes(ID), 0
        self._client = Client(address)
        try:
            info, cfg = self._client.info()
            self._most = info.max_bytes
            self._check(address, cfg)
            self._program = executable.to_bytes()
            self._digest = hashlib.sha256(self._program).digest()
            self._load()
        except BaseException:
            self._client.close()
            raise

    def __enter__(self) -> RemoteProgram:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the server drops the state at once, the program later."""
        if self.executable.states and self._runs:
            with contextlib.suppress(TilewrightError):  # a server that is gone has no state
                self._client.call("End", messages.make("EndRequest", session=self._session).SerializeToString())
        self._client.close()

    def reset(self) -> None:
        """The next run starts from the initial state."""
        self._runs = 0

    @property
    def stats(self) -> Stats:
        """Counts of the last run."""
        return sum((r.stats for r in self.reports), Stats())

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by name. Raises `InputError`, the errors of the device, and `BoardError` where the state is lost."""
        wanted = {t.name: t for t in self.executable.inputs}
        arrays = {
            name: checked_input(wanted[name], array) if name in wanted else np.asarray(array)
            for name, array in inputs.items()
        }
        request = self._request(messages.tensors(arrays))
        reply = self._ask(request)
        if reply.unknown:  # the jobs of others displaced it
            self._load()
            reply = self._ask(request)
        if reply.unknown:
            raise BoardError(f"{self._client.address.host}: the server dropped the program before it ran; try again")
        messages.raise_failure(reply.failure)
        self._runs += 1
        self.reports = messages.reports(reply.steps)
        return messages.arrays(reply.outputs)

    def _request(self, inputs: list[Message]) -> Message:
        runs = self._runs if self.executable.states else 0
        return messages.make("RunRequest", digest=self._digest, inputs=inputs, session=self._session, runs=runs)

    def _ask(self, request: Message) -> Message:
        return messages.parse("RunReply", self._client.call("Run", self._sized("inputs", request)))

    def _load(self) -> None:
        request = self._sized("program", messages.make("LoadRequest", program=self._program))
        messages.raise_failure(messages.parse("LoadReply", self._client.call("Load", request)).failure)

    def _sized(self, what: str, request: Message) -> bytes:
        data = request.SerializeToString()
        if len(data) > self._most + OVERHEAD:
            raise InputError(
                f"{what} of {len(data):,} bytes: {self._client.address.host} accepts at most {self._most:,}"
            )
        return data

    def _check(self, address: Address, cfg: Config) -> None:
        mine = self.executable.cfg
        if cfg.fingerprint != mine.fingerprint:
            raise FingerprintError(
                f"program {self.executable.name!r} is for {mine.name} (fingerprint {mine.fingerprint:016x}), "
                f"{address.host} has {cfg.name} ({cfg.fingerprint:016x}); compile it for that configuration"
            )


def check_server(cfg: Config, address: Address) -> Iterator[Check]:
    """Check the server at `address`, whose device should be of `cfg`, up to the first check that fails."""
    client = Client(address)

    def server() -> str:
        info, its = client.info()
        return f"offers {info.device} ({its.name}, {its.fingerprint:016x}), {info.waiting} jobs waiting"

    def product() -> str:
        return run_self_test(cfg, lambda launch: RemoteProgram(Executable.from_launch(launch), address))

    try:
        yield from stepwise((("server", server), ("self-test", product)))
    finally:
        client.close()
