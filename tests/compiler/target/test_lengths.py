"""compiler/target/lengths.py: which lengths, and that results are those of the whole context."""

import numpy as np

from tests.compiler.graph.attention.test_layers import attention
from tilewright.compiler import graph as g
from tilewright.compiler.graph import reference
from tilewright.compiler.target.variants import in_contexts


def network(context, inputs=4):
    op = attention(((1, 8), (1, 4, context, 1), (1, context, 2, 1)), seen=context)
    return g.Graph("net", op.inputs[:inputs], (op.output,), (op,))


def test_lengths_double_up_to_the_whole_context():
    for context, ends in ((48, (48,)), (64, (64,)), (80, (64, 80)), (300, (64, 128, 256, 300))):
        graph = network(context)
        found = in_contexts(graph)
        assert found is not None and found.ends == ends and found.position == "p" and found.graphs[-1] is graph
        assert tuple(vars(part.ops[0])["seen"] for part in found.graphs) == ends


def test_results_are_those_of_the_whole():
    found = in_contexts(network(80))
    assert found is not None
    rng = np.random.default_rng(3)
    arrays = {t.name: rng.integers(-50, 50, t.shape, np.int8) for t in found.graphs[0].inputs[:3]}
    for position in (0, 63):
        inputs = arrays | {"p": np.array([position], np.int32)}
        short, whole = (reference.run(graph, inputs)[0]["y"] for graph in found.graphs)
        assert np.array_equal(short, whole)


def test_networks_without_a_position_have_one_graph():
    x, y = g.Tensor("x", (1, 4)), g.Tensor("y", (4, 1))
    assert in_contexts(g.Graph("net", (x,), (y,), (g.Reshape("r", (x,), y),))) is None
