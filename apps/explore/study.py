"""The search: Optuna asks for points, workers measure them, the study remembers every result.

A study lies in a database, SQLite by default. Its results are found again by what they depend on, so a point that
is asked for twice is measured once, also by another process that goes on with the study.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import optuna
from optuna.trial import TrialState

from ...compiler.frontend.source import check_kind, contract_of
from ...compiler.jobs import content_key
from ...hw.errors import ConfigError, FileError, TilewrightError
from .area import model_key
from .evaluate import INFEASIBLE, Job, evaluate, job_of
from .space import Space, as_text

OBJECTIVES = {
    "latency_us": "microseconds of one inference of every network: cycles at the clock, and the modelled host",
    "cycles": "cycles of the launches",
    "lut": "LUTs of the core, by a fit",
    "ff": "flip-flops of the core, by a fit",
    "bram": "block RAMs of the core",
    "dsp": "DSPs of the core",
    "clock_ns": "nanoseconds of the estimated clock",
    "energy_uj": "microjoules, by a model",
}
DEFAULT = ("latency_us", "bram", "dsp")
_POPULATION = 24
_LEAD = 2  # points asked for ahead, per worker
_FACTS = "tilewright"  # the attribute of a trial that holds its key, values and figures
_DONE = (TrialState.COMPLETE, TrialState.PRUNED)


@dataclass(frozen=True)
class Trial:
    """A point that was tried: what was chosen, and its figures, or why there are none."""

    number: int
    values: Mapping[str, Any]
    found: Mapping[str, Any]
    new: bool = True

    @property
    def reason(self) -> str:
        """Why the point is infeasible, "" where it is feasible."""
        return self.found.get(INFEASIBLE, "")


@dataclass(frozen=True)
class Question:
    """What is explored: networks, a space, the clock, and what is to be small."""

    networks: tuple[str, ...]
    space: Space
    objectives: tuple[str, ...] = DEFAULT
    mhz: int = 100

    def job(self, values: Mapping[str, Any]) -> Job:
        """Raises `ConfigError` where `values` are no configuration."""
        point = self.space.point(values)
        return job_of(self.networks, point.config, point.dram, self.mhz)

    def topic(self) -> str:
        """What a study must agree with to be gone on with: the objectives."""
        return ", ".join(self.objectives)

    def name(self) -> str:
        """A name for the study: the same for the same networks, space, memory, objectives and model of areas."""
        space = self.space
        facts = [
            space.base.to_dict() | {"name": ""},
            asdict(space.dram),
            {k: list(v) for k, v in space.choices.items()},
        ]
        files = networks_key(job_of(self.networks, space.base, space.dram, self.mhz))
        return f"explore {content_key(facts, files, self.objectives, self.mhz, model_key())[:12]}"

    def check(self) -> None:
        """Raise `FileError` or `UnsupportedError` for a network that cannot be read."""
        for path in self.networks:
            check_kind(path)
        self.name()


@dataclass
class Explorer:
    """Tries points of a `question`, kept in the study `name` at the database `url`.

    `workers` is an executor as of apps/explore/cluster.py, and how many points it measures at once; None measures
    in this process. `on_trial` hears of every trial. Raises `FileError` for a database that cannot be used.
    """

    question: Question
    url: str
    name: str
    seed: int = 0
    workers: Executor | None = None
    count: int = 1
    on_trial: Callable[[Trial], None] | None = None
    _known: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    _trials: list[Trial] = field(default_factory=list)

    def __post_init__(self) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        sampler = optuna.samplers.NSGAIISampler(seed=self.seed, population_size=_POPULATION)
        many = [optuna.study.StudyDirection.MINIMIZE] * len(self.question.objectives)
        with self._named():
            storage = optuna.storages.RDBStorage(self.url, heartbeat_interval=None)
            self._study = optuna.create_study(
                storage=storage, study_name=self.name, directions=many, sampler=sampler, load_if_exists=True
            )
            asked = self._study.user_attrs.get("objectives")
        if asked is None:
            self._study.set_user_attr("objectives", self.question.topic())
        elif asked != self.question.topic():
            raise ConfigError(f"study {self.name} minimises {asked}, not {self.question.topic()}; give another --study")

    def explore(self, trials: int) -> list[Trial]:
        """All trials of the study, once it has `trials`; those that it had are not tried again."""
        with self._named():
            self._read()
        waiting: dict[Future, tuple[optuna.Trial, dict, str]] = {}
        while True:
            while len(self._trials) + len(waiting) < trials and len(waiting) < max(1, _LEAD * self.count):
                self._ask(waiting)
            if not waiting:
                return sorted(self._trials, key=lambda trial: trial.number)
            ready, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in ready:
                trial, values, key = waiting.pop(future)
                self._tell(trial, values, key, future.result())

    def _read(self) -> None:
        """Take over what the study has; what was under way when a process ended is asked for again."""
        for trial in self._study.get_trials(deepcopy=False):
            if trial.state in _DONE and _FACTS in trial.user_attrs:
                facts = trial.user_attrs[_FACTS]
                self._known[facts["key"]] = facts["found"]
                self._note(Trial(trial.number, facts["values"], facts["found"], new=False))
            elif trial.state == TrialState.RUNNING:
                self._study.tell(trial.number, state=TrialState.FAIL)
                self._study.enqueue_trial(trial.params, skip_if_exists=False)
        first = self.question.space.first()
        if not self._study.get_trials(deepcopy=False) and self.question.space.has(first):
            self._study.enqueue_trial({key: as_text(value) for key, value in first.items()})

    def _ask(self, waiting: dict[Future, tuple[optuna.Trial, dict, str]]) -> None:
        """Begin the next point, or tell its result at once where that is known."""
        with self._named():
            trial = self._study.ask()
            values = self.question.space.choose(trial.suggest_categorical, f"trial {trial.number}")
        try:
            job = self.question.job(values)
        except ConfigError as exc:
            self._tell(trial, values, f"none {trial.number}", {INFEASIBLE: str(exc)})
            return
        config = {key: value for key, value in job.config.items() if key != "name"}
        key = content_key(networks_key(job), config, {**job.dram, "name": ""}, job.mhz, model_key())
        if key in self._known:
            self._tell(trial, values, key, self._known[key])
            return
        future: Future = Future() if self.workers is None else self.workers.submit(evaluate, job)
        if self.workers is None:
            future.set_result(evaluate(job))
        waiting[future] = trial, values, key

    def _tell(self, trial: optuna.Trial, values: dict, key: str, found: Mapping[str, Any]) -> None:
        new = key not in self._known
        self._known[key] = found
        with self._named():
            trial.set_user_attr(_FACTS, {"key": key, "values": values, "found": found})
            if INFEASIBLE in found:
                self._study.tell(trial, state=TrialState.PRUNED)
            else:
                self._study.tell(trial, [float(found[name]) for name in self.question.objectives])
        self._note(Trial(trial.number, values, found, new))

    @contextmanager
    def _named(self) -> Iterator[None]:
        """What goes wrong with the database is a `FileError`."""
        try:
            yield
        except TilewrightError:
            raise
        except Exception as exc:  # SQLAlchemy's, of any kind of database, and what damage makes Optuna raise
            text = " ".join(str(exc).split())[:160]
            raise FileError(f"study {self.url}: cannot be used ({text}); give another, as sqlite:///study.db") from None

    def _note(self, trial: Trial) -> None:
        self._trials.append(trial)
        if self.on_trial is not None:
            self.on_trial(trial)


def networks_key(job: Job) -> list[list[str]]:
    """The digest and the rounding contract of each network: what results depend on of its file."""
    return [[digest, contract_of(path)] for path, digest in job.networks]


def front(trials: Sequence[Trial], objectives: Sequence[str]) -> list[Trial]:
    """The trials that no other beats in one objective without losing in another, the first objective ascending."""
    feasible: dict[tuple, Trial] = {}
    for trial in trials:
        if not trial.reason:
            feasible.setdefault(tuple(trial.found[name] for name in objectives), trial)
    best = [
        key
        for key in feasible
        if not any(other != key and all(o <= k for o, k in zip(other, key)) for other in feasible)
    ]
    return [feasible[key] for key in sorted(best)]
