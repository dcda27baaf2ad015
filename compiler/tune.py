"""Tuning by measurement: meta_schedule samples the decisions of a schedule, timing model or circuit count cycles.

For authors of operators of their own. Ready schedules have a search that is much faster (`search.py`).
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..hw.config import Config, load_config
from ..hw.errors import ScheduleError, TilewrightError
from ..runtime.executable import Executable, LaunchStep
from ..runtime.launch import Launch
from ..runtime.loader import run
from .api import build
from .tvm_compat import IRModule, PrimFunc, Schedule, tuning

DEVICES = ("timing", "rtl")
_CLOCK = 1e8  # meta_schedule compares seconds; any frequency will do
_FAILED = 1e9  # what it records for a trial without a program takes longer


@dataclass(frozen=True)
class Tuned:
    """What `tune` found: the fastest `schedule`, its `cycles`, and the cycles of every trial that could be built."""

    schedule: Schedule
    cycles: int
    trials: list[int]


def tune(
    func: PrimFunc,
    space: Callable[[Schedule], None],
    config: Config | str,
    *,
    trials: int = 32,
    seed: int = 0,
    on: str = "timing",
    work_dir: str | Path | None = None,
) -> Tuned:
    """Try `trials` schedules of `func` and keep the fastest.

    `space(sch)` schedules `func`, as for `build`, and takes its decisions from `sch`: `sample_perfect_tile`,
    `sample_categorical`. Decisions that do not lead to a program, because it does not fit or no instruction covers a
    statement, are trials that failed. Cycles are those of device `on`, timing or rtl. `work_dir` gets the
    database of meta_schedule, JSON; by default a folder that is removed afterwards.

    Raises `ScheduleError` for another device, or where no trial led to a program, with the reason of the last one.
    """
    if on not in DEVICES:
        raise ScheduleError(f"tune: on = {on!r}: must be one of {', '.join(DEVICES)}")
    if trials < 1:
        raise ScheduleError(f"tune: trials = {trials}: must be at least 1")
    cfg = load_config(config)
    mod = IRModule({"main": func.with_attr("global_symbol", "main")})
    tvm, errors = tuning(), list[str]()
    log = logging.getLogger("tvm.s_tir.meta_schedule")
    log.handlers = [handler for handler in log.handlers if handler.get_name()]  # it fails on those without a name
    builder, runner = _measurers(tvm, cfg, on, errors)
    with tempfile.TemporaryDirectory() as folder:
        database = tvm.meta_schedule.tune_tir(
            mod,
            target=tvm.Target({"kind": "llvm", "num-cores": 1}),
            work_dir=str(work_dir or folder),
            max_trials_global=trials,
            num_trials_per_iter=min(trials, 16),
            seed=seed,
            space=tvm.meta_schedule.space_generator.ScheduleFn(space, sch_rules=[], postprocs=[], mutator_probs={}),
            num_tuning_cores=1,
            builder=builder,
            runner=runner,
            strategy="replay-func",
            cost_model="random",
            module_equality="structural",
        )
        records = list(database.get_all_tuning_records())
        timed = [r for r in records if r.run_secs and float(r.run_secs[0]) < _FAILED]
        if not timed:
            raise ScheduleError(f"tune: none of {trials} trials led to a program; the last one: {errors[-1]}")
        best = min(timed, key=lambda r: float(r.run_secs[0]))
        sch = Schedule(mod)
        best.trace.apply_to_schedule(sch, remove_postproc=False)
        return Tuned(sch, _cycles(best), [_cycles(r) for r in timed])


def _cycles(record) -> int:
    return round(float(record.run_secs[0]) * _CLOCK)


def _measurers(tvm, cfg: Config, on: str, errors: list[str]):
    """(builder, runner) of meta_schedule; reasons for trials without a program go to `errors`.

    Each program is a file in a folder of its own, because meta_schedule removes that folder.
    """
    ms = tvm.meta_schedule

    @tvm.derived_object
    class Builder(ms.builder.PyBuilder):
        def build(self, inputs):
            return [self._one(each.mod) for each in inputs]

        def _one(self, mod):
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
            return [Future(self._cycles(Executable.load(each.artifact_path)) / _CLOCK) for each in inputs]

        def _cycles(self, executable: Executable) -> int:
            (step,) = executable.steps
            assert isinstance(step, LaunchStep)
            return cycles_of(step.launch, on)

    return Builder(), Runner()


def cycles_of(launch: Launch, on: str) -> int:
    """Cycles of a program on a device of `DEVICES`, on inputs of zeros: they do not depend on values."""
    if on == "timing":
        from ..sim.timing import predict

        return predict(launch).cycles
    zeros = {b.name: b.unpack(np.zeros(b.nbytes, np.uint8)) for b in launch.buffers if b.kind == "input"}
    cycles = run(launch, zeros, on)[1].cycles
    assert cycles is not None
    return cycles
