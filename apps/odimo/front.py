"""The Pareto front of a network in accuracy and latency or energy: points of several strengths and seeds, baselines.

The steps are warm-ups, the layers' cost tables, alone and in the launch, the fastest mapping, the points, and their
programs. Each step is jobs in processes, and each result is stored as its job ends (compiler/jobs.py): a second start
goes on with the jobs that are missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from ...compiler import jobs as engine
from ...hw.config import Config
from ...hw.errors import ExecutionError
from . import jobs
from .costs import Costs, LayerShape, Power, check, energy, from_json
from .task import ALTERNATIVES, TYPE, UNIT, Task

LATENCY, ENERGY = "latency", "energy"
POWER = Power((1.0, 0.35), 0.5)  # relative to GEMM at work: assumed, from the LUTs and DSPs that the units take
POWERS = {UNIT: POWER, TYPE: Power((1.0, 1.0), 0.5)}  # both types keep the same array at work


@dataclass(frozen=True)
class Plan:
    """A front to explore: a task for a configuration, strengths (lambda) and seeds of searches, the `objective`.

    `baselines` are by default all of the task's choice.
    """

    task: Task
    config: Config
    strengths: tuple[float, ...]
    seeds: tuple[int, ...]
    objective: str = LATENCY
    baselines: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Point:
    """One trained network: accuracy of its integers in percent, cycles of its launch, energy of the model.

    `share` are the channels on the second side of the choice, ternary or depthwise, of those that have one.
    """

    name: str
    seed: int
    accuracy: float
    float_accuracy: float
    cycles: int
    energy: float
    share: float
    images: int
    equal: int
    program: str
    channels: dict[str, dict[str, int]]  # numbers on each side by layer


@dataclass(frozen=True)
class Mean:
    """A point's mean over the seeds, with the range of its accuracy."""

    name: str
    accuracy: float
    lowest: float
    highest: float
    cycles: float
    energy: float
    share: float
    on_front: bool = False


@dataclass(frozen=True)
class Front:
    """The result of a plan: all points by kind and seed, and the cost tables of the search."""

    plan: Plan
    points: tuple[Point, ...]
    costs: jobs.Facts

    @property
    def means(self) -> list[Mean]:
        """A mean per kind of point, in the order of the plan; `on_front` where none is faster and better."""
        names = list(dict.fromkeys(point.name for point in self.points))
        means = [_mean([point for point in self.points if point.name == name]) for name in names]
        return [replace(one, on_front=not any(_better(other, one) for other in means)) for one in means]

    @property
    def equal(self) -> bool:
        """Whether the scores of every image equal torch's, computed in integers."""
        return all(point.equal == point.images for point in self.points)

    def to_json(self) -> jobs.Facts:
        """The front as its file has it."""
        plan = self.plan
        return {
            "network": plan.task.name,
            "config": plan.config.name,
            "objective": plan.objective,
            "recipe": asdict(plan.task.recipe),
            "choice": plan.task.choice,
            "power_model": asdict(POWERS[plan.task.choice]),
            "means": [asdict(one) for one in self.means],
            "points": [asdict(one) for one in self.points],
            "tables": self.costs,
        }


def explore(
    plan: Plan,
    folder: str | Path,
    store: engine.Store | None = None,
    workers: Executor | None = None,
    on_step: Callable[[str], None] | None = None,
) -> Front:
    """Train, compile and run all points; programs go to `folder`, which exists.

    Results in `store` are not computed again; `workers` are processes, without them all is done in this one.

    Raises `ExecutionError` with the first job's error that there is, `UnsupportedError` for a configuration that has
    no products for depthwise convolutions where types are chosen.
    """
    if plan.task.choice == TYPE:
        check(plan.config)

    def step(function: Callable[[Any], Any], arguments: Iterable[Any]) -> list[Any]:
        arguments = list(arguments)

        def tell(outcome: engine.Outcome) -> None:
            if on_step is not None:
                on_step(function.__name__)

        found = engine.run(function, arguments, key=lambda job: job.key, store=store, workers=workers, on_done=tell)
        failed = next((one for one in found.values() if one.error), None)
        if failed is not None:
            raise ExecutionError(f"{function.__name__}: {failed.error[:250]}")
        return [found[job.key].value for job in arguments]

    starts = [jobs.WarmUp(plan.task, seed) for seed in plan.seeds]
    warm = step(jobs.warm_up, starts)
    shapes = {name: LayerShape.from_json(shape) for name, shape in warm[0]["shapes"].items()}
    tables = step(jobs.layer, [jobs.Layer(plan.config, shape, plan.task.choice) for shape in shapes.values()])
    alone = json.dumps({name: table["layer"] for name, table in zip(shapes, tables)})
    network = warm[0]["network"]
    launches = step(jobs.in_launch, [jobs.Launch(plan.config, starts[0], alone, network, name) for name in shapes])
    costs = {name: table["layer"] for name, table in zip(shapes, launches)}
    (fastest,) = step(jobs.fastest, [jobs.Launch(plan.config, starts[0], json.dumps(costs), network)])
    trains = [_train(plan, *start, costs, fastest, kind) for kind in kinds(plan) for start in zip(starts, warm)]
    trained = step(jobs.train, trains)
    deploys = [_deploy(plan, job, one, Path(folder)) for job, one in zip(trains, trained)]
    deployed = step(jobs.deploy, deploys)
    return Front(
        plan, tuple(_point(*each, from_json(costs)) for each in zip(trains, trained, deploys, deployed)), costs
    )


def kinds(plan: Plan) -> list[tuple[str, float]]:
    """(kind, strength) of the points of each seed: all on the first side, the searches, the other baselines."""
    searches = [(jobs.SEARCH, strength) for strength in plan.strengths]
    given = ALTERNATIVES[plan.task.choice].baselines if plan.baselines is None else plan.baselines
    fixed = [(kind, 0.0) for kind in given]
    return [*fixed[:1], *searches, *fixed[1:]]


def _name(kind: str, strength: float) -> str:
    return f"{kind} {strength:g}" if kind == jobs.SEARCH else kind


def _train(
    plan: Plan,
    start: jobs.WarmUp,
    warm: jobs.Facts,
    costs: jobs.Facts,
    fastest: dict[str, int],
    kind: tuple[str, float],
) -> jobs.Train:
    power = POWERS[plan.task.choice] if plan.objective == ENERGY else None
    facts = plan.config, json.dumps(costs), fastest, power, warm["state"], warm["network"]
    return jobs.Train(start, *kind, *facts)


def _deploy(plan: Plan, job: jobs.Train, trained: jobs.Facts, folder: Path) -> jobs.Deploy:
    name = f"{plan.task.name}-{_name(job.kind, job.strength).replace(' ', '-')}-seed-{job.start.seed}"
    return jobs.Deploy(plan.config, plan.task, name, str(folder / f"{name}.tw"), trained)


def _point(job: jobs.Train, trained: jobs.Facts, program: jobs.Deploy, run: jobs.Facts, costs: Costs) -> Point:
    numbers = {name: {unit: len(found) for unit, found in split.items()} for name, split in trained["channels"].items()}
    counts = {name: tuple(split.values()) for name, split in numbers.items()}
    return Point(
        name=_name(job.kind, job.strength),
        seed=job.start.seed,
        accuracy=run["accuracy"],
        float_accuracy=trained["float_accuracy"],
        cycles=run["cycles"],
        energy=energy(costs, counts, POWERS[job.start.task.choice]),
        share=trained["share"],
        images=run["images"],
        equal=run["equal"],
        program=Path(program.path).name,
        channels=numbers,
    )


def _mean(points: Sequence[Point]) -> Mean:
    accuracies = [point.accuracy for point in points]
    cycles, energy, share = (fmean(getattr(point, key) for point in points) for key in ("cycles", "energy", "share"))
    return Mean(points[0].name, fmean(accuracies), min(accuracies), max(accuracies), cycles, energy, share)


def _better(one: Mean, other: Mean) -> bool:
    """Whether `one` is at least as fast and as accurate as `other`, and not the same in both."""
    first, second = (one.cycles, -one.accuracy), (other.cycles, -other.accuracy)
    return first != second and first[0] <= second[0] and first[1] <= second[1]
