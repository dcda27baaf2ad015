"""Options shared by several verbs, and the device they choose: on this machine, or on a server."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import click

from ..apps.quantise.samples import Pictures
from ..boards.credentials import read_token
from ..boards.zynq.board import BOARDS, DEFAULT, Board, load_board
from ..compiler import cost
from ..compiler.frontend.source import INPUT_TYPES
from ..hw.errors import UnsupportedError
from ..hw.foreign import read_regular
from ..hw.needs import need
from ..runtime.device import open_device
from ..runtime.executable import Executable
from ..runtime.loader import Loaded
from ..runtime.registry import CIRCUITS, describe_devices, device_entry
from ..sim.dram import load_dram
from . import report

if TYPE_CHECKING:
    from ..boards.client import Address

DEFAULT_CONFIG = "pynq_z1"
TIMED = ("timing", *CIRCUITS)  # devices whose memory `--dram` describes

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
contract_option = click.option(
    "--contract",
    type=click.Choice(["double", "single"]),
    help="How networks round: twice, as TensorFlow Lite Micro does, or once, as onnxruntime. [the format's]",
)
tiles_option = click.option(
    "--tiles", metavar="DB", help="For networks: use the tiles that `tilewright tune` found, where they help."
)
mapping_option = click.option(
    "--mapping", metavar="FILE", help="For networks: which output channels run on which compute unit, .json."
)
target_option = click.option(
    "--target",
    metavar="FILE.py:NAME",
    help="For networks: kernels of `tw.kernel`, or modules, that stand beside those that are there; or a whole target.",
)
skip_option = click.option(
    "--skip",
    multiple=True,
    type=click.Choice(["gemm", "alu", "dma"]),
    help="With --on timing: units whose work takes no time; may be given several times.",
)
dram_option = click.option(
    "--dram",
    metavar="NAME|FILE",
    help="The memory of timing and rtl: preset or JSON file, and fields: zynq_hp4,latency=80. What is compiled for "
    "them gets tiles for it. [zynq_hp]",
)
memory_option = click.option(
    "--dram", metavar="NAME|FILE", help="The memory that tiles are chosen for, as --dram of run has it. [zynq_hp]"
)
context_option = click.option(
    "--context",
    type=click.IntRange(1),
    metavar="N",
    help="For Llamas in float: the longest text, in tokens. [the model's; of GGUF and folders at most 2048]",
)
batch_option = click.option(
    "--batch",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="For networks: inputs that a run takes.",
)


resident_option = click.option(
    "--resident",
    is_flag=True,
    help="Keep constants, as weights, on chip from run to run as far as they fit: runs after the first load fewer.",
)


def _typed(context: click.Context, option: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    """The types by the inputs' names, of the texts NAME=TYPE."""
    pairs = [value.rpartition("=") for value in values]
    wrong = next((value for value, (name, _, kind) in zip(values, pairs) if not name or kind not in INPUT_TYPES), None)
    if wrong is not None:
        raise click.BadParameter(f"{wrong!r} is not NAME=TYPE, with a type of {', '.join(INPUT_TYPES)}")
    return {name: kind for name, _, kind in pairs}


input_type_option = click.option(
    "--input-type",
    "input_types",
    multiple=True,
    metavar="NAME=TYPE",
    callback=_typed,
    help=f"The type of an input, {', '.join(INPUT_TYPES)}, for files in Deeploy's dialect, which do not say it; may be "
    "given several times. [as inputs.npz beside the file has it, else int8]",
)
scheduler_option = click.option(
    "--scheduler", metavar="tcp://HOST:PORT", help="Work on the workers of this Dask scheduler instead."
)


class _Numbers(click.ParamType):
    """Numbers with commas between them."""

    name = "numbers"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[float, ...]:
        try:
            return tuple(float(number) for number in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is no list of numbers; give one as 0.485,0.456,0.406", param, ctx)


class _Shape(click.ParamType):
    """`x=1,3,224,224`, or with `x` between the sizes."""

    name = "shape"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, tuple[int, ...]]:
        name, _, sizes = str(value).rpartition("=")
        if not name or not re.fullmatch(r"\d+([x,]\d+)*", sizes):
            self.fail(f"{value!r} is no shape; give one as x=1,3,224,224", param, ctx)
        return name, tuple(int(size) for size in re.split("[x,]", sizes))


shape_option = click.option(
    "--shape",
    "shapes",
    type=_Shape(),
    multiple=True,
    metavar="NAME=1,3,H,W",
    callback=lambda context, option, values: dict(values),
    help="For networks: sizes of an input that has open ones; may be given several times.",
)
_PICTURE_OPTIONS = (
    click.option(
        "--mean", type=_Numbers(), metavar="M[,M,M]", help="Pixels: the mean of each channel, from 0 to 1. [0]"
    ),
    click.option("--std", type=_Numbers(), metavar="S[,S,S]", help="Pixels: the deviation of each channel. [1]"),
    click.option("--resize", is_flag=True, help="Pixels: bring pictures to the size of the input."),
)
waves_option = click.option("--waves", metavar="FILE", help="With --on rtl: write waveforms to FILE.fst or FILE.vcd.")


@dataclass(frozen=True)
class Choices:
    """Options of compiling a network: rounding contract, database of tiles, file of its channels' compute units,
    the target FILE.py:NAME, the memory that tiles are chosen for, how many inputs a run takes, the types of inputs, and
    their shapes, by name, the positions of a Llama in float, and whether constants stay on chip. None: the default.
    """

    contract: str | None = None
    tiles: str | None = None
    mapping: str | None = None
    target: str | None = None
    dram: str | None = None
    batch: int = 1
    input_types: Mapping[str, str] | None = None
    shapes: Mapping[str, tuple[int, ...]] | None = None
    context: int | None = None
    resident: bool = False


NO_CHOICES = Choices()


def choice_options(*options: Callable) -> Callable:
    """Add those options of a network's compilation; the verb gets them as one `Choices`, its argument `choices`."""

    def add(function: Callable) -> Callable:
        @functools.wraps(function)
        def call(*args: Any, **values: Any) -> Any:
            given = {field.name: values.pop(field.name) for field in fields(Choices) if field.name in values}
            return function(*args, choices=Choices(**given), **values)

        return _with_options(call, options)

    return add


def _with_options(function: Any, options: Sequence[Callable]) -> Any:
    for option in reversed(options):
        function = option(function)
    return function


def picture_options(function: Callable) -> Callable:
    """Add the options that say how pixels become numbers; the verb gets them as `picture`, None without any."""

    @functools.wraps(function)
    def call(*args: Any, mean: Any, std: Any, resize: bool, **rest: Any) -> Any:
        picture = Pictures(mean or (0.0,), std or (1.0,), resize) if mean or std or resize else None
        return function(*args, picture=picture, **rest)

    return _with_options(call, _PICTURE_OPTIONS)


def device_option(default: str = "model", help_text: str = "What executes the program:") -> Callable:
    """`--on`; `help_text` goes before the list of devices."""
    text = f"{help_text} {describe_devices()}."
    return click.option("--on", "device", default=default, show_default=True, metavar="DEVICE", help=text)


def device_options(
    device: str, waves: str | None, skip: tuple[str, ...] = (), dram: str | None = None
) -> dict[str, object]:
    """Options of `open_device`. Raises `UnsupportedError` for an unknown device, or one that lacks the option, and the
    errors of `load_dram`.
    """
    device_entry(device)
    if skip and device != "timing":
        raise UnsupportedError(f"--skip {skip[0]}: device {device!r} executes everything; use --on timing")
    if waves is not None and device not in CIRCUITS:
        raise UnsupportedError(f"--waves {waves}: device {device!r} has no waveforms; use --on rtl")
    options: dict[str, object] = {"skip": frozenset(skip)} if skip else {}
    if waves is not None:
        options["waves"] = waves
    if dram is not None:
        if device not in TIMED:
            what = "has a memory of its own" if device == "board" else "counts no cycles"
            raise UnsupportedError(f"--dram {dram}: device {device!r} {what}; use --on {' or '.join(TIMED)}")
        options["dram"] = load_dram(dram)
    return options


def config_option(default: str | None = DEFAULT_CONFIG, help_text: str = "") -> Callable:
    """`--config`; None as `default` lets the verb decide."""
    text = help_text or "Preset, VTA configuration string, or JSON file of configuration fields."
    return click.option("--config", default=default, show_default=default is not None, metavar="NAME|FILE", help=text)


bitstream_option = click.option("--bitstream", metavar="FILE.bit", help="On a board: another bitstream.")
clock_option = click.option("--clock", type=float, metavar="MHZ", help="On a board: the accelerator's clock. [its own]")


def board_option(help_text: str, **settings: Any) -> Callable:
    """`--board`; `help_text` goes before the names."""
    text = f"{help_text} {', '.join(BOARDS)}, or a .json file of a board."
    return click.option("--board", metavar="NAME|FILE", help=text, **settings)


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
on_board_option = board_option(f"With --on board: the board [{DEFAULT}]:")
# without a name: the default's
check_board_option = board_option(
    "Check a board instead, this machine or with --host a server:", is_flag=False, flag_value=""
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
    board: str | None = None

    @property
    def clock_hz(self) -> float:
        """The clock of the board, or the clock for converting simulated cycles into seconds."""
        if self.clock is None:
            return 1e6 * load_board(self.board).clock_mhz if self.board else cost.CLOCK
        return 1e6 * self.clock

    def check(self) -> None:
        """Raise `UnsupportedError` for an unknown device, or options that it does not have."""
        device_options(self.name, self.waves, self.skip, self.dram)
        board_options(self.name, self.bitstream, self.clock, self.board)
        if self.host is None:
            for option, value in (("--token-file", self.token_file), ("--tls-ca", self.tls_ca)):
                if value is not None:
                    raise UnsupportedError(f"{option} {value}: needs a server; add --on board --host NAME")
            return
        if self.name != "board":
            raise UnsupportedError(f"--host {self.host}: device {self.name!r} is local; use --on board")
        if self.bitstream is not None or self.clock is not None or self.board:
            raise UnsupportedError(
                "--bitstream, --clock and --board: the server chooses them; give them to `tilewright serve`"
            )
        need_grpc()

    def address(self) -> Address:
        """The server's address. Raises `FileError` if the token or certificate cannot be read."""
        from ..boards.client import Address

        assert self.host is not None
        token = read_token(self.token_file) if self.token_file else ""
        return Address(self.host, token, read_pem(self.tls_ca) if self.tls_ca else None)

    def open(self, executable: Executable) -> AbstractContextManager[Any]:
        """`executable`, ready to run: a `Loaded`, or a `RemoteProgram` on a server."""
        if self.host is not None:
            from ..boards.client import RemoteProgram

            return RemoteProgram(executable, self.address())
        options = device_options(self.name, self.waves, self.skip, self.dram) | board_options(
            self.name, self.bitstream, self.clock, self.board
        )
        return Loaded(executable, report.opened(open_device(self.name, executable.cfg, **options)))


def where_options(function: Callable) -> Callable:
    """Add the options that choose a device; the verb gets them as one `Where`, its argument `where`."""
    return _as_where(
        function, (device_option(), *_BOARD_OPTIONS, on_board_option, waves_option, skip_option, dram_option)
    )


def board_where_options(function: Callable) -> Callable:
    """Add the options of a board, without the device's choice and the simulators' options."""
    return _as_where(function, (check_board_option, *_BOARD_OPTIONS))


def _as_where(function: Callable, options: Sequence[Callable]) -> Callable:
    @functools.wraps(function)
    def call(
        *args: Any, host: Any, token_file: Any, tls_ca: Any, bitstream: Any, clock: Any, board: Any, **rest: Any
    ) -> Any:
        device, waves = rest.pop("device", "board"), rest.pop("waves", None)
        skip, dram = rest.pop("skip", ()), rest.pop("dram", None)
        where = Where(device, waves, skip, dram, host, token_file, tls_ca, bitstream, clock, board)
        return function(*args, where=where, **rest)

    return _with_options(call, options)


def board_options(device: str, bitstream: str | None, clock: float | None, board: str | None) -> dict[str, object]:
    """Options of `open_device` for a board. Raises `UnsupportedError` if the device is not a board."""
    if device != "board":
        for option, value in (("--bitstream", bitstream), ("--clock", clock), ("--board", board)):
            if value is not None:
                raise UnsupportedError(f"{option} {value}: device {device!r} is not a board; use --on board")
        return {}
    options: dict[str, object] = {} if bitstream is None else {"bitstream": bitstream}
    return options | {"board": chosen_board(board, clock)}


def chosen_board(board: str | None, clock: float | None = None) -> Board:
    """The board by name or file (default: the PYNQ-Z1), at `clock` MHz where it is given. Raises as `load_board`."""
    found = load_board(board or None)
    return found if clock is None else found.replace(clock_mhz=clock)


def read_pem(path: str) -> bytes:
    """The bytes of a certificate or key. Raises `FileError`."""
    return read_regular(path, "a certificate or key, PEM", 1 << 20)


def need_grpc() -> None:
    """Raise `UnsupportedError` if gRPC or its messages are not installed."""
    need("a remote board", "board", "grpc", "google.protobuf")
