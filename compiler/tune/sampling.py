"""Evolution of the decisions of schedules, and the tiles of a ready schedule as decisions to evolve.

Evolution mutates the fastest decisions so far, in the order of a cost model that is fitted to the trials. It knows no
device: `ask` proposes decisions, `tell` takes the cycles of a trial (compiler/tune/tasks.py, trials.py).
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
from ..tvm_compat import Node, PrimFunc, Schedule

D = TypeVar("D", bound=Hashable)
Features = Mapping[str, float]
ROUND = 4  # proposals between two looks at results: with more, trials learn less from each other
_PARENTS = 8  # fastest trials that are mutated
_OFFERS = 6  # candidates per trial, of which the cost model chooses
_RANDOM = 0.25  # share of trials that are random
_RIDGE = 0.1  # weight against large coefficients: few trials must not decide much
_FAILED = 4.0  # cycles of a trial without a program for the cost model, times the slowest trial
_LEAST = 4  # trials before the cost model decides


@dataclass
class Choices(Generic[D]):
    """Functions on the decisions `D` of a schedule, by which `Evolution` explores them.

    `draw` returns random decisions and `mutate` similar ones; None if they find nothing new. The cost model is `guess`,
    in cycles, times a function of `features` that is fitted to the trials.
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
        proposals = [each for each in dict.fromkeys(self.first) if each not in self._asked][:count]
        left = count - len(proposals)
        if left:
            offers = self._offers(left, rng, proposals)
            evolved = [each for each, mutant in offers.items() if mutant]
            evolved = sorted(evolved, key=self.estimate)[: max(left - math.ceil(left * _RANDOM), 0)]
            rest = [each for each in offers if each not in evolved]
            guided = sorted(rest, key=self.estimate) if not self.cycles else rest
            proposals += (evolved + guided)[:left]
        self._asked |= dict.fromkeys(proposals)
        return proposals

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
        fastest = sorted((c, k) for k, c in enumerate(self.cycles.values()) if c is not None)[:_PARENTS]
        known, offers = list(self.cycles), dict[D, bool]()
        for _ in range(_OFFERS * count):
            if fastest and rng.random() > _RANDOM:
                _, parent = rng.choice(fastest)
                new, mutant = self.space.mutate(known[parent], rng), True
            else:
                new, mutant = self.space.draw(rng), False
            if new is not None and new not in self._asked and new not in taken:
                offers.setdefault(new, mutant)
        return offers

    def _fitted(self) -> tuple[list[str], np.ndarray]:
        """(names of the features, weights with a constant term first) by ridge regression on log(cycles / guess)."""
        timed = [c for c in self.cycles.values() if c is not None]
        if self._fit_of == len(self.cycles) or len(timed) < _LEAST:
            return self._fit
        rows = [self.space.features(each) for each in self.cycles]
        names = sorted({name for row in rows for name in row})
        x = np.array([[1.0, *(row.get(name, 0.0) for name in names)] for row in rows])
        slow = _FAILED * max(timed)
        y = np.log([slow if c is None else c for c in self.cycles.values()])
        y -= np.log([self.space.guess(each) for each in self.cycles])
        penalty = _RIDGE * np.eye(len(names) + 1)
        penalty[0, 0] = 1e-9  # the constant term is free
        self._fit_of, self._fit = len(self.cycles), (names, np.linalg.solve(x.T @ x + penalty, x.T @ y))
        return self._fit


_SLOTS = ("inp_slots", "wgt_slots")
_SIZES = (*OUTPUT_DIMS, "ci")
_TILE = "tilewright_tile"  # annotates the root block of a schedule: its tile as JSON
_PROMISING = 3  # cheapest tiles of the cost model that are tried first
_ATTEMPTS = 50  # most mutations that are tried until one fits
_TOWARDS_CHEAP = 3  # random tiles: the power that favours those which are estimated to be cheap


class _Loops(NamedTuple):
    """The loops over tiles of a schedule; the dimensions `single` have one step."""

    order: tuple[str, ...]
    thread: str
    vthreads: int
    single: tuple[str, ...]


@dataclass
class Space:
    """The tiles of `layer` with 1 to `vthreads` virtual threads, for `tune`.

    Raises `CapacityError` if no tile fits, `ScheduleError` for an impossible number of threads.
    """

    layer: Layer
    vthreads: int = 2
    # tile without numbers of slots (tiles on chip at a time) -> (estimated cycles, the tile with the slots of these)
    _ranked: dict[Tile, tuple[float, Tile]] = field(default_factory=dict, repr=False)
    _slots: dict[tuple[_Loops, str], set[int]] = field(default_factory=dict, repr=False)  # numbers of tiles that fit
    _values: dict[str, list[Any]] = field(default_factory=dict, repr=False)  # of the fields of a tile

    def __post_init__(self) -> None:
        Tile(vthreads=self.vthreads).checked()
        for threads in range(self.vthreads, 0, -1):
            for ranked, cycles in self.layer.ranked(threads):
                tile = self.normal(ranked)
                self._ranked.setdefault(_without_slots(tile), (cycles, tile))
                for name in _SLOTS:
                    self._slots.setdefault((self._loops(tile), name), set()).add(getattr(tile, name))
        tiles = [tile for _, tile in self._ranked.values()]
        self._values = {each.name: sorted({getattr(tile, each.name) for tile in tiles}) for each in fields(Tile)}

    @property
    def func(self) -> PrimFunc:
        """The function to schedule."""
        return self.layer.func

    def __len__(self) -> int:
        """Number of tiles, not counting their slots."""
        return len(self._ranked)

    def scheduled(self, tile: Tile) -> Schedule:
        """The schedule for `tile`, whose trace holds the tile (`tile_of`)."""
        sch = Schedule(self.func)
        sch.annotate(sch.get_sblock("root"), _TILE, json.dumps(asdict(tile)))
        self.layer.arrange(sch, tile)
        return sch

    def normal(self, tile: Tile) -> Tile:
        """`tile` with loops of a single step outermost, which does not change its program: equal ones compare equal."""
        order = sorted(tile.order, key=lambda dimension: getattr(self.layer.work, dimension) > 1)
        return replace(tile, order=tuple(order))

    def first(self) -> Tile:
        """The tile to use without tuning."""
        return self.normal(self.layer.best(self.vthreads))

    def promising(self) -> list[Tile]:
        """Tiles to try first: the one that is used without tuning, then others that the cost model finds good."""
        return [self.first(), *map(self.normal, self.layer.promising(self.vthreads, _PROMISING))]

    def estimate(self, tile: Tile) -> float:
        """The cost model's cycles of a tile; infinite if it does not fit, or has fewer slots than they assume."""
        cycles, known = self._ranked.get(_without_slots(tile), (float("inf"), tile))
        return cycles if all(getattr(tile, name) >= getattr(known, name) for name in _SLOTS) else float("inf")

    def mutated(self, tile: Tile, rng: random.Random) -> Tile:
        """`tile` with another value for one decision, and the slots that it then needs; itself if none is found."""
        names = [name for name, values in self._values.items() if len(values) > 1]
        for _ in range(_ATTEMPTS if names else 0):
            name = rng.choice(names)
            mutant = replace(tile, **{name: rng.choice(self._values[name])})
            _, known = self._ranked.get(_without_slots(mutant), (0.0, None))
            if known is None:
                continue
            for slots in _SLOTS:
                count, least = getattr(mutant, slots), getattr(known, slots)
                if count < least or count not in self._slots[self._loops(mutant), slots]:
                    mutant = replace(mutant, **{slots: least})
            if mutant != tile:
                return mutant
        return tile

    def choices(self) -> Choices[Tile]:
        """The tiles for evolution; the first guess is the cost model's estimate."""
        ranked = sorted(self._ranked.values(), key=lambda pair: pair[0])
        slowest = ranked[-1][0] if ranked else 1.0

        def draw(rng: random.Random) -> Tile:
            return ranked[int(len(ranked) * rng.random() ** _TOWARDS_CHEAP)][1]

        return Choices(draw, self.mutated, _features, lambda tile: min(self.estimate(tile), slowest))

    def _loops(self, tile: Tile) -> _Loops:
        steps = {d: -(-getattr(self.layer.work, d) // getattr(tile, d)) for d in _SIZES}
        steps[tile.thread] = -(-steps[tile.thread] // tile.vthreads)
        return _Loops(tile.order, tile.thread, tile.vthreads, tuple(d for d in _SIZES if steps[d] == 1))


def _without_slots(tile: Tile) -> Tile:
    return replace(tile, inp_slots=0, wgt_slots=0)


def _features(tile: Tile) -> Features:
    """Logarithms of the sizes, slots, threads, and one feature for the order and the thread's dimension."""
    sizes = {name: math.log2(getattr(tile, name) + 1) for name in (*_SIZES, *_SLOTS, "vthreads")}
    return {**sizes, f"order {' '.join(tile.order)}": 1.0, f"thread {tile.thread}": 1.0}


def tile_of(trace: Node) -> Tile | None:
    """The tile in the trace of a `Space`'s schedule; None for the traces of other schedules."""
    for inst in trace.insts:
        if inst.kind.name == "Annotate" and inst.attrs[0] == _TILE:
            values = json.loads(str(inst.inputs[1]))
            return Tile(**{**values, "order": tuple(values["order"])})
    return None
