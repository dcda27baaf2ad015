"""Checks that a launch stays inside its own buffers in DRAM, for a server that runs programs of others.

A board's memory ports have no protection: they read and write whatever an instruction addresses.
"""

from __future__ import annotations

from ..hw.errors import AccessError
from ..hw.isa import known_isa
from .access import dram_access
from .launch import Launch


def check_dram(launch: Launch) -> None:
    """Raise `AccessError`, naming the instruction, for DRAM bytes outside the buffer that it is relocated to.

    Instructions that cannot be decoded are left to the accelerator, which refuses them.
    """
    isa = known_isa(launch.cfg)
    for k, f in enumerate(isa.decode(launch.insn)):
        if isa.undecodable(f):
            continue
        access = dram_access(launch.cfg, f)
        if access is None:
            continue
        at = f"launch {launch.name!r}, instruction {k} ({isa.disassemble(f)})"
        if launch.reloc[k] < 0:
            raise AccessError(f"{at}: accesses DRAM, but its address belongs to no buffer", k)
        buffer = launch.buffers[launch.reloc[k]]
        end = access.start + (access.rows - 1) * access.pitch + access.nbytes
        if end > buffer.nbytes:
            raise AccessError(f"{at}: ends at byte {end} of buffer {buffer.name!r}, which has {buffer.nbytes}", k)
