"""The accelerator's interrupt through the kernel's UIO: PYNQ's image offers IRQF2P[0] as the device `fabric`."""

from __future__ import annotations

import os
import select
from pathlib import Path

UIO = Path("/sys/class/uio")
NAME = "fabric"
_ENABLE = (1).to_bytes(4, "little")
_COUNT_BYTES = 4


class Interrupt:
    """The open device `file`; `close` closes it.

    The line is high while the core is done, so an interrupt may come from the run before: it only wakes the driver.
    """

    def __init__(self, file: int):
        self._file = file

    @staticmethod
    def find(folder: Path = UIO) -> Interrupt | None:
        """The device `NAME`; None where the kernel does not have it, or this user may not open it."""
        try:
            for entry in sorted(folder.iterdir()):
                if (entry / "name").read_text().strip() == NAME:
                    return Interrupt(os.open(f"/dev/{entry.name}", os.O_RDWR))
        except OSError:
            pass
        return None

    def wait(self, seconds: float) -> bool:
        """Wait until the line is high, at most `seconds`; True if it was."""
        os.write(self._file, _ENABLE)
        ready, _, _ = select.select([self._file], [], [], seconds)
        if ready:
            os.read(self._file, _COUNT_BYTES)
        return bool(ready)

    def close(self) -> None:
        """Close the device."""
        os.close(self._file)
