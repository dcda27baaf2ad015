"""hw/regs.py: offsets and access are an interface to drivers, so they are typed here once more."""

from tilewright.hw.config import ISA_VERSION
from tilewright.hw.regs import MAGIC, REGISTERS, Error, table

EXPECTED = {
    "VERSION": (0x00, "r"),
    "FINGERPRINT_LO": (0x04, "r"),
    "FINGERPRINT_HI": (0x08, "r"),
    "CONTROL": (0x0C, "rw"),
    "INSN_COUNT": (0x10, "rw"),
    "INSN_ADDR_LO": (0x14, "rw"),
    "INSN_ADDR_HI": (0x18, "rw"),
    "ERROR": (0x1C, "r"),
    "ERROR_INSN": (0x20, "r"),
    "WATCHDOG": (0x24, "rw"),
    "CYCLES": (0x28, "r"),
    "LOAD_BUSY": (0x2C, "r"),
    "LOAD_TOKEN_WAIT": (0x30, "r"),
    "LOAD_MEMORY_WAIT": (0x34, "r"),
    "LOAD_INSNS": (0x38, "r"),
    "LOAD_BYTES": (0x3C, "r"),
    "COMPUTE_BUSY": (0x40, "r"),
    "COMPUTE_TOKEN_WAIT": (0x44, "r"),
    "COMPUTE_MEMORY_WAIT": (0x48, "r"),
    "COMPUTE_INSNS": (0x4C, "r"),
    "COMPUTE_BYTES": (0x50, "r"),
    "STORE_BUSY": (0x54, "r"),
    "STORE_TOKEN_WAIT": (0x58, "r"),
    "STORE_MEMORY_WAIT": (0x5C, "r"),
    "STORE_INSNS": (0x60, "r"),
    "STORE_BYTES": (0x64, "r"),
}
ERRORS = ["NONE", "UNDECODABLE", "READ_RESPONSE", "WRITE_RESPONSE", "WATCHDOG", "RANGE", "TOKENS_LEFT"]


def test_offsets_and_access():
    assert {name: (r.offset, r.access) for name, r in REGISTERS.items()} == EXPECTED
    assert all(r.name == name and r.doc for name, r in REGISTERS.items())


def test_error_codes():
    assert [e.name for e in Error] == ERRORS
    assert [e.value for e in Error] == list(range(len(ERRORS)))
    assert "0 none, 1 undecodable" in REGISTERS["ERROR"].doc


def test_version_states_magic_and_isa_version():
    assert (MAGIC, ISA_VERSION) == (0x7E11, 1)
    assert REGISTERS["VERSION"].doc == "0x7e11 in bits 31:16, ISA version (1) in bits 15:0"


def test_table_lists_every_register_in_order():
    lines = table().splitlines()
    assert lines[0] == "| offset | register | access | meaning |"
    assert lines[2].startswith("| 0x000 | `VERSION` | r | ")
    assert [line.split("`")[1] for line in lines[2:]] == list(EXPECTED)
