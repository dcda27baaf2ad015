"""Tuning tasks: layers that ready schedules compute, and trials of tiles for them, in rounds of parallel jobs.

A task holds its layer as a recipe, the pickled call of the ready schedule, so that worker processes can make it again.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Generic, Protocol, TypeVar

from ...hw.errors import BoardError, TilewrightError
from ...runtime.launch import Launch
from ...sim.dram import Dram
from ..api import build
from ..cache import sources
from ..jobs import Outcome, Store, content_key, run
from ..schedule.layer import Layer, layer_of
from ..tile import Tile
from .evolution import ROUND, Evolution
from .known import tile_from
from .measure import cycles_of
from .sampling import Space

_PROMISING = 3  # tiles of the cost model that are tried first
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
        """The layer."""
        return _layer(self.recipe)


@dataclass(frozen=True)
class Measurer:
    """What counts cycles: a device or server, and the memory of those that are simulated; None: the default."""

    on: str = "timing"
    dram: Dram | None = None

    def facts(self) -> dict[str, Any]:
        """What a trial's cycles depend on besides the program's sources and its decisions."""
        memory = None if self.dram is None else dataclasses.asdict(self.dram)
        return {"on": self.on, "dram": memory, "sources": sources()}


@dataclass(frozen=True)
class Trial:
    """The tile `decisions`, fields by name, to try for a task; `first` for the one that is used without tuning."""

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


def measure(trial: Trial) -> dict[str, Any]:
    """The record of a trial."""

    def launch() -> Launch:
        layer = trial.task.layer
        return build(layer.scheduled(tile_from(trial.decisions)), layer.cfg).finish()

    return recorded(launch, trial.decisions, trial.first, trial.task.text, trial.measurer)


def recorded(
    launch: Callable[[], Launch], decisions: Any, first: bool, text: str, measurer: Measurer
) -> dict[str, Any]:
    """The record of a trial in a database: `cycles`, or None and the `error` where `launch` makes no program.

    Raises `BoardError` where a board or server does not answer: that says nothing about the trial.
    """
    found: dict[str, Any] = {"decisions": decisions, "first": first, "layer": text, "cycles": None, "error": ""}
    found |= measurer.facts()
    try:
        found["cycles"] = cycles_of(launch(), measurer.on, measurer.dram)
    except BoardError:
        raise
    except TilewrightError as exc:
        found["error"] = f"{type(exc).__name__}: {exc}"
    return found


class Job(Protocol):
    """A trial as a job: the key of its result, and its topic in the database."""

    @property
    def key(self) -> str:
        """The key."""
        ...

    @property
    def topic(self) -> str:
        """The topic."""
        ...


@dataclass
class Line(Generic[D]):
    """The trials of one task: `evolution` proposes decisions, `job` makes the job that tries them.

    `records` are the results so far, in order; those of a device that failed are not among them.
    """

    evolution: Evolution[Any]
    job: Callable[[D, bool], Job]
    records: list[dict[str, Any]] = field(default_factory=list)

    @property
    def before(self) -> int | None:
        """Cycles of the first trial; None if it has no program."""
        return next((each["cycles"] for each in self.records if each["first"]), None)

    @property
    def best(self) -> dict[str, Any] | None:
        """The fastest trial; None if none has a program."""
        timed = [each for each in self.records if each["cycles"] is not None]
        return min(timed, key=lambda each: each["cycles"]) if timed else None


def tile_line(task: Task, measurer: Measurer, seed: int) -> Line[Tile]:
    """The trials of a task: the tile without tuning, promising ones, then evolution. Raises `CapacityError`."""
    space = Space(task.layer)
    first = [space.first(), *map(space.normal, task.layer.promising(space.vthreads, _PROMISING))]
    evolution = Evolution(space.choices(), first, seed)
    return Line(evolution, lambda tile, is_first: Trial(task, dataclasses.asdict(tile), measurer, is_first))


def evolve(
    lines: Sequence[Line],
    function: Callable[[Any], dict[str, Any]],
    trials: int,
    *,
    store: Store | None = None,
    workers: Executor | None = None,
    on_done: Callable[[Outcome], None] | None = None,
) -> None:
    """`trials` trials of every line, `function(job)` each, in rounds in which all jobs may run at the same time.

    The proposals depend on the results alone: a second start proposes the same and finds in `store` what was done.
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
        found = run(function, work, key=_key, topic=_topic, store=store, workers=workers, on_done=on_done)
        for key, (line, decisions) in jobs.items():
            if found[key].error:
                raise BoardError(f"a trial ended with {found[key].error}; finished ones are kept, start again")
            line.records.append(found[key].value)
            line.evolution.tell(decisions, found[key].value["cycles"])


def _key(job: Job) -> str:
    return job.key


def _topic(job: Job) -> str:
    return job.topic


@lru_cache(maxsize=64)
def _layer(recipe: bytes) -> Layer:
    return layer_of(pickle.loads(recipe))
