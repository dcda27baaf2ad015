"""The device that `run` executes a program on: one of this machine, or that of a server."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ..hw.errors import UnsupportedError
from ..hw.needs import need
from . import report
from .options import device_option, device_options, dram_option, skip_option, waves_option

if TYPE_CHECKING:
    from ..boards.client import Address
    from ..runtime.executable import Executable

bitstream_option = click.option("--bitstream", metavar="FILE.bit", help="On a board: another bitstream.")
clock_option = click.option("--clock", type=float, metavar="MHZ", help="On a board: the accelerator's clock. [100]")
_BOARD_OPTIONS = (
    click.option("--host", metavar="NAME[:PORT]", help="A remote board, on which `tilewright serve` runs."),
    click.option(
        "--token-file",
        metavar="FILE",
        help="With --host: the token of that server; a server of this machine and user needs none.",
    ),
    click.option("--tls-ca", metavar="FILE", help="With --host: TLS, trusting this certificate, PEM."),
    bitstream_option,
    clock_option,
)


@dataclass(frozen=True)
class Where:
    """The device by `name`, with the options for it."""

    name: str
    waves: str | None = None
    skip: tuple[str, ...] = ()
    dram: str | None = None
    host: str | None = None
    token_file: str | None = None
    tls_ca: str | None = None
    bitstream: str | None = None
    clock: float | None = None

    @property
    def clock_hz(self) -> float:
        """The accelerator's clock: that of the board, or the one that simulated cycles are converted with."""
        from ..compiler import cost

        return cost.CLOCK if self.clock is None else 1e6 * self.clock

    def check(self) -> None:
        """Raise `UnsupportedError` for an unknown device, or options that it does not have."""
        device_options(self.name, self.waves, self.skip, self.dram)
        board_options(self.name, self.bitstream, self.clock)
        if self.host is None:
            for option, value in (("--token-file", self.token_file), ("--tls-ca", self.tls_ca)):
                if value is not None:
                    raise UnsupportedError(f"{option} {value}: needs a server; add --on board --host NAME")
            return
        if self.name != "board":
            raise UnsupportedError(f"--host {self.host}: device {self.name!r} is local; use --on board")
        if self.bitstream is not None or self.clock is not None:
            raise UnsupportedError("--bitstream and --clock: the server chooses them; give them to `tilewright serve`")
        need_grpc()

    def address(self) -> Address:
        """The server's address. Raises `FileError` if the token or certificate cannot be read."""
        from ..boards.client import Address
        from ..boards.credentials import read_token

        assert self.host is not None
        token = read_token(self.token_file) if self.token_file else ""
        return Address(self.host, token, read_pem(self.tls_ca) if self.tls_ca else None)

    def open(self, executable: Executable) -> AbstractContextManager[Any]:
        """`executable`, ready to run: a `Loaded`, or a `RemoteProgram` on a server."""
        if self.host is not None:
            from ..boards.client import RemoteProgram

            return RemoteProgram(executable, self.address())
        from ..runtime.device import open_device
        from ..runtime.loader import Loaded

        options = device_options(self.name, self.waves, self.skip, self.dram) | board_options(
            self.name, self.bitstream, self.clock
        )
        return Loaded(executable, report.opened(open_device(self.name, executable.cfg, **options)))


def where_options(function: Callable) -> Callable:
    """Add the options that choose a device; the verb gets them as one `Where`, its argument `where`."""
    return _as_where(function, (device_option(), *_BOARD_OPTIONS, waves_option, skip_option, dram_option))


def board_where_options(function: Callable) -> Callable:
    """Add those of `where_options` that choose a board."""
    return _as_where(function, _BOARD_OPTIONS)


def _as_where(function: Callable, options: Sequence[Callable]) -> Callable:
    @functools.wraps(function)
    def call(*args: Any, host: Any, token_file: Any, tls_ca: Any, bitstream: Any, clock: Any, **rest: Any) -> Any:
        device, waves = rest.pop("device", "board"), rest.pop("waves", None)
        skip, dram = rest.pop("skip", ()), rest.pop("dram", None)
        where = Where(device, waves, skip, dram, host, token_file, tls_ca, bitstream, clock)
        return function(*args, where=where, **rest)

    wrapped: Any = call
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped


def board_options(device: str, bitstream: str | None, clock: float | None) -> dict[str, object]:
    """Options of `open_device` for a board. Raises `UnsupportedError` if the device is not a board."""
    if device != "board":
        for option, value in (("--bitstream", bitstream), ("--clock", clock)):
            if value is not None:
                raise UnsupportedError(f"{option} {value}: device {device!r} is not a board; use --on board")
        return {}
    from ..boards.pynq_z1.board import Board

    options: dict[str, object] = {} if bitstream is None else {"bitstream": bitstream}
    return options if clock is None else options | {"board": Board(clock_mhz=clock)}


def read_pem(path: str) -> bytes:
    """The bytes of a certificate or key. Raises `FileError`."""
    from ..hw.foreign import read_regular

    return read_regular(path, "a certificate or key, PEM", 1 << 20)


def need_grpc() -> None:
    """Raise `UnsupportedError` if gRPC or its messages are not installed."""
    need("a remote board", "board", "grpc", "google.protobuf")
