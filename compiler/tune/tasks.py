"""Tuning tasks: the tiles of a layer are tried in rounds of parallel jobs, and a device counts the cycles of each.

The device is the timing model, the simulated circuit, a board or a server (`cycles_of`). A task holds its layer as a
recipe, the pickled call of the ready schedule, so that worker processes can build it. `measurers` offers the same
devices to meta_schedule (trials.py).
"""

from __future__ import annotations

import dataclasses
import pickle
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Generic, TypeVar

import numpy as np

from ...hw.config import Config
from ...hw.errors import BoardError, ScheduleError, TilewrightError
from ...runtime import loader
from ...runtime.device import open_device
from ...runtime.executable import Executable, LaunchStep
from ...runtime.launch import Launch
from ...runtime.registry import CIRCUITS, device_names, is_server, open_remote
from ...sim.dram import Dram, load_dram
from ..api import build
from ..cache import sources
from ..jobs import Outcome, Store, content_key, run
from ..schedule.layer import Layer, layer_of
from ..tile import Tile
from ..tvm_compat import Node
from .sampling import ROUND, Evolution, Space
from .search import Record, tile_from

_WITHOUT_CLOCK = ("model", "spec")
CLOCK = 1e8  # Hz; meta_schedule compares seconds, so any frequency works


def measurers(tvm: SimpleNamespace, cfg: Config, on: str, errors: list[str]) -> tuple[Node, Node]:
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

    Inputs are zeros: cycles do not depend on values. `dram` is the memory of timing and rtl, by default the PYNQ-Z1's.
    Raises the errors of the device, `BoardError` where a server does not answer or its device counts no
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
        cycles = loader.run(launch, zeros, open_device(on, launch.cfg, **options))[1].cycles
    if cycles is None:
        raise BoardError(f"{on}: its device counts no cycles; serve one that does, as rtl, timing or a board")
    return cycles


D = TypeVar("D")


@dataclass(frozen=True)
class Task:
    """A layer to tune: its `recipe`, its key in the database, a text for people, and how often the network has it."""

    recipe: bytes
    key: str
    text: str
    count: int = 1

    @cached_property
    def layer(self) -> Layer:
        """The layer that the recipe makes."""
        return _layer(self.recipe)


@dataclass(frozen=True)
class Measurer:
    """A device or server that counts cycles, and the memory of a simulated one; None: the default."""

    on: str = "timing"
    dram: Dram | None = None

    def facts(self) -> dict[str, object]:
        """Cache key of the measurement: device, memory and the digest of our sources."""
        memory = None if self.dram is None else dataclasses.asdict(self.dram)
        return {"on": self.on, "dram": memory, "sources": sources()}


@dataclass(frozen=True)
class Trial:
    """The tile `decisions`, fields by name, to try for a task; `first` marks the tile that is used without tuning."""

    task: Task
    decisions: dict[str, Any]
    measurer: Measurer
    first: bool = False

    @property
    def key(self) -> str:
        """The key of its result."""
        return content_key(self.task.key, self.decisions, self.measurer.facts(), self.first)

    @property
    def topic(self) -> str:
        """The topic of its result."""
        return f"tile {self.task.key}"


def measure(trial: Trial) -> Record:
    """The record of a trial."""

    def launch() -> Launch:
        layer = trial.task.layer
        return build(layer.scheduled(tile_from(trial.decisions)), layer.cfg).finish()

    return recorded(launch, trial.decisions, trial.first, trial.task.text, trial.measurer)


def recorded(launch: Callable[[], Launch], decisions: object, first: bool, text: str, measurer: Measurer) -> Record:
    """The record of a trial in a database: `cycles`, or None and the `error` where `launch` makes no program.

    Raises `BoardError` where a board or server does not answer: that says nothing about the trial.
    """
    record: dict[str, object] = {"decisions": decisions, "first": first, "layer": text, "cycles": None, "error": ""}
    record |= measurer.facts()
    try:
        record["cycles"] = cycles_of(launch(), measurer.on, measurer.dram)
    except BoardError:
        raise
    except TilewrightError as exc:
        record["error"] = f"{type(exc).__name__}: {exc}"
    return record


@dataclass
class Line(Generic[D]):
    """The trials of one task: `evolution` proposes decisions, `job` makes the job that tries them.

    A job has the `key` and the `topic` of its result in a database. `records` are the results in order, without
    failures of the device.
    """

    evolution: Evolution[Any]
    job: Callable[[D, bool], Any]
    records: list[Record] = field(default_factory=list)

    @property
    def before(self) -> int | None:
        """Cycles of the first trial; None if it has no program."""
        return next((each["cycles"] for each in self.records if each["first"]), None)

    @property
    def best(self) -> Record | None:
        """The fastest trial; None if none has a program."""
        timed = [each for each in self.records if each["cycles"] is not None]
        return min(timed, key=lambda each: each["cycles"]) if timed else None


def tile_line(task: Task, measurer: Measurer, seed: int) -> Line[Tile]:
    """The trials of a task: the promising tiles of its space, then evolution. Raises `CapacityError` if none fits."""
    space = Space(task.layer)
    evolution = Evolution(space.choices(), space.promising(), seed)
    return Line(evolution, lambda tile, is_first: Trial(task, dataclasses.asdict(tile), measurer, is_first))


def evolve(
    lines: Sequence[Line],
    function: Callable[[Any], Record],
    trials: int,
    *,
    store: Store | None = None,
    workers: Executor | None = None,
    on_done: Callable[[Outcome], None] | None = None,
) -> None:
    """Run `trials` trials of every line, `function(job)` each, in rounds whose jobs may run in parallel.

    The proposals depend on the results alone, so a second start makes the same ones and finds the results in `store`.
    Raises `BoardError` if a device failed, and the errors of `run`.
    """
    left = dict.fromkeys(range(len(lines)), trials)
    while left:
        jobs: dict[str, tuple[Line, Any]] = {}
        work = []
        for k in list(left):
            line = lines[k]
            asked = line.evolution.ask(min(ROUND, left[k]))
            left[k] -= len(asked)
            if not asked or not left[k]:
                del left[k]
            for decisions in asked:
                job = line.job(decisions, not line.records and decisions == asked[0])
                jobs[job.key] = line, decisions
                work.append(job)
        outcomes = run(
            function,
            work,
            key=attrgetter("key"),
            topic=attrgetter("topic"),
            store=store,
            workers=workers,
            on_done=on_done,
        )
        for key, (line, decisions) in jobs.items():
            if outcomes[key].error:
                raise BoardError(f"a trial ended with {outcomes[key].error}; finished ones are kept, start again")
            line.records.append(outcomes[key].value)
            line.evolution.tell(decisions, outcomes[key].value["cycles"])


@lru_cache(maxsize=64)
def _layer(recipe: bytes) -> Layer:
    return layer_of(pickle.loads(recipe))
