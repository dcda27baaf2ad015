"""apps/odimo/integers.py: networks in integers as graphs and as JSON."""

import json

import numpy as np

from tilewright.apps.odimo.integers import ARRAYS, IntegerNetwork, to_graph
from tilewright.compiler import graph as g


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
