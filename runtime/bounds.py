"""Checks that a launch stays inside its own buffers in DRAM, and stores only to those that it may write.

A board's memory ports have no protection: they read and write whatever an instruction addresses.
"""

from __future__ import annotations

import numpy as np

from ..hw.errors import AccessError, ProgramError
from ..hw.isa import INSTRUCTIONS, Isa, entry_bytes, known_isa
from .access import dram_access, row_access
from .launch import Launch

WRITABLE = ("output", "temp", "state")  # kinds of buffers that a program may store to


def check_dram(launch: Launch) -> None:
    """Raise `AccessError`, naming the instruction, for DRAM bytes outside the buffer that it is relocated to.

    An address with a symbol stays inside for every value of it.

    The same for a store to a buffer that only the host fills; `ProgramError` for a relocation of an instruction that
    has no address, `EncodingError` for a buffer that may lie between entries. Instructions that cannot be decoded are
    left to the accelerator, which refuses them.
    """
    launch.check_aligned()
    isa = known_isa(launch.cfg)
    nbytes = np.array([b.nbytes for b in launch.buffers] + [-1], np.int64)  # the last one is that of reloc = -1
    writable = np.array([b.kind in WRITABLE for b in launch.buffers] + [False])
    head = isa.formats["LOAD"].decode(launch.insn)
    suspect, reach = launch.reloc >= 0, launch.reach
    for row in INSTRUCTIONS:
        if row.mem is None:
            continue
        at = np.flatnonzero((head["op"] == row.op) & (head["mem"] == row.mem.id))
        if not len(at):
            continue
        f = isa.formats[row.format].decode(launch.insn[at])
        access, reloc = row_access(launch.cfg, row, f), launch.reloc[at]
        outside = access.end + reach[at] * entry_bytes(launch.cfg, row.mem) > nbytes[reloc]
        wrong = outside | ~writable[reloc] if access.write else outside
        suspect[at] = wrong & (f["x_size"] > 0) & (access.rows > 0)
    for k in np.flatnonzero(suspect).tolist():
        _check(isa, launch, k)


def _check(isa: Isa, launch: Launch, k: int) -> None:
    """Raise what is wrong with instruction `k`, if it can be decoded."""
    (f,) = isa.decode(launch.insn[k : k + 1])
    if isa.undecodable(f):
        return
    at = f"launch {launch.name!r}, instruction {k} ({isa.disassemble(f)})"
    if "dram_base" not in f:
        raise ProgramError(f"{at}: has no DRAM address, but is relocated to buffer {launch.reloc[k]}; use -1")
    if launch.reloc[k] < 0:
        raise AccessError(f"{at}: accesses DRAM, but its address belongs to no buffer", k)
    symbol = launch.patches.symbols.get(k)
    buffer, access = launch.buffers[launch.reloc[k]], dram_access(launch.cfg, f, symbol)
    assert access is not None
    if access.end > buffer.nbytes:
        ends = f"ends at byte {access.end}{f' for some {symbol.name}' if symbol else ''} of buffer {buffer.name!r}"
        raise AccessError(f"{at}: {ends}, which has {buffer.nbytes}", k)
    allowed = f"{', '.join(WRITABLE[:-1])} and {WRITABLE[-1]}"
    raise AccessError(f"{at}: stores to buffer {buffer.name!r}, which is {buffer.kind}; only {allowed} are written", k)
