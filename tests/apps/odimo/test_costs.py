"""apps/odimo/costs.py: cycles by channels from the timing model, alone and in the launch, and the fastest mapping."""

import itertools
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tilewright.apps.odimo import costs
from tilewright.apps.odimo import mapping as m
from tilewright.apps.odimo.costs import LayerCost, LayerShape, Power, UnitTable, compile_point, device_scores
from tilewright.apps.odimo.integers import IntegerNetwork, to_graph
from tilewright.apps.odimo.task import TYPE, UNIT
from tilewright.compiler import graph as g
from tilewright.compiler.graph import reference
from tilewright.compiler.network import launch_cycles
from tilewright.hw.config import load_config
from tilewright.hw.errors import UnsupportedError

from .conftest import layer

TWO, TINY = load_config("tiny_two"), load_config("tiny")
FIRST, SECOND = UnitTable((0, 4, 8), (0.0, 100.0, 200.0)), UnitTable((0, 8), (0.0, 60.0))
SPLITS = UnitTable((0, 4, 8), (200.0, 110.0, 60.0))
SHAPE = LayerShape((8, 6, 6), 8, (3, 3), (1, 1), (1, 1))
SIZES = {"first": 8, "second": 8, "last": 6}


def test_interpolation_and_the_linear_term_where_a_table_is_flat():
    assert FIRST.at(4) == 100 and FIRST.at(2) == 50
    assert FIRST.sloped[1] == pytest.approx(100 + 4 * costs.SLOPE * 200 / 8)
    flat = UnitTable((0, 4, 8), (0.0, 50.0, 50.0)).sloped
    assert flat[0] == 0 and flat[1] < flat[2]


def test_energy_counts_each_side_at_work_and_the_rest_as_long_as_the_split_takes():
    layers = dict.fromkeys("ab", LayerCost((FIRST, SECOND), SPLITS))
    found = costs.energy(layers, {"a": (8.0, 0.0), "b": (2.0, 6.0)}, Power((2.0, 1.0), 0.5))
    assert found == pytest.approx(2 * 200 + 0.5 * 200 + 2 * 50 + 1 * 45 + 0.5 * 85)


def test_tables_as_json():
    layers = {"a": LayerCost((FIRST, SECOND), SPLITS), "b": LayerCost((SECOND, FIRST), SECOND)}
    assert costs.from_json(json.loads(json.dumps(costs.to_json(layers)))) == layers


def test_shapes_of_a_network(residual):
    found = costs.shapes(residual)
    assert found["second"] == SHAPE and found["last"] == LayerShape((8,), 6) and found["last"].output == (6,)
    assert LayerShape.from_json(json.loads(json.dumps(SHAPE.to_json()))) == SHAPE
    assert LayerShape((3, 9, 7), 8, (3, 3), (2, 2), (1, 1)).output == (8, 5, 4)
    assert LayerShape((3, 9, 9), 8, (3, 3), dilations=(2, 2)).output == (8, 5, 5)


@pytest.mark.parametrize(
    ("channels", "block", "expected"), [(8, 4, [4, 8]), (10, 4, [4, 8, 10]), (64, 4, 5), (3, 4, [3])]
)
def test_anchors_are_few_and_whole_blocks(channels, block, expected):
    found = costs.anchors(channels, block, 4)
    assert found == expected or len(found) == expected
    assert found[0] == min(block, channels) and found[-1] == channels


def test_a_layer_of_two_units():
    op: Any = costs.layer_graph(TWO, replace(SHAPE, channels=12), 4).layers[0]
    assert op.ternary == 4 and set(np.unique(op.weight[-4:])) <= {-1, 0, 1} and np.abs(op.weight[:8]).max() > 1


def test_the_operators_of_a_layer_of_two_types():
    shape = LayerShape((12, 6, 6), 12, (3, 3), (1, 1), (1, 1))
    kinds = {n: [type(op).__name__ for op in costs.layer_graph(TINY, shape, n, TYPE).ops] for n in (0, 4, 12)}
    assert kinds == {0: ["QConv2d"], 4: ["QConv2d", "StridedSlice", "QConv2d", "Concat"], 12: ["QConv2d"]}
    first, cut, last, join = costs.layer_graph(TINY, shape, 4, TYPE).ops
    assert isinstance(first, g.QConv2d) and isinstance(last, g.QConv2d)
    assert (len(first.weight), last.groups, cut.output.shape[1], join.output.shape[1]) == (8, 4, 4, 12)


def test_tables_come_from_the_timing_model():
    pytest.importorskip("tvm")
    cost = costs.layer_cost(TWO, SHAPE)
    digital, ternary = cost.tables
    assert digital.counts == ternary.counts == cost.splits.counts == (0, 4, 8)
    assert digital.cycles[0] == 0 < digital.cycles[1] < digital.cycles[2] == cost.splits.cycles[0]
    program = costs.compiled(costs.layer_graph(TWO, SHAPE, 4), TWO)
    assert cost.splits.cycles[1] == launch_cycles(program) < digital.cycles[2] > ternary.cycles[2]


@pytest.fixture
def cycles(monkeypatch):
    """Cycles by a formula instead of programs; (inputs, channels, on the second side) of those that were asked."""
    asked = []

    def layer_cycles(cfg, shape, second, choice=UNIT):
        asked.append((shape.inputs[0], shape.channels, second))
        first = shape.channels - second
        return 10 * first + 2 * second + (50 if 0 < first < shape.channels else 60) - 100 * (shape.channels == 8)

    monkeypatch.setattr(costs, "layer_cycles", layer_cycles)
    return asked


def test_tables_are_those_of_each_side_alone_and_never_fall(cycles):
    shape = LayerShape((12, 6, 6), 12)
    cost = costs.layer_cost(TINY, shape, TYPE)
    assert [table.counts for table in (*cost.tables, cost.splits)] == [(0, 4, 8, 12)] * 3
    assert cost.tables[0].cycles == (0, 100, 100, 180) and cost.tables[1].cycles == (0, 68, 68, 84)
    assert cost.splits.cycles == (180, 138, 106, 84)
    assert (12, 8, 0) in cycles and (8, 8, 8) in cycles  # standard channels read all, depthwise ones their own
    costs.layer_cost(TWO, shape)
    assert (12, 8, 8) in cycles  # ternary ones read all, too
    assert costs.layer_cost(TWO, LayerShape((12,), 10)).splits.counts == (0, 2, 6, 10)  # whole blocks on the first side


def test_without_the_second_unit_the_table_says_never(cycles):
    cost = costs.layer_cost(TINY, LayerShape((4,), 12))
    assert cost.tables[1].cycles == (0, 360, 360, 360) and cost.splits.cycles == (180, 360, 360, 360)
    assert all(second == 0 for _, _, second in cycles)


def test_types_need_products_for_depthwise_convolutions():
    cfg = TINY.replace(extensions=TINY.extensions - {"depthwise"})
    with pytest.raises(UnsupportedError, match="configuration tiny lacks extension depthwise"):
        costs.layer_cost(cfg, SHAPE, TYPE)
    assert costs.measurable(TWO, UNIT) and costs.measurable(TINY, TYPE) and not costs.measurable(TINY, UNIT)


def test_which_channels_are_on_which_unit(residual):
    network, units = costs.placed(residual, {"first": 4, "second": 8, "last": 0}, UNIT)
    assert units["first"] == {"gemm": [0, 1, 2, 3], "ternary": [4, 5, 6, 7]}
    assert units["second"]["ternary"] == [] and units["last"]["gemm"] == []
    assert [node.name for node in network.nodes] == [node.name for node in residual.nodes]


def test_channels_on_the_second_side_have_ternary_weights_or_are_depthwise():
    node = layer("a", "input", 12, 12, (6, 6))
    assert node.weight is not None
    large = IntegerNetwork((12, 6, 6), 2.0**-6, (replace(node, weight=node.weight * 5),))
    found = costs.placed(large, {"a": 4}, UNIT)[0].nodes[0].weight
    assert found is not None
    assert np.array_equal(found[:4], node.weight[:4] * 5) and np.array_equal(found[4:], node.weight[4:])
    network, units = costs.placed(large, {"a": 4}, TYPE)
    assert units == {} and network.nodes[0].depthwise == 8


def test_a_launch_is_that_of_the_point_s_program(residual, monkeypatch):
    """Other channels than the last change no cycles; a launch is measured once."""
    pytest.importorskip("tvm")
    half = {name: np.arange(8) % 2 == 1 for name in ("first", "second")} | {"last": np.arange(6) < 2}
    program = compile_point(TWO, residual, m.channels(half), "net")
    measured = costs.Launches(TWO, residual)
    expected = launch_cycles(program)
    assert measured(m.on_gemm(half)) == expected < measured(SIZES)
    monkeypatch.delattr(costs, "compile_point")
    assert measured(m.on_gemm(half)) == expected


class Played(dict):
    """Cycles by the numbers of channels, in place of launches; which were asked."""

    def __call__(self, numbers):
        self.asked = [*getattr(self, "asked", []), tuple(numbers.values())]
        return self[tuple(numbers.values())]


def test_splits_with_the_cycles_of_the_launch():
    """What a split changes there; all channels on the first side keep the cycles of the layer alone."""
    cost = LayerCost((FIRST, SECOND), replace(SPLITS, cycles=(600.0, 400.0, 200.0)))
    launched = Played({(8, 8, 6): 1000, (4, 8, 6): 700, (0, 8, 6): 750})
    found = costs.in_launch(cost, launched, "first", SIZES)
    assert found == replace(cost, splits=UnitTable((0, 4, 8), (600.0, 300.0, 350.0)))


def test_min_cost_takes_the_fastest_split_and_of_equal_ones_that_with_more_int8():
    def of(*cycles):
        splits = UnitTable((0, 4, 8), cycles)
        return m.counts(costs.cheapest({"a": 8}, {"a": LayerCost((FIRST, SECOND), splits)}, 4))["a"]

    assert of(200.0, 80.0, 100.0) == (4, 4) and of(50.0, 50.0, 50.0) == (8, 0)


def test_the_fastest_mapping_is_found_by_launches():
    """From the tables' cheapest, all on the second side, past a pair of layers, to more int8 of equal cycles."""
    splits = {8: UnitTable((0, 4, 8), (600.0, 400.0, 200.0)), 6: UnitTable((0, 2, 6), (50.0, 40.0, 20.0))}
    tables = {name: LayerCost((FIRST, SECOND), splits[size]) for name, size in SIZES.items()}
    cycles = dict.fromkeys(itertools.product((0, 4, 8), (0, 4, 8), (0, 4, 6)), 900)
    cycles |= {(0, 0, 0): 800, (4, 4, 0): 700, (4, 4, 4): 690, (4, 4, 6): 690, (8, 4, 6): 695}
    launched = Played(cycles)
    assert costs.fastest(launched, SIZES, tables, 4) == {"first": 4, "second": 4, "last": 6}
    assert (0, 0, 0) in launched.asked


@pytest.mark.circuit
@pytest.mark.slow
def test_no_mapping_of_a_small_network_is_faster(residual):
    pytest.importorskip("tvm")
    measured, shapes = costs.Launches(TWO, residual), costs.shapes(residual)
    alone = {name: costs.layer_cost(TWO, shapes[name]) for name in SIZES}
    layers = {name: costs.in_launch(cost, measured, name, SIZES) for name, cost in alone.items()}
    found = measured(costs.fastest(measured, SIZES, layers, 4))
    options = [m.allowed(size, 4) for size in SIZES.values()]
    assert found == min(measured(dict(zip(SIZES, key))) for key in itertools.product(*options))


def test_a_point_on_the_device_has_the_reference_s_scores(residual, images):
    """Both layers of the sum are split, alike."""
    pytest.importorskip("tvm")
    half = {name: np.arange(8) % 2 == 1 for name in ("first", "second")}
    program = compile_point(TWO, residual, m.channels(half | {"last": np.arange(6) >= 4}), "net")
    expected, _ = reference.run(to_graph(residual, "net"), {"image": images})
    assert np.array_equal(device_scores(program, images), expected["scores"])


def test_two_types_beside_a_residual_sum(residual, images):
    pytest.importorskip("tvm")
    network, units = costs.placed(residual, {"second": 4}, TYPE)
    expected, _ = reference.run(to_graph(network, "net"), {"image": images})
    assert np.array_equal(device_scores(compile_point(TINY, network, units, "net"), images), expected["scores"])


@pytest.mark.parametrize("name, width", [("tiny", 8), ("pynq_z1_plus", 48)])
def test_layers_of_two_types_in_a_row_are_one_launch(name, width):
    pytest.importorskip("tvm")
    cfg = load_config(name)
    nodes = (
        layer("a", "input", 2, width, (6, 6)),
        replace(layer("b", "a", width, width, (6, 6)), depthwise=cfg.block_out),
        replace(layer("c", "b", width, width, (6, 6), stride=2), depthwise=width),
    )
    network = IntegerNetwork.from_json(IntegerNetwork((2, 6, 6), 2.0**-6, nodes).to_json())
    executable = compile_point(cfg, network, {}, "net")
    images = np.random.default_rng(0).standard_normal((3, 2, 6, 6)).astype(np.float32)
    expected, _ = reference.run(to_graph(network, "net"), {"image": images})
    assert np.array_equal(device_scores(executable, images), expected["scores"])
    assert len(executable.launches) == 1  # nothing between the layers
