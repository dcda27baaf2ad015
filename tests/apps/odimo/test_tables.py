"""apps/odimo/tables.py: cycles by channels, and their sum or maximum."""

import json

import pytest

from tilewright.apps.odimo.costs import (
    OVERLAP,
    SHARED,
    SLOPE,
    LayerCost,
    Power,
    UnitTable,
    energy,
    from_json,
    sampled,
    to_json,
    total,
)

FIRST, SECOND = UnitTable((0, 4, 8), (0.0, 100.0, 200.0)), UnitTable((0, 8), (0.0, 60.0))


def test_interpolation_with_a_linear_term():
    assert FIRST.at(4) == 100 and FIRST.at(2) == 50
    assert FIRST.sloped[1] == pytest.approx(100 + 4 * SLOPE * 200 / 8)
    flat = UnitTable((0, 4, 8), (0.0, 50.0, 50.0)).sloped
    assert flat[0] == 0 and flat[1] < flat[2]


def test_units_of_one_queue_take_the_sum():
    assert LayerCost((FIRST, SECOND), OVERLAP).hard(4, 8) == FIRST.at(4)
    assert LayerCost((FIRST, SECOND), SHARED).hard(4, 8) == FIRST.at(4) + SECOND.at(8)


def test_what_units_share_is_added():
    cost = LayerCost((FIRST, SECOND), excess=UnitTable((0, 4, 8), (0.0, 30.0, 0.0)))
    assert (cost.hard(8, 0), cost.hard(4, 4), cost.hard(2, 6)) == (200, 130, 50 + 15)


def test_totals_of_a_network():
    costs = {"a": LayerCost((FIRST, SECOND)), "b": LayerCost((FIRST, SECOND))}
    counts = {"a": (8.0, 0.0), "b": (0.0, 8.0)}
    assert total(costs, counts) == FIRST.at(8) + SECOND.at(8)
    power = Power((2.0, 1.0), 0.5)
    assert energy(costs, counts, power) == pytest.approx(2.5 * FIRST.at(8) + 1.5 * SECOND.at(8))


def test_sampled_cycles_never_fall():
    table = sampled({4: 10.0, 8: 7.0, 12: 20.0}.__getitem__, [4, 8, 12])
    assert (table.counts, table.cycles) == ((0, 4, 8, 12), (0.0, 10.0, 10.0, 20.0))


def test_tables_as_json():
    costs = {"a": LayerCost((FIRST, SECOND)), "b": LayerCost((SECOND, FIRST), SHARED, FIRST)}
    assert from_json(json.loads(json.dumps(to_json(costs)))) == costs


def test_measured_splits_are_the_cost():
    """Between two of them a line, where the maximum of the interpolated times has a valley that no program reaches."""
    units = UnitTable((0, 4, 8), (0.0, 800.0, 1600.0)), UnitTable((0, 4, 8), (0.0, 700.0, 720.0))
    cost = LayerCost(units, splits=UnitTable((0, 4, 8), (1600.0, 800.0, 720.0)))
    assert [cost.hard(8 - n, n) for n in (0, 4, 6, 8)] == [1600, 800, 760, 720]
    assert from_json(json.loads(json.dumps(to_json({"a": cost})))) == {"a": cost}
    assert LayerCost(units).hard(3.6, 4.4) < 725
