"""apps/odimo/launches.py: cycles of whole launches, tables from them, the fastest mapping."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from tilewright.apps.odimo import costs as launches
from tilewright.apps.odimo import costs as measure
from tilewright.apps.odimo import mapping as m
from tilewright.apps.odimo.costs import SHARED, LayerCost, UnitTable
from tilewright.apps.odimo.integers import IntegerNetwork, to_graph
from tilewright.apps.odimo.task import TYPE, UNIT
from tilewright.compiler.graph import QConv2d
from tilewright.compiler.network import launch_cycles
from tilewright.hw.config import load_config

from .conftest import layer

TWO, TINY = load_config("tiny_two"), load_config("tiny")
SIZES = {"first": 8, "second": 8, "last": 6}


def tables():
    """Of the layers alone: all on the second side is the cheapest."""
    one = UnitTable((0, 4, 8), (0.0, 300.0, 600.0))
    splits = {8: UnitTable((0, 4, 8), (600.0, 400.0, 200.0)), 6: UnitTable((0, 2, 6), (50.0, 40.0, 20.0))}
    return {name: LayerCost((one, one), splits=splits[size]) for name, size in SIZES.items()}


class Played(dict):
    """Cycles by the numbers of channels, in place of launches; which were asked."""

    def __call__(self, numbers):
        self.asked = [*getattr(self, "asked", []), tuple(numbers.values())]
        return self[tuple(numbers.values())]


def test_which_channels_are_on_which_unit(residual):
    network, units = launches.placed(residual, {"first": 4, "second": 8, "last": 0}, UNIT)
    assert units["first"] == {"gemm": [0, 1, 2, 3], "ternary": [4, 5, 6, 7]}
    assert units["second"]["ternary"] == [] and units["last"]["gemm"] == []
    assert [node.name for node in network.nodes] == [node.name for node in residual.nodes]


def test_channels_on_the_ternary_unit_have_ternary_weights():
    node = layer("a", "input", 4, 8, (6, 6))
    assert node.weight is not None
    whole = replace(node, weight=node.weight * 5)
    found = launches.placed(IntegerNetwork((4, 6, 6), 2.0**-6, (whole,)), {"a": 4}, UNIT)[0].nodes[0]
    assert found.weight is not None and whole.weight is not None
    assert np.array_equal(found.weight[:4], whole.weight[:4]) and np.array_equal(found.weight[4:], node.weight[4:])


def test_a_launch_is_that_of_the_point_s_program(residual, monkeypatch):
    """Other channels than the last change no cycles; a launch is measured once."""
    pytest.importorskip("tvm")
    half = {name: np.arange(8) % 2 == 1 for name in ("first", "second")} | {"last": np.arange(6) < 2}
    program = measure.compile_point(TWO, residual, m.channels(half), "net")
    measured = launches.Launches(TWO, residual)
    expected = launch_cycles(program)
    assert measured(m.on_gemm(half)) == expected < measured(SIZES)
    monkeypatch.delattr(launches, "compile_point")
    assert measured(m.on_gemm(half)) == expected


def test_types_are_operators():
    node = layer("a", "input", 12, 12, (6, 6))
    network, units = launches.placed(IntegerNetwork((12, 6, 6), 2.0**-6, (node,)), {"a": 4}, TYPE)
    assert units == {} and network.nodes[0].depthwise == 8
    graph = to_graph(network, "net")
    assert [op.groups for op in graph.ops if isinstance(op, QConv2d)] == [1, 8]


def test_which_configurations_have_both_sides():
    assert launches.measurable(TWO, UNIT) and launches.measurable(TINY, TYPE) and not launches.measurable(TINY, UNIT)


def test_tables_with_the_cycles_of_the_launch():
    """What a split changes there; all channels in int8 keep the cycles of the layer alone."""
    launched = Played({(8, 8, 6): 1000, (4, 8, 6): 700, (0, 8, 6): 750})
    found = launches.in_launch(tables()["first"], launched, "first", SIZES)
    assert found.splits == UnitTable((0, 4, 8), (600.0, 300.0, 350.0)) and found.tables == tables()["first"].tables
    assert [found.hard(n, 8 - n) for n in (8, 4, 0)] == [600, 300, 350]


def test_types_keep_their_sum_and_the_excess_is_that_of_the_launch():
    first, second = UnitTable((0, 8), (0.0, 800.0)), UnitTable((0, 8), (0.0, 160.0))
    cost = LayerCost((first, second), SHARED, UnitTable((0, 4, 8), (0.0, -50.0, 0.0)))
    found = launches.in_launch(cost, Played({(8,): 1000, (4,): 650, (0,): 300}), "a", {"a": 8})
    assert found.tables == cost.tables and found.splits is None
    assert [found.hard(n, 8 - n) for n in (8, 4, 0)] == [800, 450, 100] and found.excess.at(4) == 450 - 480


def test_the_fastest_mapping_is_found_by_launches():
    """From the tables' cheapest, all on the second side, past a pair of layers, to more int8 of equal cycles."""
    cycles = dict.fromkeys(itertools.product((0, 4, 8), (0, 4, 8), (0, 4, 6)), 900)
    cycles |= {(0, 0, 0): 800, (4, 4, 0): 700, (4, 4, 4): 690, (4, 4, 6): 690, (8, 4, 6): 695}
    launched = Played(cycles)
    assert launches.fastest(launched, SIZES, tables(), 4) == {"first": 4, "second": 4, "last": 6}
    assert (0, 0, 0) in launched.asked


def test_no_mapping_of_a_small_network_is_faster(residual):
    pytest.importorskip("tvm")
    measured = launches.Launches(TWO, residual)
    shapes = measure.shapes(residual)
    alone = {name: measure.layer_cost(TWO, shapes[name]) for name in SIZES}
    costs = {name: launches.in_launch(cost, measured, name, SIZES) for name, cost in alone.items()}
    found = measured(launches.fastest(measured, SIZES, costs, 4))
    options = [m.allowed(size, 4) for size in SIZES.values()]
    assert found == min(measured(dict(zip(SIZES, key))) for key in itertools.product(*options))
