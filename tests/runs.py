"""Runs of launches that may be wrong."""

import numpy as np

from tilewright.hw.errors import TilewrightError
from tilewright.runtime.device import Device
from tilewright.runtime.launch import Launch


def result_on(device: Device, launch: Launch) -> tuple[str, int | None, bytes]:
    """Of a run: the name of the error class or "", the index of the instruction, the memory behind it."""
    bases = [device.allocate(b.nbytes, b.align) for b in launch.buffers]
    for buffer, base in zip(launch.buffers, bases):
        device.write(base, np.zeros(buffer.nbytes, np.uint8) if buffer.data is None else buffer.data)
    try:
        words = launch.relocate(bases).view(np.uint8).reshape(-1)
        code = device.allocate(len(words), 64)
        device.write(code, words)
        device.run(code, len(launch.insn))
    except TilewrightError as exc:
        return type(exc).__name__, getattr(exc, "index", None), b""
    return "", None, b"".join(device.read(base, b.nbytes).tobytes() for b, base in zip(launch.buffers, bases))
