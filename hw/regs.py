"""The AXI-Lite register map, declared once for the RTL, the driver and the docs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag

from .config import ISA_VERSION, Config
from .metrics import CYCLES, hardware

MAGIC = 0x7E11  # upper half of VERSION; the lower half is the ISA version


class Error(IntEnum):
    """Codes of the ERROR register."""

    NONE = 0
    UNDECODABLE = 1
    READ_RESPONSE = 2
    WRITE_RESPONSE = 3
    WATCHDOG = 4
    RANGE = 5
    TOKENS_LEFT = 6


class Command(IntFlag):
    """Bits of CONTROL, as they are written."""

    START = 1
    RESET = 2


class Status(IntFlag):
    """Bits of CONTROL, as they are read."""

    RUNNING = 1
    DONE = 2
    ERROR = 4


@dataclass(frozen=True)
class Register:
    """One 32-bit register: byte `offset`, `access` is `r`, `w` or `rw`."""

    name: str
    offset: int
    access: str
    doc: str


def _bits(flags: type[IntFlag]) -> str:
    return ", ".join(f"bit {flag.value.bit_length() - 1}: {(flag.name or '').lower()}" for flag in flags)


_ROWS = [
    ("VERSION", "r", f"{MAGIC:#06x} in bits 31:16, ISA version ({ISA_VERSION}) in bits 15:0"),
    ("FINGERPRINT_LO", "r", "configuration fingerprint, bits 31:0"),
    ("FINGERPRINT_HI", "r", "configuration fingerprint, bits 63:32"),
    ("CONTROL", "rw", f"write {_bits(Command)}; read {_bits(Status)}"),
    ("INSN_COUNT", "rw", "instructions to fetch; ignores writes while running"),
    ("INSN_ADDR_LO", "rw", "byte address of the first instruction, bits 31:0; ignores writes while running"),
    ("INSN_ADDR_HI", "rw", "byte address of the first instruction, bits 63:32; ignores writes while running"),
    ("ERROR", "r", "first error: " + ", ".join(f"{e.value} {e.name.lower()}" for e in Error)),
    ("ERROR_INSN", "r", "index of the instruction of the first error"),
    ("WATCHDOG", "rw", "cycles without progress before the watchdog error; 0 turns it off"),
    (CYCLES.register, "r", CYCLES.doc),
]


def registers(cfg: Config) -> dict[str, Register]:
    """The register map of `cfg`: counters of further units follow the others."""
    rows = [(metric.register, "r", metric.doc) for metric in hardware(cfg)]
    return {name: Register(name, 4 * k, access, doc) for k, (name, access, doc) in enumerate([*_ROWS, *rows])}


REGISTERS = registers(Config())


def table() -> str:
    """The register map of a configuration without further units as a Markdown table."""
    rows = [f"| {r.offset:#05x} | `{r.name}` | {r.access} | {r.doc} |" for r in REGISTERS.values()]
    return "\n".join(["| offset | register | access | meaning |", "|---|---|---|---|", *rows])
