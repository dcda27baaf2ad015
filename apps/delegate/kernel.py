"""A part of a network as a program, and in an interpreter: in a device's memory, run on the interpreter's tensors."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...hw.errors import InputError
from ...runtime.device import Device, Stats, open_device
from ...runtime.executable import Executable
from ...runtime.loader import Loaded
from ...runtime.registry import device_entry, is_server, open_remote
from . import abi as c
from .native import Given

Opener = Callable[[Executable], Any]  # the result has `run`, `stats` and `close`, as `Loaded`
Done = Callable[["Program", Stats, float, dict[int, np.ndarray]], None]


def opener(on: str | Device | Opener) -> Opener:
    """What loads an executable on `on`: a device's name as `tilewright run --on` takes it, a server NAME:PORT, an open
    device, or a function that does it.

    The device is opened with the first executable. Raises `UnsupportedError` for an unknown name, `InputError` for
    anything else.
    """
    if not isinstance(on, str):
        if callable(on):
            return on
        if not hasattr(on, "run"):
            raise InputError(
                f"on = {on!r}: must be the name of a device, a server NAME:PORT, an open device or a function"
            )
        return lambda executable: Loaded(executable, on)
    if is_server(on):
        return lambda executable: open_remote(on, executable)
    device_entry(on)
    devices: list[Device] = []

    def load(executable: Executable) -> Loaded:
        if not devices:
            devices.append(open_device(on, executable.cfg))
        return Loaded(executable, devices[0])

    return load


@dataclass(frozen=True, eq=False)
class Program:
    """A part of a network as an executable; `inputs` and `outputs` are the file's tensor numbers with their names.

    `cycles` are the timing model's, `host_seconds` those of its host steps on the modelled Cortex-A9.
    """

    given: Given
    executable: Executable
    inputs: tuple[tuple[int, str], ...]
    outputs: tuple[tuple[int, str], ...]
    macs: int
    cycles: int
    host_seconds: float

    @property
    def launches(self) -> int:
        """How often a run starts the accelerator."""
        return len(self.executable.launches)

    def covers(self, given: Given) -> bool:
        """Whether it computes what the interpreter asks for, from what this has."""
        made = {k for k, _ in self.outputs}
        return self.given.nodes == given.nodes and made.issuperset(given.outputs)


class Kernel:
    """A program that is `loaded`; one run at a time, because all of a delegate share its device.

    `lock` must be one that a thread may take again: the garbage collector may `close` another kernel within a run.
    `done` hears of each run: its counts, the seconds that it took on this machine, and its results by tensor number.
    """

    def __init__(
        self, program: Program, outputs: tuple[int, ...], loaded: Any, lock: AbstractContextManager, done: Done
    ):
        self.program, self._outputs, self._loaded, self._lock, self._done = program, outputs, loaded, lock, done

    def check(self, context: c.Context) -> None:
        """Raise `InputError` where an input has another shape or type than the program's."""
        for number, name in self.program.inputs:
            tensor, t = self.program.executable.tensors[name], context.tensor(number)
            found, kind = tuple(c.ints(t.dims)) or (1,), c.TYPES.get(tensor.dtype)
            if found != tensor.shape or t.type != kind:
                raise InputError(
                    f"tensor {name!r} has shape {found} in the interpreter, programs are for {tensor.shape} of the "
                    "file; resize it back, or export the network in that shape"
                )

    def run(self, context: c.Context) -> None:
        """Compute the outputs from the inputs. Raises `InputError` as `check`, and the errors of the device."""
        self.check(context)
        with self._lock:
            start = time.perf_counter()
            found = self._loaded.run({name: self._array(context, number, name) for number, name in self.program.inputs})
            for number, name in self.program.outputs:
                if number in self._outputs:
                    self._array(context, number, name)[...] = found[name]
            values = {number: found[name] for number, name in self.program.outputs}
            self._done(self.program, self._loaded.stats, time.perf_counter() - start, values)

    def _array(self, context: c.Context, number: int, name: str) -> np.ndarray:
        tensor = self.program.executable.tensors[name]
        return c.array(context.tensor(number), np.dtype(tensor.dtype), tensor.shape)

    def close(self) -> None:
        """Free the device's memory."""
        with self._lock:
            self._loaded.close()
