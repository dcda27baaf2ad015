"""compiler/tune/evolution.py: proposals that learn from the results."""

import random

import pytest

from tilewright.compiler.tune.sampling import ROUND, Choices, Evolution

SIZES = [1 << k for k in range(8)]


def draw(rng):
    return rng.choice(SIZES), rng.choice(SIZES), rng.choice(SIZES)


def mutate(sizes, rng):
    k = rng.randrange(3)
    return tuple(rng.choice(SIZES) if i == k else each for i, each in enumerate(sizes))


def features(sizes):
    bits = [each.bit_length() for each in sizes]
    return {f"{k}": size for k, size in enumerate(bits)} | {f"{k}^2": size * size for k, size in enumerate(bits)}


CHOICES = Choices(draw, mutate, features)


def cycles(sizes):
    """Cheapest at (16, 4, 1); large products do not fit."""
    x, y, z = (each.bit_length() for each in sizes)
    return None if sizes[0] * sizes[1] > 2048 else 1000.0 * 2 ** ((x - 5) ** 2 / 8 + (y - 3) ** 2 / 8 + (z - 1) / 4)


def best(evolution, trials):
    for _ in range(trials // ROUND):
        for each in evolution.ask(ROUND):
            evolution.tell(each, cycles(each))
    return min(each for each in evolution.cycles.values() if each is not None)


def test_it_finds_better_than_random_draws():
    evolved = sum(best(Evolution(CHOICES, seed=seed), 20) for seed in range(10))
    drawn = 0.0
    for seed in range(10):
        rng = random.Random(seed)
        drawn += min(c for c in (cycles(draw(rng)) for _ in range(20)) if c is not None)
    assert evolved < 0.9 * drawn


def test_proposals_are_new_and_depend_on_seed_and_results_alone():
    one, other = Evolution(CHOICES, seed=3), Evolution(CHOICES, seed=3)
    assert best(one, 16) == best(other, 16) and list(one.cycles) == list(other.cycles)
    assert len(one.cycles) == 16 and list(Evolution(CHOICES, seed=4).ask(4)) != list(one.cycles)[:4]


def test_the_first_ones_come_first_and_an_exhausted_space_ends():
    few = Choices(lambda rng: rng.choice("ab"), lambda each, rng: None, lambda each: {each: 1.0})
    evolution = Evolution(few, ["b", "b"])
    assert evolution.ask(1) == ["b"] and evolution.ask(4) == ["a"] and evolution.ask(4) == []


def test_the_cost_model_learns_from_trials_and_failures():
    evolution = Evolution(CHOICES)
    assert evolution.estimate((1, 1, 1)) == evolution.estimate((16, 4, 1)) == pytest.approx(1)
    for sizes in [(a, b, c) for a in SIZES[::2] for b in SIZES[::2] for c in (1, 128)]:
        evolution.tell(sizes, cycles(sizes))
    assert evolution.estimate((16, 4, 1)) == pytest.approx(1000, rel=0.5)
    assert evolution.estimate((128, 128, 1)) > 4 * evolution.estimate((16, 4, 1))


def test_a_guess_is_corrected():
    guessed = Evolution(Choices(draw, mutate, lambda sizes: {}, lambda sizes: float(sizes[0])))
    for size in SIZES:
        guessed.tell((size, 1, 1), 3.0 * size)
    assert guessed.estimate((32, 1, 1)) == pytest.approx(96, rel=1e-3)
