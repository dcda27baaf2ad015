"""The accelerator's interrupt by way of the kernel's UIO: PYNQ's image hands IRQF2P[0] on as the device `fabric`."""

from __future__ import annotations

import os
import select
from pathlib import Path

UIO = Path("/sys/class/uio")
NAME = "fabric"
_ENABLE = (1).to_bytes(4, "little")
_COUNT_BYTES = 4


class Interrupt:
    """The open device `file`; closed with `close`.

    The line is high while the core is done, so an interrupt may be of the run before: it wakes, and no more is said.
    """

    def __init__(self, file: int):
        self._file = file

    @staticmethod
    def find(folder: Path = UIO) -> Interrupt | None:
        """The device of that name; None where the kernel has none, or this user may not open it."""
        try:
            for entry in sorted(folder.iterdir()):
                if (entry / "name").read_text().strip() == NAME:
                    return Interrupt(os.open(f"/dev/{entry.name}", os.O_RDWR))
        except OSError:
            pass
        return None

    def wait(self, seconds: float) -> bool:
        """Until the line is high, for `seconds` at most; whether it was."""
        os.write(self._file, _ENABLE)
        ready, _, _ = select.select([self._file], [], [], seconds)
        if ready:
            os.read(self._file, _COUNT_BYTES)
        return bool(ready)

    def close(self) -> None:
        """Close the device."""
        os.close(self._file)
