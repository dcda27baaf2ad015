"""The search of an exploration: a space of configurations, points that Optuna proposes, workers that measure them.

A study lies in a database, SQLite by default, and keeps every result under a key of all that it depends on: a point
that is asked for twice is measured once, also by another process that continues the study.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeAlias

import optuna
from optuna.trial import TrialState

from ...compiler.frontend.source import check_kind, contract_of
from ...compiler.jobs import content_key
from ...hw.config import Config, load_config
from ...hw.errors import ConfigError, FileError, TilewrightError
from ...hw.foreign import read_json
from ...sim.dram import Dram, load_dram
from .area import model_key
from .evaluate import INFEASIBLE, Job, Shapes, evaluate, job_of

BLOCK = "block"  # block_in and block_out together
_SHAPE = '{"block": [8, 16], "acc_bytes": [16384, 32768]}'
_DRAM = "dram."  # before fields of the memory
_HALVED = ("inp_bytes", "wgt_bytes", "acc_bytes", "uop_bytes")
Values: TypeAlias = Mapping[str, Any]  # by field, chosen or measured
Choice = Callable[[str, list[str]], str]  # of a name among texts, as Optuna's trials choose


@dataclass(frozen=True)
class Point:
    """One configuration with its memory, and the `values` that were chosen for them."""

    config: Config
    dram: Dram
    values: Values


@dataclass(frozen=True)
class Space:
    """`choices`: for a field of `Config`, for `block` (both blocks) or for `dram.FIELD`, the values that it may have.

    Everything else is as in `base` and `dram`.
    """

    base: Config
    dram: Dram
    choices: Mapping[str, tuple[object, ...]]

    def __post_init__(self) -> None:
        known = [BLOCK, *(f.name for f in fields(Config) if f.name != "name")]
        known += [_DRAM + f.name for f in fields(Dram) if f.name not in ("name", "seed")]
        for name, values in self.choices.items():
            if name not in known:
                raise ConfigError(f"space: {name!r} is no field; choose among {', '.join(known)}")
            if not values or len({as_text(value) for value in values}) < len(values):
                raise ConfigError(f"space: the values of {name} must be different ones, at least 1")

    @property
    def size(self) -> int:
        """Combinations of values; some of them are no configuration."""
        return math.prod(len(values) for values in self.choices.values())

    def choose(self, choice: Choice, name: str) -> dict[str, object]:
        """Values that `choice` picks, by name of their field; `name` is the configuration's."""
        found = {key: json.loads(choice(key, [as_text(v) for v in values])) for key, values in self.choices.items()}
        return {"name": name, **found}

    def point(self, values: Values) -> Point:
        """The configuration of `values`. Raises `ConfigError` where there is none."""
        chosen = {key: value for key, value in values.items() if not key.startswith(_DRAM)}
        if BLOCK in chosen:
            block = chosen.pop(BLOCK)
            chosen = {"block_in": block, "block_out": block, **chosen}
        config = Config.from_dict({**self.base.to_dict(), **chosen})
        memory = {key.removeprefix(_DRAM): value for key, value in values.items() if key.startswith(_DRAM)}
        if "dram.port_bytes" not in values:  # a port of the memory is as wide as that of the circuit
            width = self.dram.port_bytes * config.axi_bits // self.base.axi_bits
            memory |= {"port_bytes": min(64, max(1, width))}
        return Point(config, self.dram.replace(**memory), dict(values))

    def first(self) -> dict[str, object]:
        """The values of `base` itself, where the space offers them; others are compared with these."""
        every = {**self.base.every_field(), BLOCK: self.base.block_in}
        every |= {_DRAM + f.name: getattr(self.dram, f.name) for f in fields(Dram)}
        return {key: every[key] for key in self.choices}

    def has(self, values: Values) -> bool:
        """True if the space offers all of `values`."""
        return all(as_text(value) in map(as_text, self.choices[key]) for key, value in values.items() if key != "name")


def as_text(value: object) -> str:
    """`value` as a text that names it: choices may be lists, which studies do not hold."""
    return json.dumps(sorted(value) if isinstance(value, (set, frozenset)) else value)


def default_space(base: Config, dram: Dram) -> Space:
    """The space around `base`: smaller blocks and buffers, other queues, other lanes of post-processing."""
    block, choices = base.block_in, dict[str, tuple[object, ...]]()
    if block == base.block_out:
        choices[BLOCK] = tuple(b for b in (block // 4, block // 2, block) if b)
    for name in _HALVED:
        size = getattr(base, name)
        choices[name] = tuple(size >> k for k in (3, 2, 1, 0))
    lanes = base.ppu_lanes
    choices["ppu_lanes"] = tuple(sorted({max(1, lanes // 4), max(1, lanes // 2), lanes}))
    choices["queue_depth"] = tuple(sorted({8, 32, base.queue_depth}))
    choices["load_ports"] = (1, 2)
    return Space(base, dram, choices)


def read_space(path: str | Path, base: Config, dram: Dram) -> Space:
    """The space in a JSON file: an object of lists by field, and optionally `base` and `dram`, which `load_config` and
    `load_dram` take.

    Raises `FileError` for a file that cannot be read or is no JSON, `ConfigError` for names that are no fields.
    """
    values = read_json(path, f"a space, as {_SHAPE}")
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: a space is a JSON object, as {_SHAPE}")
    base = load_config(values.pop("base", base))
    dram = load_dram(values.pop("dram", dram))
    wrong = next((key for key, value in values.items() if not isinstance(value, list)), None)
    if wrong is not None:
        raise ConfigError(f"{path}: {wrong} = {values[wrong]!r}: must be a list of values")
    return Space(base, dram, {key: tuple(value) for key, value in values.items()})


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
    """A point that was tried: the chosen values, and the figures or the reason why there are none."""

    number: int
    values: Values
    found: Values
    new: bool = True

    @property
    def reason(self) -> str:
        """Why the point is infeasible, "" where it is feasible."""
        return self.found.get(INFEASIBLE, "")


@dataclass(frozen=True)
class Question:
    """The subject of a study: networks, a space, the clock, the figures to minimise, shapes of open inputs by name."""

    networks: tuple[str, ...]
    space: Space
    objectives: tuple[str, ...] = DEFAULT
    mhz: int = 100
    shapes: Shapes = field(default_factory=dict)

    def job(self, values: Values) -> Job:
        """Raises `ConfigError` where `values` are no configuration."""
        point = self.space.point(values)
        return job_of(self.networks, point.config, point.dram, self.mhz, self.shapes)

    def topic(self) -> str:
        """The objectives, which a study must share to be continued."""
        return ", ".join(self.objectives)

    def name(self) -> str:
        """A name for the study: the same for the same networks, space, memory, objectives and model of areas."""
        space = self.space
        facts = [
            space.base.to_dict() | {"name": ""},
            asdict(space.dram),
            {k: list(v) for k, v in space.choices.items()},
        ]
        files = networks_key(job_of(self.networks, space.base, space.dram, self.mhz, self.shapes))
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
    _known: dict[str, Values] = field(default_factory=dict)
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
        """Go on until the study has `trials` trials, and return all of them."""
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
        """Take over the study's trials; a trial that a process left unfinished is queued again."""
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

    def _tell(self, trial: optuna.Trial, values: dict, key: str, found: Values) -> None:
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
        """Turn errors of the database into `FileError`."""
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
    """The digest and the rounding contract of each network, on which results depend."""
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
