"""Addresses, ports and clock of the accelerator on a PYNQ-Z1, shared by platform, build and driver."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...hw.circuit import check_buildable
from ...hw.config import Config
from ...hw.errors import ConfigError, UnsupportedError
from ...hw.regs import REGISTERS

PART = "xc7z020clg400-1"
DDR_BYTES = 512 << 20  # from address 0 on
GP0_WINDOW = (0x4000_0000, 0x8000_0000)  # addresses that the processors send to the programmable logic
SPAN = 4096  # bytes of the register window
NOWHERE = 0x8000_0000  # the memory ports of the processing system answer this address with an error
FCLK_MHZ = (1.0, 250.0)
MEMORIES = ("HP", "ACP")
# PS7 ports of the load ports, by `memory`; HP0 and HP1 share a port of the DRAM controller, as do HP2 and HP3
LOAD_PORTS = {"HP": ("SAXIHP0", "SAXIHP2", "SAXIHP1", "SAXIHP3"), "ACP": ("SAXIACP",)}
LEDS = {"alive": "R14", "done": "P14", "error": "N16"}  # LD0, LD1, LD2 and their pins


@dataclass(frozen=True)
class Board:
    """How the accelerator is connected to the board.

    `clock_mhz` is FCLK0's, `base` the byte address of the registers, `memory` the ports to DRAM: `HP`, where the driver
    flushes and invalidates caches, or the coherent `ACP`. Raises `ConfigError` for values that the board does not
    have.
    """

    clock_mhz: float = 100.0
    base: int = 0x43C0_0000
    memory: str = "HP"

    def __post_init__(self) -> None:
        low, high = FCLK_MHZ
        if not low <= self.clock_mhz <= high:
            raise ConfigError(f"Board.clock_mhz = {self.clock_mhz}: must be from {low:g} to {high:g}")
        first, end = GP0_WINDOW
        if self.base % SPAN or not first <= self.base < end:
            raise ConfigError(
                f"Board.base = {self.base:#x}: must be a multiple of {SPAN} from {first:#x} to {end - SPAN:#x}"
            )
        if self.memory not in MEMORIES:
            raise ConfigError(f"Board.memory = {self.memory!r}: must be {' or '.join(MEMORIES)}")

    @property
    def coherent(self) -> bool:
        """True where the accelerator sees the processors' caches."""
        return self.memory == "ACP"

    def load_port(self, k: int) -> str:
        """The PS7 port that serves the core's load port `k`."""
        return LOAD_PORTS[self.memory][k]

    @property
    def store_port(self) -> str:
        """The PS7 port that serves the core's store port; loads use its read channels, stores its write channels."""
        return LOAD_PORTS[self.memory][0]

    def design_name(self, cfg: Config) -> str:
        """File stem of the bitstream of `cfg`, unique to the configuration and the memory ports."""
        preset = re.sub(r"\W", "_", cfg.name) or "custom"
        return f"tilewright_{preset}_{cfg.fingerprint:016x}_{self.memory.lower()}"


def check_board(cfg: Config, board: Board) -> None:
    """Raise `UnsupportedError` for a configuration that does not fit the board's ports."""
    check_buildable(cfg)
    ports = LOAD_PORTS[board.memory]
    if cfg.axi_bits != 64:
        raise UnsupportedError(f"Config.axi_bits = {cfg.axi_bits}: must be 64, as the board's memory ports")
    if cfg.load_ports > len(ports):
        raise UnsupportedError(
            f"Config.load_ports = {cfg.load_ports}: {board.memory} has {len(ports)}; use that number or memory HP"
        )
    if board.coherent and cfg.out_entry_bits % 64:
        raise UnsupportedError(
            f"Config.out_bits = {cfg.out_bits}: an output entry of {cfg.out_entry_bits} bits is stored with partial "
            "strobes, which the ACP does not support; use a multiple of 64 bits or memory HP"
        )


def table(board: Board | None = None) -> str:
    """Ports, addresses and clocks as a Markdown table."""
    board = board or Board()
    last = max(register.offset for register in REGISTERS.values())
    rows = [
        ("clock", "FCLK0 through a BUFG", f"{board.clock_mhz:g} MHz, set by the driver after the bitstream is loaded"),
        ("reset", "FCLKRESETN[0], two flip-flops", "FCLK0's domain"),
        ("registers", "MAXIGP0", f"{board.base:#010x} to {board.base + SPAN - 1:#010x}; the last is at {last:#05x}"),
        *(
            (f"load port {k}", f"{port}, read channels", f"64 bit, DDR at 0x00000000 to {DDR_BYTES - 1:#010x}")
            for k, port in enumerate(LOAD_PORTS["HP"])
        ),
        ("store port 0", f"{board.store_port}, write channels", "64 bit, the same DDR"),
        ("the same, `--memory ACP`", LOAD_PORTS["ACP"][0], "one load port; coherent (AxUSER 11111, AxCACHE 1111)"),
        ("interrupt", "IRQF2P[0]", "high while the core is done"),
        *((f"LED {name}", pin, "LVCMOS33") for name, pin in LEDS.items()),
    ]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(["| what | where | values |", "| --- | --- | --- |", *lines])
