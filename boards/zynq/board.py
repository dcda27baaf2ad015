"""A board as data: its row, and how the accelerator is connected to it; platform, build and driver share both.

Each board has a row, a file of JSON in this folder; a user's own board is such a file elsewhere.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ...hw.circuit import check_buildable
from ...hw.config import Config, read_fields
from ...hw.errors import ConfigError, UnsupportedError
from ...hw.regs import REGISTERS
from .system import DEVICES, SYSTEMS, Port, System

ROWS = Path(__file__).parent
BOARDS = sorted(path.stem for path in ROWS.glob("*.json"))
DEFAULT = "pynq_z1"
SPAN = 4096  # bytes of the register window
LIGHTS = ("alive", "done", "error")
_DERIVED = {"name", "base", "memory"}  # no fields of a row


@dataclass(frozen=True)
class Board:
    """A board with the accelerator on it.

    `part` is Vivado's name of the FPGA, `system` its processing system in `SYSTEMS`, `crystal_mhz` that system's
    reference clock, `ddr_bytes` the DRAM, `pins` those of `LIGHTS`, of which a board may have fewer, on LVCMOS33,
    `pin_names` what the board calls them. `clock_mhz` is the accelerator's clock, `base` the byte address of its
    registers (default: the system's), `memory` its ports to DRAM: `HP`, where the driver flushes and invalidates
    caches, or the coherent `ACP`. Raises `ConfigError` for values that the board or its system does not have.
    """

    name: str
    title: str
    part: str
    system: str
    crystal_mhz: float
    clock_mhz: float
    ddr_bytes: int
    pins: Mapping[str, str] = field(default_factory=dict)
    pin_names: str = ""
    base: int = -1
    memory: str = "HP"

    def __post_init__(self) -> None:
        for key, kinds in (("title", str), ("part", str), ("crystal_mhz", (int, float)), ("clock_mhz", (int, float))):
            if not isinstance(value := getattr(self, key), kinds) or isinstance(value, bool):
                raise ConfigError(f"Board.{key} = {value!r}: must be a {'text' if kinds is str else 'number'}")
        if self.system not in SYSTEMS:
            raise ConfigError(f"Board.system = {self.system!r}: must be {' or '.join(SYSTEMS)}")
        if not any(self.part.startswith(device) for device in DEVICES):
            raise ConfigError(f"Board.part = {self.part!r}: must begin with {', '.join(DEVICES)}")
        if type(self.ddr_bytes) is not int or self.ddr_bytes < 1 << 20:
            raise ConfigError(f"Board.ddr_bytes = {self.ddr_bytes!r}: must be a number of bytes, 1048576 or more")
        if not isinstance(self.pins, Mapping) or not set(self.pins) <= set(LIGHTS):
            raise ConfigError(f"Board.pins = {self.pins!r}: must be pins of {', '.join(LIGHTS)}")
        if self.base == -1:
            object.__setattr__(self, "base", self.ps.registers.base)
        low, high = self.ps.clock_mhz
        if not low <= self.clock_mhz <= high:
            raise ConfigError(f"Board.clock_mhz = {self.clock_mhz}: must be from {low:g} to {high:g}")
        first, end = self.ps.registers.window
        if self.base % SPAN or not first <= self.base < end:
            raise ConfigError(
                f"Board.base = {self.base:#x}: must be a multiple of {SPAN} from {first:#x} to {end - SPAN:#x}"
            )
        if self.memory not in self.ps.memories:
            raise ConfigError(f"Board.memory = {self.memory!r}: must be {' or '.join(self.ps.memories)}")

    def replace(self, **changes: object) -> Board:
        """A copy with `changes`. Raises `ConfigError` for an impossible value."""
        return dataclasses.replace(self, **changes)  # pyright: ignore[reportArgumentType]

    @property
    def ps(self) -> System:
        """The processing system."""
        return SYSTEMS[self.system]

    @property
    def device(self) -> str:
        """The FPGA without package and speed grade."""
        return next(device for device in DEVICES if self.part.startswith(device))

    @property
    def available(self) -> Mapping[str, int]:
        """The FPGA's LUTs, flip-flops, block RAMs and DSPs: `lut`, `ff`, `bram`, `dsp`."""
        return DEVICES[self.device]

    @property
    def oscillator_factor(self) -> int:
        """The even factor from the clock to the oscillator of the system's `doubler`.

        Raises `UnsupportedError` for a clock that cannot be doubled.
        """
        low, high = self.ps.doubled_mhz
        if not low <= self.clock_mhz <= high:
            raise UnsupportedError(
                f"Board.clock_mhz = {self.clock_mhz:g}: array_clock 2 needs a clock of twice that, which the FPGA "
                f"makes of {low:g} to {high:g} MHz; use one of these"
            )
        return 2 * min(int(self.ps.oscillator_mhz[1] / self.clock_mhz) // 2, 32)

    @property
    def coherent(self) -> bool:
        """True where the accelerator sees the processors' caches."""
        return self.load_port(0).user is not None

    def load_port(self, k: int) -> Port:
        """The port of the processing system that serves the core's load port `k`."""
        return self.ps.memories[self.memory][k]

    @property
    def store_port(self) -> Port:
        """The port that serves the core's store port; loads use its read channels, stores its write channels."""
        return self.load_port(0)

    def ports(self, cfg: Config) -> list[Port]:
        """The ports that the core of `cfg` uses, each once."""
        return list(self.ps.memories[self.memory][: cfg.load_ports])

    @property
    def reachable(self) -> int:
        """Bytes of DRAM from address 0 on that programs may use."""
        return min(self.ddr_bytes, self.ps.low_memory)

    def design_name(self, cfg: Config) -> str:
        """File stem of the bitstream of `cfg`, with the board, what programs depend on, and the memory ports."""
        board, preset = (re.sub(r"\W", "_", name) or "custom" for name in (self.name, cfg.name))
        ports = f"{self.memory.lower()}{cfg.axi_bits if len(self.ps.widths) > 1 else ''}"
        return f"tilewright_{board}_{preset}_{cfg.fingerprint:016x}_{ports}"


def load_board(spec: str | None = None) -> Board:
    """The board `spec`: a name in `BOARDS`, or a .json file with the fields of a row; None is the PYNQ-Z1.

    Raises `ConfigError` for an unknown name or impossible fields, `FileError` for an unreadable file.
    """
    name = DEFAULT if spec is None else spec
    if name not in BOARDS and not name.endswith(".json"):
        raise ConfigError(f"unknown board {name!r:.80}; known are {', '.join(BOARDS)}, or give a .json file")
    path = str(ROWS / f"{name}.json") if name in BOARDS else name
    values = read_fields(path, "board", BOARDS)
    fields = {f.name: f for f in dataclasses.fields(Board) if f.name not in _DERIVED}
    for key in values:
        if key not in fields:
            raise ConfigError(f"{path}: a board has no field {key!r}; it has {', '.join(fields)}")
    required = [f.name for f in fields.values() if f.default is f.default_factory is dataclasses.MISSING]
    if missing := [key for key in required if key not in values]:
        raise ConfigError(f"{path}: a board needs {', '.join(missing)}")
    return Board(name=Path(path).stem, **values)


def check_board(cfg: Config, board: Board) -> None:
    """Raise `UnsupportedError` for a configuration that does not fit the board's ports."""
    check_buildable(cfg)
    ports, widths = board.ps.memories[board.memory], board.ps.widths
    if cfg.axi_bits not in widths:
        raise UnsupportedError(
            f"Config.axi_bits = {cfg.axi_bits}: must be {' or '.join(map(str, widths))}, as the board's memory ports"
        )
    if cfg.load_ports > len(ports):
        raise UnsupportedError(
            f"Config.load_ports = {cfg.load_ports}: {board.memory} has {len(ports)}; use that number or memory HP"
        )
    if cfg.array_clock == 2:
        _ = board.oscillator_factor
    if board.coherent and cfg.out_entry_bits % 64:
        raise UnsupportedError(
            f"Config.out_bits = {cfg.out_bits}: an output entry of {cfg.out_entry_bits} bits is stored with partial "
            "strobes, which the ACP does not support; use a multiple of 64 bits or memory HP"
        )


def boards_table() -> str:
    """The boards as a Markdown table."""
    rows = [
        (
            f"`--board {board.name}`",
            board.title,
            board.part,
            f"{board.ps.cell}, {board.ps.axi}",
            f"{len(board.ps.memories['HP'])} x {' or '.join(map(str, board.ps.widths))} bit",
            f"{board.clock_mhz:g} MHz",
            f"{board.ddr_bytes >> 20:,} MB",
            f"{board.base:#x}",
            board.pin_names,
        )
        for board in map(load_board, BOARDS)
    ]
    heads = ("option", "board", "part", "processing system", "HP ports", "clock", "DRAM", "registers at", "lights")
    return _markdown(heads, rows)


def table(board: Board) -> str:
    """Ports, addresses and clocks of `board` as a Markdown table."""
    last = max(register.offset for register in REGISTERS.values())
    ps, end = board.ps, board.reachable - 1
    reset = f"{ps.reset}[0], two flip-flops" if ps.reset else "initial values of two flip-flops"
    rows = [
        (
            "clock",
            f"{ps.clock_name} through a {ps.buffer}",
            f"{board.clock_mhz:g} MHz, set by the driver before and after it loads the bitstream",
        ),
        ("reset", reset, f"{ps.clock_name}'s domain"),
        (
            "registers",
            ps.registers.name,
            f"{board.base:#010x} to {board.base + SPAN - 1:#010x}; the last is at {last:#05x}",
        ),
        *(
            (f"load port {k}", f"{port.name}, read channels", f"{_bits(ps)}, DDR at 0x00000000 to {end:#010x}")
            for k, port in enumerate(ps.memories["HP"])
        ),
        ("store port 0", f"{board.store_port.name}, write channels", f"{_bits(ps)}, the same DDR"),
        *(
            ("the same, `--memory ACP`", port.name, "one load port; coherent (AxUSER 11111, AxCACHE 1111)")
            for port in ps.memories.get("ACP", ())
        ),
        ("interrupt", f"{ps.interrupt}[0]", "high while the core is done"),
        *((f"LED {name}", pin, "LVCMOS33") for name, pin in board.pins.items()),
    ]
    return _markdown(("what", "where", "values"), rows)


def _bits(ps: System) -> str:
    return f"{' or '.join(map(str, ps.widths))} bit"


def _markdown(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows)]
    return "\n".join(lines)
