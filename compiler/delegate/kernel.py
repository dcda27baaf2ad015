"""A part of a network in one interpreter: its program in a device's memory, run on the interpreter's tensors."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from ...hw.errors import InputError
from ...runtime.device import Device, open_device
from ...runtime.executable import Executable
from ...runtime.loader import Loaded
from ...runtime.registry import device_entry, is_server, open_remote
from . import abi as c

if TYPE_CHECKING:
    from .programs import Program

Opener = Callable[[Executable], AbstractContextManager[Any]]


def opener(on: str | Device | Opener) -> Opener:
    """What loads an executable on `on`: a device's name as `tilewright run --on` takes it, a server NAME:PORT, an open
    device, or a function that does it.

    The device is opened with the first executable. Raises `UnsupportedError` for an unknown name.
    """
    if not isinstance(on, str):
        return on if callable(on) else lambda executable: Loaded(executable, on)
    if is_server(on):
        return lambda executable: open_remote(on, executable)
    device_entry(on)
    devices: list[Device] = []

    def load(executable: Executable) -> Loaded:
        if not devices:
            devices.append(open_device(on, executable.cfg))
        return Loaded(executable, devices[0])

    return load


class Kernel:
    """A program that `opened` has loaded; one run at a time, because all of a delegate share its device.

    `values` are what the last run computed, by tensor number, where `keep` asks for it; `stats` and `seconds` its counts
    and the time that it took on this machine.
    """

    def __init__(self, program: Program, outputs: tuple[int, ...], loaded: Any, lock: threading.Lock, keep: bool):
        self.program, self._outputs, self._loaded, self._lock, self._keep = program, outputs, loaded, lock, keep
        self.stats: Any = None
        self.seconds: float | None = None
        self.values: dict[int, np.ndarray] = {}

    def run(self, context: c.Context) -> None:
        """Compute the outputs from the inputs. Raises `InputError` for tensors of another shape, and as a device."""
        tensors = self.program.executable.tensors
        with self._lock:
            start = time.perf_counter()
            given = {name: self._array(context, number, tensors[name]) for number, name in self.program.inputs}
            found = self._loaded.run(given)
            for number, name in self.program.outputs:
                if number in self._outputs:
                    self._array(context, number, tensors[name])[...] = found[name]
            self.seconds, self.stats = time.perf_counter() - start, self._loaded.stats
            if self._keep:
                self.values = {number: found[name] for number, name in self.program.outputs}

    def _array(self, context: c.Context, number: int, tensor: Any) -> np.ndarray:
        t = context.tensor(number)
        dims, kind = tuple(c.ints(t.dims)) or (1,), c.TYPES.get(tensor.dtype)
        if dims != tensor.shape or t.type != kind or not t.data:
            raise InputError(
                f"tensor {tensor.name!r} has shape {dims} in the interpreter, {tensor.shape} in the program; make the "
                "interpreter anew from a file of that shape"
            )
        return c.array(t, np.dtype(tensor.dtype), tensor.shape)

    def close(self) -> None:
        """Free the device's memory."""
        with self._lock:
            self._loaded.close()
