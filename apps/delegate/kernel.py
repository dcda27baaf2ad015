"""A part of a network as a program: compiled, in a file, and run on the tensors of an interpreter.

This module needs no TVM.
"""

from __future__ import annotations

import json
import time
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...hw.config import Config
from ...hw.errors import FileError, InputError, one_line
from ...hw.foreign import Archive, open_regular
from ...runtime.device import Device, Stats, open_device
from ...runtime.executable import Executable
from ...runtime.files import add_member, atomic_write
from ...runtime.loader import Loaded
from ...runtime.registry import device_entry, is_server, open_remote
from ...runtime.schema import shown
from . import abi as c
from .abi import Given

Opener = Callable[[Executable], Any]  # the result has `run`, `stats` and `close`, as `Loaded`
Done = Callable[["Program", Stats, float, dict[int, np.ndarray]], None]


def opener(on: str | Device | Opener) -> Opener:
    """A function that loads an executable on `on`.

    `on` is a device's name as `tilewright run --on` takes it, a server NAME:PORT, an open device, or such a function.

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
        """Whether the program computes the outputs that the interpreter asks for from the inputs that it gives."""
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
        """Free the memory that the program holds on its device."""
        with self._lock:
            self._loaded.close()


_FACTS = "delegate.json"
_VERSION = 1
_MOST = 1 << 24  # bytes of the facts
_SCALARS = ("macs", "cycles", "host_seconds")
# RuntimeError is that of an unknown compression or a password
_DAMAGE = (zipfile.BadZipFile, zlib.error, LookupError, ValueError, TypeError, AttributeError, OSError, EOFError)
_DAMAGE += (RuntimeError,)


@dataclass(frozen=True)
class Stored:
    """The plan of a delegate for the network whose file has the `digest`, SHA-256 in hexadecimal.

    `refused` are the reasons of nodes that stay, by number, `seconds` those of every node on the modelled Cortex-A9.
    """

    digest: str
    config: Config
    runtime: str
    programs: Sequence[Program]
    refused: Mapping[int, str]
    seconds: Sequence[float | None]


def save(path: str | Path, stored: Stored) -> None:
    """Write the file, atomically. Raises `FileError`."""
    facts = {"version": _VERSION, "digest": stored.digest, "config": stored.config.to_dict(), "runtime": stored.runtime}
    facts |= {"refused": list(stored.refused.items()), "seconds": list(stored.seconds)}
    parts = []
    for program in stored.programs:
        ends = {"inputs": program.inputs, "outputs": program.outputs}
        parts.append(asdict(program.given) | {"ends": ends} | {name: getattr(program, name) for name in _SCALARS})
    with atomic_write(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        add_member(archive, _FACTS, json.dumps(facts | {"parts": parts}))
        for k, program in enumerate(stored.programs):
            add_member(archive, f"{k}.tw", program.executable.to_bytes())


def load(path: str | Path, digest: str) -> Stored:
    """Read the file for the network with the `digest`.

    Raises `FileError` where it is missing or damaged, `InputError` where it is of another network.
    """
    with open_regular(path, "a file of programs") as file:
        try:
            archive = Archive(file, str(path))
            facts = archive.json(_FACTS, _MOST)
            if facts["version"] != _VERSION:
                raise FileError(f"{path}: is of version {shown(facts['version'])}; save it again with this release")
            if facts["digest"] != digest:
                raise InputError(f"{path}: holds the programs of another network; save them for this one")
            members = [bytes(archive.read(f"{k}.tw")) for k in range(len(facts["parts"]))]
            return _stored(path, facts, members)
        except (FileError, InputError):
            raise
        except _DAMAGE as exc:
            raise FileError(f"{path}: no file of a delegate's programs, or damaged ({one_line(exc)})") from None


def _stored(path: str | Path, facts: Mapping[str, Any], members: Sequence[bytes]) -> Stored:
    programs = []
    for part, data in zip(facts["parts"], members, strict=True):
        given = Given(*(tuple(map(int, part[name])) for name in ("nodes", "inputs", "outputs")))
        inputs, outputs = (
            tuple((int(k), str(name)) for k, name in part["ends"][side]) for side in ("inputs", "outputs")
        )
        executable = Executable.from_bytes(data, str(path))
        for _, name in (*inputs, *outputs):
            if name not in executable.tensors:
                raise FileError(f"{path}: names tensor {name!r}, which its program does not have")
        programs.append(Program(given, executable, inputs, outputs, *(part[name] for name in _SCALARS)))
    refused = {int(n): str(why) for n, why in facts["refused"]}
    config = Config.from_dict(facts["config"])
    return Stored(facts["digest"], config, facts["runtime"], programs, refused, facts["seconds"])
