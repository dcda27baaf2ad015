"""apps/odimo/torch_training.py: cost terms with their gradients, and the phases of a small network."""

import numpy as np
import pytest

pytest.importorskip("torch")

from tilewright.apps.odimo import costs as tables
from tilewright.apps.odimo import mapping as m
from tilewright.apps.odimo import torch_training as training
from tilewright.apps.odimo.costs import LayerCost, Power, UnitTable
from tilewright.apps.odimo.task import Examples, Recipe
from tilewright.apps.odimo.torch_layers import torch
from tilewright.apps.odimo.torch_network import trace

DIGITAL, TERNARY = UnitTable((0, 4, 8), (0.0, 400.0, 800.0)), UnitTable((0, 4, 8), (0.0, 100.0, 100.0))
LAYER = LayerCost((DIGITAL, TERNARY), UnitTable((0, 4, 8), (800.0, 300.0, 100.0)))


def at(*counts):
    return torch.tensor(counts, requires_grad=True)


@pytest.mark.parametrize("count", [0.0, 1.5, 4.0, 6.0, 8.0])
def test_interpolation_is_that_of_the_table_with_its_slope(count):
    x = torch.tensor(count, requires_grad=True)
    y = training.interpolated(DIGITAL.counts, DIGITAL.cycles, x)
    y.backward()
    assert float(y.detach()) == pytest.approx(DIGITAL.at(count)) and float(x.grad) == pytest.approx(100)


def test_latency_is_that_of_the_splits_and_moves_channels_to_the_faster_side():
    x, y = at(3.0, 5.0), at(4.0, 4.0)
    found = training.latency({"a": LAYER, "b": LAYER}, {"a": x, "b": y})
    found.backward()
    assert float(found.detach()) == 250 + 300 and x.grad.tolist() == [0, -50]


def test_energy_is_the_model_s_with_a_slope_where_a_table_is_flat():
    power, counts = Power((1.0, 0.5), 0.25), at(2.0, 6.0)
    found = training.energy({"a": LAYER}, {"a": counts}, power)
    found.backward()
    assert float(found.detach()) == pytest.approx(tables.energy({"a": LAYER}, {"a": (2.0, 6.0)}, power), rel=0.02)
    flat = 0.5 * tables.SLOPE * 100 / 8  # of the ternary side; the splits save 50 cycles per channel
    assert counts.grad.tolist() == pytest.approx([101, flat - 0.25 * 50])


RECIPE = Recipe(warm_up=4, search=6, final=3, batch=16)
SIDES = DIGITAL, UnitTable((0, 4, 8), (0.0, 100.0, 120.0))
COST = LayerCost(SIDES, UnitTable((0, 4, 8), (800.0, 400.0, 120.0)))


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


def fastest(net):
    return dict.fromkeys(net.sizes(), 0)


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
        cost = training.relative_cost(net, costs(net), fastest(net))
        choice = training.searched(net, examples, RECIPE, 0, strength, cost, 4)
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
        cost = training.relative_cost(net, costs(net), fastest(net), power)
        assert float(cost.soft(full) - cost.soft(least)) == pytest.approx(1)
        assert cost.exact(net.sizes()) - cost.exact(fastest(net)) == pytest.approx(1)
        assert float((cost.soft(full) - cost.soft(net.counts())).detach()) > 0


def test_the_exact_cost_has_the_cycles_of_the_launch(examples):
    """All on GEMM 3,000 cycles, all ternary 1,500, the fastest 1,000: that saves 2,000."""
    net = network(examples)
    cycles: dict[tuple[int, ...], int] = {(8, 8): 3000, (0, 0): 1500, (4, 4): 1000, (4, 8): 1400}
    best: m.Numbers = dict.fromkeys(net.sizes(), 4)
    cost = training.relative_cost(net, costs(net), best, None, lambda numbers: cycles[tuple(numbers.values())])
    one: m.Numbers = dict(zip(net.sizes(), (4, 8)))
    assert cost.exact(one) == pytest.approx(0.7) and cost.exact(net.sizes()) - cost.exact(best) == pytest.approx(1)
    power = Power((1.0, 0.3), 0.5)
    plain, launch = (
        training.relative_cost(net, costs(net), best, power, given)
        for given in (None, lambda numbers: 200 * sum(numbers.values()))
    )
    assert (plain.exact(one) < plain.exact(net.sizes())) and (launch.exact(one) < launch.exact(net.sizes()))


def test_a_search_settles_by_launches_between_numbers_that_have_programs(examples):
    """Launches that disagree with the tables: all blocks of a layer save nothing there, one block saves all."""
    net = network(examples)
    training.warm_up(net, examples, RECIPE, 0)
    cycles = {n: 1000 if n == 4 else 2000 for n in (0, 4, 8)}
    best = dict.fromkeys(net.sizes(), 4)
    cost = training.relative_cost(net, costs(net), best, None, lambda numbers: sum(cycles[n] for n in numbers.values()))
    training.search(net, examples, RECIPE, 0, 50.0, cost)
    preference, wanted = net.preference(), net.wanted()
    assert set(m.nearest(preference, 4, wanted).values()) == {0}  # what the tables ask for
    assert set(map(tuple, m.around(preference, 4, wanted).values())) == {(0, 4)}
    assert m.on_gemm(training.settle(net, examples, RECIPE, 50.0, cost, 4)) == best


def test_a_search_settles_where_no_other_mapping_around_has_less_of_the_same_sum(examples):
    net = network(examples)
    training.warm_up(net, examples, RECIPE, 0)
    cost = training.relative_cost(net, costs(net), fastest(net))
    training.search(net, examples, RECIPE, 0, 0.3, cost)
    options = m.around(net.preference(), 4, net.wanted())
    found = m.on_gemm(training.settle(net, examples, RECIPE, 0.3, cost, 4))
    assert all(len(numbers) == 2 for numbers in options.values())

    def value(numbers):
        net.assign(m.preferred(net.preference(), numbers))
        return training.task_loss(net, examples, RECIPE) + 0.3 * cost.exact(numbers)

    others = [{**found, name: n} for name, numbers in options.items() for n in numbers]
    assert all(found[name] in numbers for name, numbers in options.items())
    assert value(found) == min(map(value, others)) and len({value(other) for other in others}) == 3


def test_the_loss_of_a_mapping_is_that_of_training_s_batches(examples):
    """Batch statistics, whole batches only; nothing of the network changes."""
    net = network(examples)
    training.warm_up(net, examples, RECIPE, 0)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    first = Examples(examples.images[:40], examples.labels[:40])
    found = training.task_loss(net, first, RECIPE)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    net.train()
    with torch.no_grad():
        losses = [
            torch.nn.functional.cross_entropy(
                net(torch.from_numpy(first.images[k : k + 16])), torch.from_numpy(first.labels[k : k + 16])
            )
            for k in (0, 16)
        ]
    assert found == pytest.approx(float(sum(losses)) / 2)


def test_where_nothing_can_be_saved_the_unit_is_the_whole(examples):
    net = network(examples)
    slow = LayerCost((SIDES[1], SIDES[0]), UnitTable((0, 4, 8), (120.0, 400.0, 800.0)))
    full = {name: torch.tensor([8.0, 0.0]) for name in net.sizes()}
    found = training.relative_cost(net, dict.fromkeys(net.sizes(), slow), net.sizes()).soft(full)
    assert float(found) == pytest.approx(1)
