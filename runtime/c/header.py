"""The C header of a configuration: registers and the instruction set as numbers, from their declarations."""

from __future__ import annotations

from collections.abc import Iterable

from ...hw.config import ISA_VERSION, Config
from ...hw.isa import INSN_BYTES, AluOp, Mem, Op, known_isa
from ...hw.regs import MAGIC, Command, Error, Status, registers
from ..device import TRANSFERS
from ..launch import entry_sizes
from .text import inside

NAME = "tw_hardware.h"
Line = tuple[str, str, str]  # name, value, comment


def header(cfg: Config) -> str:
    """The text of `tw_hardware.h` for `cfg`: names begin with `TW_`, offsets and sizes are in bytes, fields in bits."""
    parts = {
        "The configuration": _configuration(cfg),
        "Registers, 32 bits each: byte offsets": [
            (f"REG_{r.name}", f"{r.offset:#05x}u", f"{r.access}: {r.doc}") for r in registers(cfg).values()
        ],
        "CONTROL, written": [(f"CONTROL_{c.name}", f"{c.value}u", "") for c in Command],
        "CONTROL, read": [(f"STATUS_{s.name}", f"{s.value}u", "") for s in Status],
        "ERROR": [(f"ERROR_{e.name}", str(e.value), "") for e in Error],
        "Opcodes": [(f"OP_{op.name}", str(op.value), "") for op in Op],
        "Memories: ids": [(f"MEM_{mem.name}", str(mem.id), "") for mem in Mem],
        "Operations of ALU": [(f"ALU_{op.name}", str(op.value), "") for op in AluOp],
        "Loads and stores": _transfers(cfg),
    }
    for name, form in known_isa(cfg).formats.items():
        parts[f"Fields of {name}, {form.width} bits"] = [
            line
            for f in form.fields.values()
            for line in (
                (f"{name}_{f.name.upper()}_LO", str(f.lo), f.doc),
                (f"{name}_{f.name.upper()}_BITS", str(f.bits), "signed" if f.signed else ""),
            )
        ]
    body = "\n".join(f"/* {title} */\n{_defines(lines)}\n" for title, lines in parts.items())
    about = f"/* Made from the declarations of registers and instructions, for configuration {inside(cfg.name)}. */"
    return f"{about}\n#ifndef TW_HARDWARE_H\n#define TW_HARDWARE_H\n\n{body}\n#endif\n"


def _configuration(cfg: Config) -> list[Line]:
    return [
        ("MAGIC", f"{MAGIC:#06x}u", "bits 31:16 of VERSION"),
        ("ISA_VERSION", f"{ISA_VERSION}u", "bits 15:0 of VERSION"),
        ("FINGERPRINT_HIGH", f"{cfg.fingerprint >> 32:#010x}u", ""),
        ("FINGERPRINT_LOW", f"{cfg.fingerprint & 0xFFFFFFFF:#010x}u", ""),
        ("INSN_BYTES", f"{INSN_BYTES}u", "of an instruction"),
    ]


def _transfers(cfg: Config) -> list[Line]:
    sizes = ", ".join("{" + ", ".join(f"{size}u" for size in row) + "}" for row in entry_sizes(cfg).tolist())
    mask = sum(1 << op for op in range(len(TRANSFERS)) if TRANSFERS[op])
    return [
        ("TRANSFERS", f"{mask:#x}u", "bit k: opcode k has a memory id and an address"),
        ("ENTRY_BYTES", f"{{{sizes}}}", "in memory, by opcode and memory id: what addresses count"),
    ]


def _defines(lines: Iterable[Line]) -> str:
    return "\n".join(
        f"#define TW_{name} {value}" + (f" /* {inside(what)} */" if what else "") for name, value, what in lines
    )
