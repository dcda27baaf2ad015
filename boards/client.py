"""A program on the device of a server: what `runtime.loader.Loaded` is for a device of one's own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np

from ..hw.config import Config
from ..hw.errors import BoardError, ConfigError, FingerprintError, HangError, InputError
from ..runtime.device import Stats
from ..runtime.executable import Executable
from ..runtime.loader import StepReport, checked_input
from . import messages
from .pynq_z1.check import Check, run_self_test, stepwise
from .server import OVERHEAD, PORT, is_loopback

SECONDS = 600.0  # that a call may take: the jobs of others come first
_HINTS = {
    grpc.StatusCode.UNAVAILABLE: "no answer; is `tilewright serve` running there, with or without TLS as here?",
    grpc.StatusCode.UNAUTHENTICATED: "wrong or missing token; give the server's with --token-file",
    grpc.StatusCode.UNIMPLEMENTED: "what answers there is no tilewright server",
}


@dataclass(frozen=True)
class Address:
    """Where a server is and how to reach it: `host` is NAME[:PORT], `ca` PEM certificates to trust (TLS), `token`.

    Raises `ConfigError` for a token that would cross a network in the clear.
    """

    host: str
    token: str = ""
    ca: bytes | None = None
    seconds: float = SECONDS

    def __post_init__(self) -> None:
        name = self.target.rpartition(":")[0]
        if self.token and self.ca is None and not is_loopback(name):
            raise ConfigError(
                f"{self.host}: a token is sent to another machine only over TLS; add --tls-ca, or use an SSH tunnel: "
                f"ssh -L {PORT}:localhost:{PORT} {name}, then --host localhost"
            )

    @property
    def target(self) -> str:
        """NAME:PORT."""
        bare = self.host.rpartition("]")[2] if self.host.startswith("[") else self.host
        return self.host if ":" in bare else f"{self.host}:{PORT}"


class Client:
    """Calls of one server. Raises `BoardError` where it does not answer, or not as it should."""

    def __init__(self, address: Address):
        self.address = address
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        if address.ca is None:
            self._channel = grpc.insecure_channel(address.target, options)
        else:
            self._channel = grpc.secure_channel(address.target, grpc.ssl_channel_credentials(address.ca), options)

    def close(self) -> None:
        """End the connection."""
        self._channel.close()

    def info(self) -> tuple[Any, Config]:
        """The server's Info message, and the configuration of its device."""
        found = messages.parse("Info", self.call("Info", b""))
        if found.version != messages.VERSION:
            raise BoardError(f"{self.address.host}: speaks version {found.version}, this is {messages.VERSION}")
        try:
            return found, Config.from_dict(json.loads(found.config))
        except (ValueError, TypeError, KeyError, AttributeError) as exc:
            raise BoardError(f"{self.address.host}: names no configuration that is known here ({exc})") from None

    def call(self, method: str, request: bytes) -> bytes:
        """The answer to `request`, the bytes of a message."""
        metadata = (("authorization", f"Bearer {self.address.token}"),) if self.address.token else ()
        call = self._channel.unary_unary(f"/{messages.SERVICE}/{method}")
        try:
            return call(request, timeout=self.address.seconds, metadata=metadata)
        except grpc.RpcError as exc:
            code, details = exc.code(), " ".join((exc.details() or "").split())
            if code == grpc.StatusCode.INVALID_ARGUMENT:
                raise InputError(f"{self.address.host}: {details}") from None
            if code == grpc.StatusCode.DEADLINE_EXCEEDED:
                raise HangError(f"{self.address.host}: {details}") from None
            raise BoardError(f"{self.address.host}: {_HINTS.get(code, details)} ({code.name.lower()})") from None


class RemoteProgram:
    """`executable` on the server at `address`; `run`, `reports` and `stats` as of `runtime.loader.Loaded`.

    Raises `FingerprintError` where the server's device is of another configuration, `InputError` for a program that is
    larger than the server takes, and what placing it there raises.
    """

    def __init__(self, executable: Executable, address: Address):
        self.executable = executable
        self.reports: list[StepReport] = []
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
        """End the connection; the server forgets the program by itself."""
        self._client.close()

    @property
    def stats(self) -> Stats:
        """Counts of the last run."""
        return sum((r.stats for r in self.reports), Stats())

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by name. Raises `InputError`, and what the device raises."""
        wanted = {t.name: t for t in self.executable.inputs}
        arrays = {
            name: checked_input(wanted[name], array) if name in wanted else np.asarray(array)
            for name, array in inputs.items()
        }
        request = messages.make("RunRequest", digest=self._digest, inputs=messages.tensors(arrays))
        reply = self._ask(request)
        if reply.unknown:  # others used the server since
            self._load()
            reply = self._ask(request)
        if reply.unknown:
            raise BoardError(f"{self._client.address.host}: forgets the program before it runs; try again")
        messages.raise_failure(reply.failure)
        self.reports = messages.reports(reply.steps)
        return messages.arrays(reply.outputs)

    def _ask(self, request: Any) -> Any:
        return messages.parse("RunReply", self._client.call("Run", self._sized("inputs", request)))

    def _load(self) -> None:
        request = self._sized("program", messages.make("LoadRequest", program=self._program))
        messages.raise_failure(messages.parse("LoadReply", self._client.call("Load", request)).failure)

    def _sized(self, what: str, request: Any) -> bytes:
        data = request.SerializeToString()
        if len(data) > self._most + OVERHEAD:
            raise InputError(f"the {what} has {len(data):,} bytes, {self._client.address.host} takes {self._most:,}")
        return data

    def _check(self, address: Address, cfg: Config) -> None:
        mine = self.executable.cfg
        if cfg.fingerprint != mine.fingerprint:
            raise FingerprintError(
                f"program {self.executable.name!r} is for {mine.name} (fingerprint {mine.fingerprint:016x}), "
                f"{address.host} has {cfg.name} ({cfg.fingerprint:016x}); compile it for that configuration"
            )


def check_server(cfg: Config, address: Address) -> Iterator[Check]:
    """The checks of the server at `address` as one of a device of `cfg`, up to the first that fails."""
    client = Client(address)

    def server() -> str:
        info, its = client.info()
        return f"offers {info.device} ({its.name}, {its.fingerprint:016x}), {info.waiting} jobs wait"

    def product() -> str:
        return run_self_test(cfg, lambda launch: RemoteProgram(Executable.from_launch(launch), address))

    try:
        yield from stepwise((("server", server), ("self-test", product)))
    finally:
        client.close()
