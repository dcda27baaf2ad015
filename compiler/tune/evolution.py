"""Evolution of any decisions: mutations of the fastest so far, ordered by a cost model that is fitted to the trials."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

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
    """What evolution asks of decisions: random ones, mutations, features, and a first guess of the cycles.

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
