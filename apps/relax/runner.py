"""`tilewright.run`, the function that TVM's virtual machine calls for a part, and reports of its runs.

A program is put on its device at its first call and stays there until `release`. It needs TVM, but not the compiler.
"""

from __future__ import annotations

import hashlib
import re
import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...compiler.tvm_compat import IRModule, ir, structural_walk, tvm_ffi
from ...hw.errors import FileError, InputError
from ...runtime.device import Stats, open_device
from ...runtime.executable import Executable
from ...runtime.loader import Loaded, StepReport

RUN = "tilewright.run"
KEY = re.compile(r"tilewright:(\w+):(\w+):[0-9a-f]{32}")  # device, name, digest of the program


def key_of(name: str, on: str, program: bytes) -> str:
    """The key of `program` on device `on` in calls of `tilewright.run`; matches `KEY`."""
    return f"tilewright:{on}:{name}:{hashlib.sha256(program).hexdigest()[:32]}"


@dataclass
class Held:
    """A program on its device, with the reports of its last run and the number of all."""

    loaded: Loaded
    runs: int = 0
    reports: list[StepReport] = field(default_factory=list)
    busy: threading.Lock = field(default_factory=threading.Lock)


held: dict[str, Held] = {}  # by key
_opening = threading.Lock()


@tvm_ffi.register_global_func(RUN, override=True)
def run(key: str, program: Any, *arrays: Any) -> None:
    """Run `program`, the uint8 bytes of a `.tw` file that `key` stands for: inputs, then the outputs to write.

    It is put on its device the first time. Raises as `Loaded` and its `run`.
    """
    one = _hold(str(key), program)
    executable = one.loaded.executable
    count = len(executable.inputs)
    inputs = {f"in{k}": array for k, array in enumerate(arrays[:count])}
    with one.busy:
        outputs = one.loaded.run(inputs)
        one.runs, one.reports = one.runs + 1, one.loaded.reports
    for k, array in enumerate(arrays[count:]):
        np.from_dlpack(array)[...] = outputs[f"out{k}"]


def _hold(key: str, program: Any) -> Held:
    with _opening:
        if key not in held:
            match = KEY.fullmatch(key)
            data = np.from_dlpack(program).tobytes()
            if match is None or key_of(match[2], match[1], data) != key:
                raise FileError(f"{RUN}: the program is not that of {key!r}; compile the module again")
            executable = Executable.from_bytes(data, match[2])
            held[key] = Held(Loaded(executable, open_device(match[1], executable.cfg)))
        return held[key]


def release() -> None:
    """Free the device memory of all programs. The next run of one loads it again; counts begin again."""
    with _opening:
        while held:
            held.popitem()[1].loaded.close()


LEFT = "tilewright.left"  # attribute of a module: why integers in it are not on the accelerator


@dataclass(frozen=True)
class PartReport:
    """One part of a module: its name, its device, its runs in this process, and the steps of the last one.

    `contract` is the rounding contract, None before the first run.
    """

    name: str
    on: str
    runs: int
    steps: tuple[StepReport, ...]
    contract: str | None

    @property
    def stats(self) -> Stats:
        """Counts of the last run."""
        return sum((step.stats for step in self.steps), Stats())

    @property
    def cycles(self) -> int | None:
        """Cycles of the last run; None before the first, and on devices without a clock."""
        return self.stats.cycles

    @property
    def host_seconds(self) -> float:
        """Time of the steps that the host computed, packing included."""
        return sum(step.seconds for step in self.steps if step.where == "host")


@dataclass(frozen=True)
class Report:
    """The parts of a module on the accelerator, in order, and reasons why integers of it are not in one."""

    parts: tuple[PartReport, ...]
    left: tuple[str, ...]

    @property
    def cycles(self) -> int | None:
        """Cycles of the last run of all parts; None where no device has a clock."""
        known = [part.cycles for part in self.parts if part.cycles is not None]
        return sum(known) if known else None


def report(compiled: Any) -> Report:
    """The parts of a module from `tilewright_pipeline`, or of the executable that `tvm.compile` makes of it.

    An executable does not know `left`. Raises `InputError` for anything else.
    """
    left: tuple[str, ...] = ()
    if isinstance(compiled, IRModule):
        left = tuple(map(str, (compiled.attrs or {}).get(LEFT, ())))
        keys = [key for function in compiled.functions.values() for key in _keys_in(function)]
    elif hasattr(compiled, "stats") and hasattr(compiled, "export_library"):
        keys = [match[0] for match in KEY.finditer(str(compiled.stats()))]
    else:
        raise InputError(f"a report is of an IRModule or of what tvm.compile returns, not {type(compiled).__name__}")
    return Report(tuple(map(_part, dict.fromkeys(keys))), left)


def _keys_in(function: Any) -> list[str]:
    found: list[str] = []

    def on_text(text: Any) -> None:
        if KEY.fullmatch(str(text.value)):
            found.append(str(text.value))

    structural_walk(function, [(ir.StringImm, on_text)])
    return found


def _part(key: str) -> PartReport:
    match, one = KEY.fullmatch(key), held.get(key)
    assert match
    if one is None:
        return PartReport(match[2], match[1], 0, (), None)
    return PartReport(match[2], match[1], one.runs, tuple(one.reports), one.loaded.executable.contract)
