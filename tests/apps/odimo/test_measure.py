"""apps/odimo/measure.py: cycles of layers, programs of points."""

import json
from typing import Any

import numpy as np
import pytest

from tilewright.apps.odimo import costs as measure
from tilewright.apps.odimo import mapping as m
from tilewright.apps.odimo.costs import LayerShape
from tilewright.apps.odimo.integers import to_graph
from tilewright.compiler.graph import reference
from tilewright.hw.config import load_config

pytest.importorskip("tvm")
TWO = load_config("tiny_two")


def test_shapes_of_a_network(residual):
    found = measure.shapes(residual)
    assert found["second"] == LayerShape((8, 6, 6), 8, (3, 3), (1, 1), (1, 1))
    assert found["last"] == LayerShape((8,), 6)
    assert LayerShape.from_json(json.loads(json.dumps(found["second"].to_json()))) == found["second"]
    assert LayerShape((3, 9, 7), 8, (3, 3), (2, 2), (1, 1)).output == (8, 5, 4)


def test_a_layer_of_two_units():
    graph = measure.layer_graph(LayerShape((8, 6, 6), 12, (3, 3), (1, 1), (1, 1)), 4)
    op: Any = graph.layers[0]
    assert op.ternary == 4 and set(np.unique(op.weight[-4:])) <= {-1, 0, 1} and np.abs(op.weight[:8]).max() > 1


@pytest.mark.parametrize(
    ("channels", "block", "expected"), [(8, 4, [4, 8]), (10, 4, [4, 8, 10]), (64, 4, 5), (3, 4, [3])]
)
def test_anchors_are_few_and_whole_blocks(channels, block, expected):
    found = measure.anchors(channels, block, 4)
    assert found == expected or len(found) == expected
    assert found[0] == min(block, channels) and found[-1] == channels


def test_tables_come_from_the_timing_model():
    shape = LayerShape((8, 6, 6), 8, (3, 3), (1, 1), (1, 1))
    cost = measure.layer_cost(TWO, shape)
    digital, ternary = cost.tables
    assert digital.counts == ternary.counts == (0, 4, 8)
    assert digital.cycles[2] == measure.layer_cycles(TWO, shape, 8, 0) > digital.cycles[1] > 0
    assert ternary.cycles[2] == measure.layer_cycles(TWO, shape, 0, 8) < digital.cycles[2]


def test_a_cost_at_an_entry_is_what_the_timing_model_has():
    shape = LayerShape((4, 8, 8), 16, (3, 3), (1, 1), (1, 1))
    cost = measure.layer_cost(TWO, shape)
    for digital in (0, 4, 8, 12, 16):
        assert cost.hard(digital, 16 - digital) == pytest.approx(
            measure.layer_cycles(TWO, shape, digital, 16 - digital)
        )


def test_without_the_unit_the_table_says_never():
    shape = LayerShape((4, 4, 4), 8)
    cost = measure.layer_cost(load_config("tiny"), shape)
    assert cost.tables[1].cycles[1] > cost.tables[0].cycles[-1]


def test_a_point_on_the_device_has_the_reference_s_scores(residual, images):
    """Both layers of the sum are split, alike."""
    half = {name: np.arange(8) % 2 == 1 for name in ("first", "second")}
    program = measure.compile_point(TWO, residual, m.channels(half | {"last": np.arange(6) >= 4}), "net")
    expected, _ = reference.run(to_graph(residual, "net"), {"image": images})
    assert np.array_equal(measure.device_scores(program, images), expected["scores"])
