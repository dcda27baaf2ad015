"""`tilewright.run`, the function that TVM's virtual machine calls for every part that was given to the accelerator.

It is registered when this module is imported, which needs none of the compiler: a process that loads an exported
executable imports it first.
"""

from __future__ import annotations

import hashlib
import re
import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...compiler.tvm_compat import tvm_ffi
from ...hw.errors import FileError
from ...runtime.device import open_device
from ...runtime.executable import Executable
from ...runtime.loader import Loaded, StepReport

RUN = "tilewright.run"
KEY = re.compile(r"tilewright:(\w+):(\w+):[0-9a-f]{32}")  # device, name, digest of the program


def key_of(name: str, on: str, program: bytes) -> str:
    """What stands for `program` on device `on`, in calls of it; matches `KEY`."""
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
