"""Proposals that learn from the results, and ready schedules as spaces of tiles."""

import dataclasses
import random

import pytest

from tilewright.compiler.api import build
from tilewright.compiler.schedule.conv2d import conv2d
from tilewright.compiler.schedule.dense import dense
from tilewright.compiler.schedule.depthwise import depthwise
from tilewright.compiler.schedule.elementwise import elementwise
from tilewright.compiler.schedule.layer import layer_of
from tilewright.compiler.schedule.pool import pool
from tilewright.compiler.schedule.tiling import ranked_tiles
from tilewright.compiler.tile import Tile
from tilewright.compiler.tune.sampling import ROUND, Choices, Evolution, Space, tile_of
from tilewright.compiler.tvm_compat import Schedule
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import CapacityError, ScheduleError

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
    guessed = Evolution(Choices(draw, mutate, lambda sizes: {}, lambda sizes: float(sizes[0])))
    for size in SIZES:
        guessed.tell((size, 1, 1), 3.0 * size)
    assert guessed.estimate((32, 1, 1)) == pytest.approx(96, rel=1e-3)  # a guess is corrected


TINY = PRESETS["tiny"]
PYNQ = PRESETS["pynq_z1"]


def convolution(**fields):
    return Space(layer_of(conv2d, TINY, 1, 7, 6, 8, 12, 3, 3, pad=(1, 1, 1, 1), epilogue=[("add", "b")]), **fields)


def fits(layer):
    """What the cost model finds that fits with one or two threads, apart from slots and the place of unit loops."""
    found = set()
    for threads in (1, 2):
        for tile, _ in ranked_tiles(layer.work, layer.cfg, threads):
            order = tuple(d for d in tile.order if getattr(layer.work, d) > 1)
            found.add((order, tile.thread, tile.vthreads, tile.n, tile.co, tile.oy, tile.ox, tile.ci))
    return found


def walk(space, steps):
    """Tiles that mutations lead to."""
    rng, tile = random.Random(1), space.first()
    for _ in range(steps):
        tile = space.mutated(tile, rng)
        yield tile


def test_the_space_holds_every_tile_that_fits_once():
    space = convolution()
    assert len(space) == len(fits(space.layer)) > 100


@pytest.mark.parametrize(
    "layer",
    [
        layer_of(conv2d, PYNQ, 1, 14, 14, 64, 64, 3, 3, pad=(1, 1, 1, 1), epilogue=[("requant", "q")]),
        layer_of(depthwise, PYNQ, 1, 14, 14, 64, 3, 3, stride=(2, 2), pad=(1, 1, 1, 1), epilogue=[("requant", "q")]),
        layer_of(dense, PYNQ, 4, 128, 256, epilogue=[("add", "b"), ("max", 0)]),
        layer_of(elementwise, PYNQ, 3000, [("add", "y"), ("shr", 1)], dtype="int8"),
        layer_of(pool, PYNQ, 1, 14, 14, 64, 3, 3, (2, 2), (1, 1, 1, 1)),
    ],
    ids=["conv2d", "depthwise", "dense", "elementwise", "pool"],
)
def test_the_first_trial_is_the_program_without_tuning(layer):
    space = Space(layer)
    tile, chosen = space.first(), layer.best(2)
    sch = space.scheduled(tile)
    assert tile_of(sch.trace) == tile == dataclasses.replace(chosen, order=tile.order)
    again = Schedule(space.func)
    sch.trace.apply_to_schedule(again, remove_postproc=False)
    first, *others = (build(each, PYNQ).finish().insn.tobytes() for each in (sch, again, layer.scheduled(chosen)))
    assert others == [first, first]


@pytest.mark.parametrize(
    "layer, vthreads, threads, orders",
    [
        (convolution().layer, 3, {1, 2, 3}, 2),
        (layer_of(conv2d, TINY, 1, 3, 3, 4, 8, 1, 1), 1, {1}, 2),
        (layer_of(conv2d, TINY, 2, 3, 3, 4, 8, 1, 1), 1, {1}, 3),  # several images
        (layer_of(elementwise, PYNQ, 5, [("max", 0)]), 4, {1, 2, 3, 4}, 1),  # fewer tiles than threads
        (layer_of(pool, TINY, 1, 1, 1, 4, 1, 1), 2, {1}, 1),  # without a choice
    ],
)
def test_mutations_reach_threads_and_orders(layer, vthreads, threads, orders):
    space = Space(layer, vthreads)
    tiles = [*walk(space, 80)]
    assert all(space.estimate(tile) < float("inf") for tile in tiles)
    assert {tile.vthreads for tile in tiles} == threads and len({tile.order for tile in tiles}) == orders


def test_a_mutation_changes_one_decision_and_what_slots_it_needs():
    space = convolution()
    first = space.first()
    tiles = {space.mutated(first, random.Random(seed)) for seed in range(20)}
    assert len(tiles) > 5 and first not in tiles
    for tile in tiles:
        changed = {name for name in vars(tile) if getattr(tile, name) != getattr(first, name)}
        assert len(changed) == 1 or len(changed - {"inp_slots", "wgt_slots"}) == 1


def test_a_tile_that_does_not_fit_or_lacks_slots_costs_without_end():
    space = convolution()
    tile = space.first()
    assert space.estimate(tile) < float("inf") == space.estimate(Tile(co=3, oy=7, ox=6, ci=2, vthreads=2))
    more, fewer = (Tile(**{**vars(tile), "wgt_slots": tile.wgt_slots + n}) for n in (1, -1))
    assert space.estimate(more) == space.estimate(tile) and space.estimate(fewer) == float("inf")


def test_layers_and_threads_without_a_space():
    with pytest.raises(ScheduleError, match="vthreads = 0: must be 1 to 4"):
        convolution(vthreads=0)
    with pytest.raises(CapacityError, match="no tile fits"):
        Space(layer_of(conv2d, TINY, 1, 1, 3000, 4, 4, 1, 2500))
