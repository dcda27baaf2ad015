"""Whether a launch stays inside its own buffers in DRAM, for whoever runs programs of others.

A board's memory ports know no protection: what an instruction addresses is read and written.
"""

from __future__ import annotations

from ..hw.errors import AccessError
from ..hw.isa import Isa
from .access import dram_access
from .launch import Launch


def check_dram(launch: Launch) -> None:
    """Raises `AccessError`, naming the instruction, for DRAM bytes outside the buffer that it is relocated to.

    What cannot be decoded is left to the accelerator, which refuses it.
    """
    isa = Isa(launch.cfg)
    for k, f in enumerate(isa.decode(launch.insn)):
        if isa.undecodable(f):
            continue
        access = dram_access(launch.cfg, f)
        if access is None:
            continue
        at = f"launch {launch.name!r}, instruction {k} ({isa.disassemble(f)})"
        if launch.reloc[k] < 0:
            raise AccessError(f"{at}: accesses DRAM outside of any buffer", k)
        buffer = launch.buffers[launch.reloc[k]]
        end = access.start + (access.rows - 1) * access.pitch + access.nbytes
        if end > buffer.nbytes:
            raise AccessError(f"{at}: ends at byte {end} of buffer {buffer.name!r}, which has {buffer.nbytes}", k)
