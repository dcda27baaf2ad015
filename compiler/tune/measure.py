"""Measures trials: builds a program and counts its cycles in the timing model, the circuit, on a board or a server."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from ...hw.config import Config
from ...hw.errors import BoardError, ScheduleError, TilewrightError
from ...runtime.device import open_device
from ...runtime.executable import Executable, LaunchStep
from ...runtime.launch import Launch
from ...runtime.loader import run
from ...runtime.registry import CIRCUITS, device_names, is_server, open_remote
from ...sim.dram import Dram, load_dram
from ..api import build

_WITHOUT_CLOCK = ("model", "spec")
CLOCK = 1e8  # Hz; meta_schedule compares seconds, so any frequency works


def measurers(tvm: Any, cfg: Config, on: str, errors: list[str]) -> tuple[Any, Any]:
    """(builder, runner) of meta_schedule; reasons for trials without a program go to `errors`.

    `tvm` is `tvm_compat.tuning()`. Each program is a file in its own folder, because meta_schedule removes that
    folder.
    """
    ms = tvm.meta_schedule

    @tvm.derived_object
    class Builder(ms.builder.PyBuilder):
        def build(self, inputs):
            return [self._build_program(each.mod) for each in inputs]

        def _build_program(self, mod):
            try:
                executable = Executable.from_launch(build(mod, cfg).finish())
            except TilewrightError as exc:
                errors.append(str(exc))
                return ms.builder.BuilderResult(None, str(exc))
            path = Path(tempfile.mkdtemp(prefix="tilewright-")) / "program.tw"
            executable.save(path)
            return ms.builder.BuilderResult(str(path), None)

    @tvm.derived_object
    class Future(ms.runner.PyRunnerFuture):
        def __init__(self, seconds: float):
            super().__init__()
            self.seconds = seconds

        def done(self):
            return True

        def result(self):
            return ms.runner.RunnerResult([self.seconds], None)

    @tvm.derived_object
    class Runner(ms.runner.PyRunner):
        def run(self, inputs):
            return [Future(self._cycles(Executable.load(each.artifact_path)) / CLOCK) for each in inputs]

        def _cycles(self, executable: Executable) -> int:
            (step,) = executable.steps
            assert isinstance(step, LaunchStep)
            return cycles_of(step.launch, on)

    return Builder(), Runner()


def check_device(on: str) -> None:
    """Raise `ScheduleError` where `on` names nothing that counts cycles."""
    clocked = [name for name in device_names() if name not in _WITHOUT_CLOCK]
    if on not in clocked and not is_server(on):
        raise ScheduleError(f"tuning: on = {on!r}: must be one of {', '.join(clocked)}, or a server, NAME:PORT")


def cycles_of(launch: Launch, on: str, dram: Dram | None = None) -> int:
    """Cycles of a program on the device `on`, or on the server `on`, NAME:PORT.

    Inputs are zeros: cycles do not depend on values. `dram` is the memory of timing and rtl, by default that of
    the PYNQ-Z1. Raises the errors of the device, `BoardError` where a server does not answer or its device counts no
    cycles.
    """
    if on == "timing":
        from ...sim.timing import predict

        return predict(launch, dram=load_dram(dram)).cycles
    zeros = {b.name: b.unpack(np.zeros(b.nbytes, np.uint8)) for b in launch.buffers if b.kind == "input"}
    if is_server(on):
        with open_remote(on, Executable.from_launch(launch)) as remote:
            remote.run(zeros)
            cycles = remote.stats.cycles
    else:
        options = {"dram": dram} if on in CIRCUITS and dram is not None else {}
        cycles = run(launch, zeros, open_device(on, launch.cfg, **options))[1].cycles
    if cycles is None:
        raise BoardError(f"{on}: its device counts no cycles; serve one that does, as rtl, timing or a board")
    return cycles
