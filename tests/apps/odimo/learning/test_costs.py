"""apps/odimo/learning/costs.py: cost terms, their values and their gradients."""

from dataclasses import replace

import pytest

from tilewright.apps.odimo import costs as tables
from tilewright.apps.odimo import torch_training as costs
from tilewright.apps.odimo.costs import OVERLAP, SHARED, LayerCost, Power, UnitTable

torch = pytest.importorskip("torch")

DIGITAL, TERNARY = UnitTable((0, 4, 8), (0.0, 400.0, 800.0)), UnitTable((0, 4, 8), (0.0, 100.0, 100.0))


def at(*counts):
    return torch.tensor(counts, requires_grad=True)


@pytest.mark.parametrize("count", [0.0, 1.5, 4.0, 6.0, 8.0])
def test_interpolation_is_that_of_the_table_with_its_slope(count):
    x = torch.tensor(count, requires_grad=True)
    y = costs.interpolated(DIGITAL, x)
    y.backward()
    linear = tables.SLOPE * 100 * count
    assert float(y.detach()) == pytest.approx(DIGITAL.at(count) + linear) and float(x.grad) == pytest.approx(101)


def test_where_the_table_is_flat_there_is_a_slope():
    x = torch.tensor(6.0, requires_grad=True)
    costs.interpolated(TERNARY, x).backward()
    assert 0 < float(x.grad) < 1


@pytest.mark.parametrize("size", [1.0, 1e5])
def test_the_maximum_means_the_same_at_every_size(size):
    """Not the mean of short times, nor a hard maximum of long ones."""
    far, near = (float(costs.smooth_maximum(torch.tensor(t) * size)) / size for t in ([1.0, 3.0], [2.9, 3.0]))
    assert far == pytest.approx(3, rel=0.01) and 2.9 < near < 3


def test_both_units_get_a_gradient_where_they_are_close_and_none_is_rewarded_for_being_slow():
    times = torch.tensor([2.9, 3.0], requires_grad=True)
    costs.smooth_maximum(times).backward()
    assert (times.grad > 0.3).all() and float(times.grad.sum()) == pytest.approx(1)


def test_latency_of_layers_adds_up():
    layers = {"a": LayerCost((DIGITAL, TERNARY)), "b": LayerCost((DIGITAL, TERNARY), SHARED)}
    counts = {name: at(8.0, 0.0) for name in layers}
    assert float(costs.latency(layers, counts).detach()) == pytest.approx(2 * 808, rel=1e-3)
    counts = {name: at(4.0, 4.0) for name in layers}
    found = costs.latency({"b": layers["b"]}, counts)
    assert float(found.detach()) == pytest.approx(500, rel=0.02)
    assert float(costs.latency(layers, counts).detach()) == pytest.approx(404 + 505, rel=0.02)


@pytest.mark.parametrize("combine", [OVERLAP, SHARED])
def test_the_excess_is_added_without_a_linear_term(combine):
    cost = LayerCost((DIGITAL, TERNARY), combine)
    more = replace(cost, excess=UnitTable((0, 4, 8), (0.0, 50.0, 0.0)))
    found = [costs.latency({"a": one}, {"a": at(4.0, 4.0)}) for one in (more, cost)]
    assert float((found[0] - found[1]).detach()) == pytest.approx(50)
    assert more.hard(4, 4) - cost.hard(4, 4) == 50


def test_the_gradient_moves_channels_to_the_faster_unit():
    counts = at(6.0, 2.0)
    costs.latency({"a": LayerCost((DIGITAL, TERNARY))}, {"a": counts}).backward()
    assert counts.grad[0] > 10 * counts.grad[1] > 0


def test_energy_is_the_model_s():
    layers, power = {"a": LayerCost((DIGITAL, TERNARY))}, Power((1.0, 0.5), 0.25)
    found = float(costs.energy(layers, {"a": at(8.0, 0.0)}, power).detach())
    assert found == pytest.approx(tables.energy(layers, {"a": (8.0, 0.0)}, power), rel=0.02)


def test_the_value_of_a_layer_s_term():
    assert costs.value(LayerCost((DIGITAL, TERNARY)), (8, 0)) == pytest.approx(808, rel=0.01)


def test_a_layer_with_measured_splits_has_their_slope():
    splits = UnitTable((0, 4, 8), (800.0, 300.0, 100.0))
    x = at(3.0, 5.0)
    y = costs.latency({"": LayerCost((DIGITAL, TERNARY), splits=splits)}, {"": x})
    y.backward()
    assert float(y.detach()) == 250 and x.grad.tolist() == [0, -50]
