"""apps/odimo/layer_types.py: layers of two types, their operators and their costs, which add up."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright.apps.odimo import costs as layer_types
from tilewright.apps.odimo.costs import SHARED, LayerShape, compile_point, device_scores
from tilewright.apps.odimo.integers import IntegerNetwork, to_graph
from tilewright.compiler import graph as g
from tilewright.compiler.graph import reference
from tilewright.hw.config import load_config
from tilewright.hw.errors import UnsupportedError

from .conftest import layer

TINY = load_config("tiny")
SHAPE = LayerShape((12, 6, 6), 12, (3, 3), (1, 1), (1, 1))


@pytest.fixture
def cycles(monkeypatch):
    """Cycles by a formula instead of programs; a program of both types saves 10."""
    asked = []

    def typed_cycles(cfg, shape, depthwise):
        asked.append((shape.inputs[0], shape.channels, depthwise))
        standard = shape.channels - depthwise
        return 10 * standard + 2 * depthwise + (50 if 0 < standard < shape.channels else 60)

    monkeypatch.setattr(layer_types, "typed_cycles", typed_cycles)
    return asked


def test_tables_are_those_of_each_type_alone(cycles):
    cost = layer_types.typed_cost(TINY, SHAPE)
    assert cost.combine == SHARED and [table.counts for table in cost.tables] == [(0, 4, 8, 12)] * 2
    assert cost.tables[0].cycles == (0, 100, 140, 180) and cost.tables[1].cycles == (0, 68, 76, 84)
    assert (12, 8, 0) in cycles and (8, 8, 8) in cycles  # standard channels read all, depthwise ones their own
    assert cost.hard(8, 4) == 8 * 10 + 4 * 2 + 50 and cost.excess.at(4) == -70  # the sum, less what one program saves
    assert cost.hard(12, 0) == 180 and cost.hard(0, 12) == 84


def test_a_configuration_without_depthwise_products():
    cfg = TINY.replace(extensions=TINY.extensions - {"depthwise"})
    with pytest.raises(UnsupportedError, match="configuration tiny lacks extension depthwise"):
        layer_types.typed_cost(cfg, SHAPE)


def test_the_operators_of_a_layer():
    kinds = {n: [type(op).__name__ for op in layer_types.typed_graph(SHAPE, n).ops] for n in (0, 4, 12)}
    assert kinds == {0: ["QConv2d"], 4: ["QConv2d", "StridedSlice", "QConv2d", "Concat"], 12: ["QConv2d"]}
    first, cut, last, join = layer_types.typed_graph(SHAPE, 4).ops
    assert isinstance(first, g.QConv2d) and isinstance(last, g.QConv2d)
    assert (len(first.weight), last.groups, cut.output.shape[1], join.output.shape[1]) == (8, 4, 4, 12)


@pytest.mark.parametrize("count", [4, 12])
def test_they_are_one_convolution_with_zeros_beside_the_diagonal(count):
    whole = layer("a", "input", 12, 12, (6, 6), stride=2)
    assert whole.weight is not None
    zeros = whole.weight.copy()
    for channel in range(12 - count, 12):
        zeros[channel] *= (np.arange(12) == channel)[:, None, None]
    graphs = [
        to_graph(IntegerNetwork((12, 6, 6), 2.0**-6, (node,)), "net")
        for node in (replace(whole, depthwise=count), replace(whole, weight=zeros))
    ]
    images = np.random.default_rng(0).standard_normal((1, 12, 6, 6)).astype(np.float32)
    typed, plain = (reference.trace(graph, {"image": images}, "double")["scores"] for graph in graphs)
    assert np.array_equal(typed, plain)


@pytest.mark.parametrize("name, width", [("tiny", 8), ("pynq_z1_plus", 48)])
def test_layers_in_a_row_are_one_launch(name, width):
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


def test_beside_a_residual_sum(residual, images):
    pytest.importorskip("tvm")
    nodes = tuple(replace(node, depthwise=4) if node.name == "second" else node for node in residual.nodes)
    network = replace(residual, nodes=nodes)
    expected, _ = reference.run(to_graph(network, "net"), {"image": images})
    assert np.array_equal(device_scores(compile_point(TINY, network, {}, "net"), images), expected["scores"])
