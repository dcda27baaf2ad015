"""apps/odimo/integers.py: networks in integers as graphs and as JSON."""

import json
from dataclasses import replace

import numpy as np
import pytest

from tilewright.apps.odimo.integers import ARRAYS, IntegerNetwork, to_graph
from tilewright.compiler import graph as g
from tilewright.compiler.graph import reference

from .conftest import layer


def test_a_network_becomes_an_operator_per_node(residual):
    graph = to_graph(residual, "net")
    kinds = [type(op) for op in graph.ops]
    pooled = [g.MaxPool, g.AveragePool, g.Reshape, g.QDense]
    assert kinds == [g.Quantize, g.QConv2d, g.QConv2d, g.Add, *pooled, g.Dequantize]
    assert [op.name for op in graph.ops[1:-1]] == [node.name for node in residual.nodes]
    assert graph.outputs[0].shape == (1, 6) and graph.inputs[0].dtype == "float32"


def test_json_keeps_every_value(residual):
    found = IntegerNetwork.from_json(json.loads(json.dumps(residual.to_json())))
    assert (found.input_shape, found.input_scale) == (residual.input_shape, residual.input_scale)
    for one, other in zip(found.nodes, residual.nodes):
        for key, value in vars(other).items():
            same = np.array_equal if key in ARRAYS else lambda a, b: a == b
            assert same(getattr(one, key), value) and type(getattr(one, key)) is type(value)


@pytest.mark.parametrize("count", [4, 12])
def test_channels_of_two_types_are_one_convolution_with_zeros_beside_the_diagonal(count):
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
