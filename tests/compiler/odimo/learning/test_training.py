"""compiler/odimo/learning/training.py: phases of a small network."""

import numpy as np
import pytest

from tilewright.compiler.odimo import mapping as m
from tilewright.compiler.odimo.learning import training
from tilewright.compiler.odimo.learning.tracing import trace
from tilewright.compiler.odimo.recipe import Examples, Recipe
from tilewright.compiler.odimo.tables import LayerCost, Power, UnitTable

torch = pytest.importorskip("torch")

RECIPE = Recipe(warm_up=4, search=6, final=3, batch=16)
COST = LayerCost((UnitTable((0, 4, 8), (0.0, 400.0, 800.0)), UnitTable((0, 4, 8), (0.0, 100.0, 120.0))))


@pytest.fixture
def examples():
    """Images whose label is the brighter half."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 160)
    images = rng.normal(0, 0.3, (160, 1, 6, 6))
    images[:, 0, :3] += labels[:, None, None]
    images[:, 0, 3:] += 1 - labels[:, None, None]
    return Examples(images.astype(np.float32), labels)


def network(examples):
    training.repeatable(0)
    nn = torch.nn
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 8)
    )
    return trace(model, examples.images)


def costs(net):
    return dict.fromkeys(net.sizes(), COST)


def test_a_network_learns_and_the_warm_up_leaves_the_shares(examples):
    net = network(examples)
    training.warm_up(net, examples, RECIPE, 0)
    assert training.accuracy(net, examples) > 90
    assert all(not values.any() for values in net.preference().values())


def test_a_strong_cost_moves_channels_to_the_faster_unit(examples):
    """All of them where it is all that counts; none without it."""
    found = {}
    for strength in (0.0, 50.0):
        net = network(examples)
        training.warm_up(net, examples, RECIPE, 0)
        term = training.relative_cost(net, costs(net), 4)
        choice = training.searched(net, examples, RECIPE, 0, strength, term, 4)
        found[strength] = m.share(choice), training.accuracy(net, examples)
        assert all(np.array_equal(layer.chosen.numpy(), choice[name]) for name, layer in net.mapped())
    assert found[50.0][0] == 1 and found[50.0][0] > found[0.0][0] and found[50.0][1] > 80


def test_the_same_seed_gives_the_same_network(examples):
    first, second = network(examples), network(examples)
    for net in (first, second):
        training.warm_up(net, examples, RECIPE, 5)
    assert all(torch.equal(a, b) for a, b in zip(first.state_dict().values(), second.state_dict().values()))


def test_costs_are_in_units_of_what_can_be_saved(examples):
    """Between all on GEMM and the fastest choice lies one unit."""
    net = network(examples)
    full, least = ({name: torch.tensor(pair) for name in net.sizes()} for pair in ([8.0, 0.0], [0.0, 8.0]))
    for power in (None, Power((1.0, 0.3), 0.5)):
        term = training.relative_cost(net, costs(net), 4, power)
        assert float(term(full) - term(least)) == pytest.approx(1)
        assert float((term(full) - term(net.counts())).detach()) > 0


def test_where_nothing_can_be_saved_the_unit_is_the_whole(examples):
    net = network(examples)
    slow = LayerCost((COST.tables[1], COST.tables[0]))
    full = {name: torch.tensor([8.0, 0.0]) for name in net.sizes()}
    found = training.relative_cost(net, dict.fromkeys(net.sizes(), slow), 4)(full)
    assert float(found) == pytest.approx(1)
