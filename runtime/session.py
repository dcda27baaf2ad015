"""Launches as accesses to registers, the same for a board and for the simulated circuit."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Protocol

import numpy as np

from ..hw.config import Config
from ..hw.metrics import counters
from ..hw.regs import Command, Status
from .device import Stats
from .diagnosis import explain, taken, waiting

_LOOKS = 100  # at CONTROL, a millisecond apart, for the end of a reset


class Registers(Protocol):
    """The registers of one accelerator by their names (hw/regs.py)."""

    def read(self, name: str, /) -> int:
        """The value of a register."""
        ...

    def write(self, name: str, value: int, /) -> None:
        """Set a register."""
        ...


class Session:
    """The accelerator of `cfg` behind `registers`; it gives up after `watchdog` cycles without progress."""

    def __init__(self, cfg: Config, registers: Registers, *, watchdog: int):
        self.cfg, self.registers, self.watchdog = cfg, registers, watchdog

    def identity(self) -> tuple[int, int]:
        """(VERSION, fingerprint), as the accelerator says."""
        version, low, high = (self.registers.read(name) for name in ("VERSION", "FINGERPRINT_LO", "FINGERPRINT_HI"))
        return version, high << 32 | low

    def run(self, insn: np.ndarray, address: int, counts: Stats, wait: Callable[[], int]) -> Stats:
        """Execute the instructions `insn`, uint64 (n, 2), that stand at byte `address`.

        `counts` are theirs, to which cycles and counters are added. `wait` returns CONTROL when the accelerator is
        done, and raises where it takes too long. Raises what the error registers say (`runtime.diagnosis`).
        """
        write = self.registers.write
        write("INSN_COUNT", len(insn))
        write("INSN_ADDR_LO", address & 0xFFFFFFFF)
        write("INSN_ADDR_HI", address >> 32)
        write("WATCHDOG", self.watchdog)
        write("CONTROL", Command.START)
        status, read = wait(), self.registers.read
        counted = self._counted()
        if status & Status.ERROR:
            raise explain(self.cfg, insn, read("ERROR"), read("ERROR_INSN"), taken(self.cfg, counted))
        return counts + Stats(cycles=read("CYCLES"), counters=counted)

    def waiting(self, insn: np.ndarray) -> tuple[str, int | None]:
        """(text of what each queue waits for, first instruction that waits) of a run of `insn` that does not end."""
        return waiting(self.cfg, insn, taken(self.cfg, self._counted()))

    def reset(self) -> bool:
        """Stop what runs; whether the accelerator has ended its accesses to memory."""
        self.registers.write("CONTROL", Command.RESET)
        for _ in range(_LOOKS):
            if not self.registers.read("CONTROL") & Status.RUNNING:
                return True
            time.sleep(1e-3)
        return False

    def _counted(self) -> Counter[str]:
        return Counter({name: self.registers.read(name) for name in counters(self.cfg)})
