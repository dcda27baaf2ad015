"""Measures trials of meta_schedule: builds a program and counts its cycles in the timing model or the circuit."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from ...hw.config import Config
from ...hw.errors import TilewrightError
from ...runtime.executable import Executable, LaunchStep
from ...runtime.launch import Launch
from ...runtime.loader import run
from ...sim.dram import unshared
from ..api import build

DEVICES = ("timing", "rtl")
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


def cycles_of(launch: Launch, on: str) -> int:
    """Cycles of a program on a device of `DEVICES`, on inputs of zeros: they do not depend on values."""
    if on == "timing":
        from ...sim.timing import predict

        return predict(launch, dram=unshared(launch.cfg)).cycles
    zeros = {b.name: b.unpack(np.zeros(b.nbytes, np.uint8)) for b in launch.buffers if b.kind == "input"}
    cycles = run(launch, zeros, on)[1].cycles
    assert cycles is not None
    return cycles
