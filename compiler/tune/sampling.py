"""Evolution of decisions, and ready schedules as search spaces whose decisions are tiles.

Evolution mutates the fastest decisions so far, in the order of a cost model that is fitted to the trials.

For meta_schedule the tile sizes of a ready schedule are random variables. Loop order, virtual threads, and the set of
loops with a single step change the structure of a schedule, so that each combination is a design space. In a design
space every size and number of slots is a `sample_categorical` of the values in tiles that fit (`Layer.ranked`).
meta_schedule evolves such decisions with the classes below: a check that a tile fits, a mutation, and the cost model's
estimate.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from ..schedule.layer import Layer
from ..tile import OUTPUT_DIMS, Tile
from ..tvm_compat import PrimFunc, Schedule

D = TypeVar("D", bound=Hashable)
Features = Mapping[str, float]
ROUND = 4  # proposals between two looks at results: with more, trials learn less from each other
_PARENTS = 8  # fastest trials that are mutated
_OFFERS = 6  # candidates per trial, of which the cost model chooses
_RANDOM = 0.25  # share of trials that are random
_RIDGE = 0.1  # weight against large coefficients: few trials must not decide much
_FAILED = 4.0  # times the slowest trial: what the cost model learns of one without a program
_LEAST = 4  # trials before the cost model decides


@dataclass
class Choices(Generic[D]):
    """Functions that evolution needs of decisions: random ones, mutations, features, and a first guess of the cycles.

    `draw` and `mutate` return None where they find nothing new. The cost model is the guess times a function of the
    features.
    """

    draw: Callable[[random.Random], D | None]
    mutate: Callable[[D, random.Random], D | None]
    features: Callable[[D], Features]
    guess: Callable[[D], float] = lambda _: 1.0


@dataclass
class Evolution(Generic[D]):
    """Proposes decisions of `space`, those in `first` before all others; the same for the same `seed` and results."""

    space: Choices[D]
    first: Sequence[D] = ()
    seed: int = 0
    cycles: dict[D, float | None] = field(default_factory=dict)  # of every trial; None without a program
    _asked: dict[D, None] = field(default_factory=dict, repr=False)
    _fit_of: int = field(default=-1, repr=False)  # number of trials that `_fit` is of
    _fit: tuple[list[str], np.ndarray] = field(default_factory=lambda: ([], np.zeros(1)), repr=False)

    def ask(self, count: int) -> list[D]:
        """Up to `count` decisions that were not proposed before; fewer if no others are found."""
        rng = random.Random(f"{self.seed} {len(self._asked)}")
        found = [each for each in dict.fromkeys(self.first) if each not in self._asked][:count]
        left = count - len(found)
        if left:
            offers = self._offers(left, rng, found)
            evolved = [each for each, mutant in offers.items() if mutant]
            evolved = sorted(evolved, key=self.estimate)[: max(left - math.ceil(left * _RANDOM), 0)]
            others = [each for each in offers if each not in evolved]
            guided = sorted(others, key=self.estimate) if not self.cycles else others
            found += (evolved + guided)[:left]
        self._asked |= dict.fromkeys(found)
        return found

    def tell(self, decisions: D, cycles: float | None) -> None:
        """The result of a trial, also of one that was not asked for; None if it has no program."""
        self._asked[decisions] = None
        self.cycles[decisions] = cycles

    def estimate(self, decisions: D) -> float:
        """The cost model's cycles: the guess, corrected by least squares on the trials."""
        guess = math.log(self.space.guess(decisions))
        names, weights = self._fitted()
        features = self.space.features(decisions)
        return math.exp(guess + float(np.dot(weights, [1.0, *(features.get(name, 0.0) for name in names)])))

    def _offers(self, count: int, rng: random.Random, taken: Sequence[D]) -> dict[D, bool]:
        """New candidates, and whether each is a mutant."""
        measured = sorted((c, k) for k, c in enumerate(self.cycles.values()) if c is not None)[:_PARENTS]
        known, offers = list(self.cycles), dict[D, bool]()
        for _ in range(_OFFERS * count):
            if measured and rng.random() > _RANDOM:
                _, parent = rng.choice(measured)
                new, mutant = self.space.mutate(known[parent], rng), True
            else:
                new, mutant = self.space.draw(rng), False
            if new is not None and new not in self._asked and new not in taken:
                offers.setdefault(new, mutant)
        return offers

    def _fitted(self) -> tuple[list[str], np.ndarray]:
        """(names of the features, weights with a constant term first) by ridge regression on log(cycles / guess)."""
        if self._fit_of != len(self.cycles):
            self._fit_of, self._fit = len(self.cycles), self._regression()
        return self._fit

    def _regression(self) -> tuple[list[str], np.ndarray]:
        timed = [c for c in self.cycles.values() if c is not None]
        if len(timed) < _LEAST:
            return [], np.zeros(1)
        rows = [self.space.features(each) for each in self.cycles]
        names = sorted({name for row in rows for name in row})
        x = np.array([[1.0, *(row.get(name, 0.0) for name in names)] for row in rows])
        slow = _FAILED * max(timed)
        y = np.log([slow if c is None else c for c in self.cycles.values()])
        y -= np.log([self.space.guess(each) for each in self.cycles])
        penalty = _RIDGE * np.eye(len(names) + 1)
        penalty[0, 0] = 1e-9  # the constant term is free
        return names, np.linalg.solve(x.T @ x + penalty, x.T @ y)


_SLOTS = ("inp_slots", "wgt_slots")
_SIZES = (*OUTPUT_DIMS, "ci")
_SAMPLED = (*_SIZES, *_SLOTS)
_TILE = "tilewright_tile"  # annotates the function: the tile as JSON, null for sampled values
_SKETCHES = 12  # design spaces of the first random decisions; mutations reach the others
_ATTEMPTS = 50  # most mutations that are tried until one fits
_POPULATION, _GENERATIONS = 32, 3
_TOWARDS_CHEAP = 3  # random tiles: the power that favours those which are estimated to be cheap


class _Loops(NamedTuple):
    """The loops of a schedule; those of the dimensions `once` have a single step."""

    order: tuple[str, ...]
    thread: str
    vthreads: int
    once: tuple[str, ...]


@dataclass
class Space:
    """The tiles of `layer` with up to `vthreads` virtual threads; called by meta_schedule, it returns its design
    spaces.

    Raises `CapacityError` if no tile fits, `ScheduleError` for an impossible number of threads.
    """

    layer: Layer
    vthreads: int = 2
    _ranked: dict[Tile, tuple[float, Tile]] = field(default_factory=dict, repr=False)  # without slots: cycles, with
    _choices: dict[_Loops, dict[str, list[int]]] = field(default_factory=dict, repr=False)
    _values: dict[str, list[Any]] = field(default_factory=dict, repr=False)  # of the fields of a tile
    _traces: dict[_Loops, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        Tile(vthreads=self.vthreads).checked()
        found: dict[_Loops, dict[str, set[int]]] = {}
        for threads in range(self.vthreads, 0, -1):
            for tile, cycles in self.layer.ranked(threads):
                tile = replace(tile, order=self._order(tile))
                self._ranked.setdefault(replace(tile, inp_slots=0, wgt_slots=0), (cycles, tile))
                values = found.setdefault(self._loops(tile), {name: set() for name in _SAMPLED})
                for name in _SAMPLED:
                    values[name].add(getattr(tile, name))
        self._choices = {key: {name: sorted(each) for name, each in values.items()} for key, values in found.items()}
        tiles = [tile for _, tile in self._ranked.values()]
        self._values = {each.name: sorted({getattr(tile, each.name) for tile in tiles}) for each in fields(Tile)}

    @property
    def func(self) -> PrimFunc:
        """The function to schedule."""
        return self.layer.func

    def __len__(self) -> int:
        """Number of tiles, not counting their slots."""
        return len(self._ranked)

    def __call__(self, sch: Schedule) -> list[Schedule]:
        """A schedule with open decisions for each of the most promising loop structures."""
        cheapest: dict[_Loops, float] = {}
        for cycles, tile in self._ranked.values():
            loops = self._loops(tile)
            cheapest[loops] = min(cycles, cheapest.get(loops, cycles))
        promising = sorted(cheapest, key=lambda loops: cheapest[loops])[:_SKETCHES]
        return [self._sketch(sch.copy(), loops) for loops in promising]

    def _order(self, tile: Tile) -> tuple[str, ...]:
        """The loop order of a tile, with loops of a single step moved to the front, which does not change it."""
        return tuple(sorted(tile.order, key=lambda d: getattr(self.layer.work, d) > 1))

    def _loops(self, tile: Tile) -> _Loops:
        steps = {d: -(-getattr(self.layer.work, d) // getattr(tile, d)) for d in _SIZES}
        steps[tile.thread] = -(-steps[tile.thread] // tile.vthreads)
        return _Loops(tile.order, tile.thread, tile.vthreads, tuple(d for d in _SIZES if steps[d] == 1))

    def _sketch(self, sch: Schedule, loops: _Loops) -> Schedule:
        choices = self._choices[loops]
        fixed = Tile(order=loops.order, thread=loops.thread, vthreads=loops.vthreads)
        fixed = replace(fixed, **{name: values[0] for name, values in choices.items()})
        opened = {name: values for name, values in choices.items() if len(values) > 1}
        sch.annotate(sch.get_sblock("root"), _TILE, json.dumps(asdict(fixed) | dict.fromkeys(opened)))
        sampled = {name: _sample(sch, values) for name, values in opened.items()}
        self.layer.arrange(sch, replace(fixed, **sampled))
        return sch

    def trace(self, tile: Tile) -> Any:
        """The trace of a schedule with the tile's decisions, one of those that `estimate` knows."""
        loops = self._loops(tile)
        if loops not in self._traces:
            self._traces[loops] = self._sketch(Schedule(self.func), loops).trace
        trace = self._traces[loops]
        opened = [name for name, values in self._choices[loops].items() if len(values) > 1]
        for sample, name in zip(_samples(trace), opened):
            value = self._choices[loops][name].index(getattr(tile, name))
            trace = trace.with_decision(sample, value, remove_postproc=True)
        return trace

    def first(self) -> Tile:
        """The tile to use without tuning."""
        return self.normal(self.layer.best(self.vthreads))

    def estimate(self, tile: Tile) -> float:
        """The cost model's cycles of a tile; infinite if it does not fit, or has fewer slots than they assume."""
        cycles, known = self._ranked.get(replace(tile, inp_slots=0, wgt_slots=0), (float("inf"), tile))
        return cycles if all(getattr(tile, name) >= getattr(known, name) for name in _SLOTS) else float("inf")

    def mutated(self, tile: Tile, rng: random.Random) -> Tile:
        """`tile` with another value for one decision, and the slots that it then needs; itself if none is found."""
        names = [name for name, values in self._values.items() if len(values) > 1]
        for _ in range(_ATTEMPTS if names else 0):
            name = rng.choice(names)
            other = replace(tile, **{name: rng.choice(self._values[name])})
            _, known = self._ranked.get(replace(other, inp_slots=0, wgt_slots=0), (0.0, None))
            if known is None:
                continue
            for each in _SLOTS:
                offered, least = self._choices[self._loops(other)][each], getattr(known, each)
                if getattr(other, each) < least or getattr(other, each) not in offered:
                    other = replace(other, **{each: least})
            if other != tile:
                return other
        return tile

    def normal(self, tile: Tile) -> Tile:
        """`tile` in the form that it has in this space."""
        return replace(tile, order=self._order(tile))

    def choices(self) -> Choices[Tile]:
        """The tiles for evolution; the first guess is the cost model's estimate."""
        ranked = sorted(self._ranked.values(), key=lambda pair: pair[0])
        slowest = ranked[-1][0] if ranked else 1.0

        def draw(rng: random.Random) -> Tile:
            return ranked[int(len(ranked) * rng.random() ** _TOWARDS_CHEAP)][1]

        return Choices(draw, self.mutated, _features, lambda tile: min(self.estimate(tile), slowest))


def _sample(sch: Schedule, values: list[int]):
    return sch.sample_categorical(values, [1 / len(values)] * len(values))


def _features(tile: Tile) -> Features:
    """Logarithms of the sizes, slots, threads, and one feature for the order and the thread's dimension."""
    sizes = {name: math.log2(getattr(tile, name) + 1) for name in (*_SAMPLED, "vthreads")}
    return {**sizes, f"order {' '.join(tile.order)}": 1.0, f"thread {tile.thread}": 1.0}


def _samples(trace: Any) -> list:
    return [inst for inst in trace.insts if inst.kind.name == "SampleCategorical"]


def has_tile(trace: Any) -> bool:
    """Whether the trace is that of a `Space`."""
    return any(inst.kind.name == "Annotate" and inst.attrs[0] == _TILE for inst in trace.insts)


def tile_of(trace: Any) -> Tile:
    """The tile that the decisions in a `Space`'s trace describe."""
    (text,) = (inst.inputs[1] for inst in trace.insts if inst.kind.name == "Annotate" and inst.attrs[0] == _TILE)
    described = json.loads(str(text))
    values = (int(inst.attrs[0][int(trace.decisions[inst])]) for inst in _samples(trace))
    decided: dict[str, Any] = {name: next(values) if value is None else value for name, value in described.items()}
    return Tile(**{**decided, "order": tuple(decided["order"])})


def evolution(tvm: Any, space: Space, trials: int, seed: int) -> dict[str, Any]:
    """Arguments of `tune_tir` that evolve the decisions in `space`, guided by the cost model."""
    ms, rng = tvm.meta_schedule, random.Random(seed)

    @tvm.derived_object
    class Fits(ms.postproc.PyPostproc):
        def _initialize_with_tune_context(self, context):
            pass

        def apply(self, sch):
            return bool(np.isfinite(space.estimate(tile_of(sch.trace))))

        def clone(self):
            return Fits()

    @tvm.derived_object
    class Mutator(ms.mutator.PyMutator):
        def _initialize_with_tune_context(self, context):
            pass

        def apply(self, trace, _=None):
            return space.trace(space.mutated(tile_of(trace), rng))

        def clone(self):
            return Mutator()

    @tvm.derived_object
    class CostModel(ms.cost_model.PyCostModel):
        def load(self, path):
            pass

        def save(self, path):
            pass

        def update(self, context, candidates, results):
            pass

        def predict(self, context, candidates):
            estimates = np.array([space.estimate(tile_of(each.sch.trace)) for each in candidates])
            return estimates.min() / estimates

    population = min(_POPULATION, 2 * trials)
    strategy = ms.search_strategy.EvolutionarySearch(
        population_size=population,
        init_min_unmeasured=population // 2,
        genetic_num_iters=_GENERATIONS,
        eps_greedy=0.25,
    )
    return {
        "space": ms.space_generator.ScheduleFn(space, sch_rules=[], postprocs=[Fits()], mutator_probs={Mutator(): 1.0}),
        "strategy": strategy,
        "cost_model": CostModel(),
    }
