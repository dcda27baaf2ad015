"""compiler/mapping/cost.py: what a split costs, against the timing model."""

import pytest

from tilewright.cli.bench.two_units import WORKLOADS, network
from tilewright.compiler import graph as g
from tilewright.compiler.mapping import ChannelMapping, Costs
from tilewright.compiler.mapping.choice import candidates, split
from tilewright.compiler.network import compile_graph
from tilewright.hw.config import PRESETS
from tilewright.sim.timing import predict


@pytest.fixture(scope="module")
def graph():
    widths = WORKLOADS["resnet8-units"]
    layers = network(widths, {}).layers
    return network(widths, {op.name: len(op.weight) for op in layers})


@pytest.mark.parametrize("name", ["first", "block1.a", "block2.a", "block3.b"])
def test_against_the_timing_model(graph, name):
    cfg = PRESETS["pynq_z1_two"]
    (op,) = (op for op in graph.layers if op.name == name and isinstance(op, g.Divisible))
    costs, count = Costs(graph, cfg), len(op.weight)
    one = g.Graph(name, (op.x,), (op.output,), (op,))
    for ternary in candidates(count, count, cfg.block_out):
        mapping = ChannelMapping({name: split(count, range(count - ternary, count))})
        executable = compile_graph(one, cfg, mapping=mapping)
        real = sum(predict(step.launch).cycles for step in executable.launches)
        assert abs(costs(op, ternary) / real - 1) < 0.25, ternary
        found = costs.split(op, ternary)
        assert found.cycles == costs(op, ternary) and found.ternary == ternary
        assert (found.units["gemm"] > 0) == (ternary < count) and (found.units["ternary"] > 0) == (ternary > 0)


def test_what_bounds_a_layer(graph):
    cfg = PRESETS["pynq_z1_two"]
    ops = {op.name: op for op in graph.layers if isinstance(op, g.Divisible)}
    costs = Costs(graph, cfg)
    assert costs.split(ops["block3.b"], 16).bound == "gemm" and costs.split(ops["block3.b"], 48).bound == "ternary"
    assert costs.split(ops["block3.skip"], 64).bound == "transfers"
    assert costs(ops["block1.a"], 1) == costs(ops["block1.a"], 16) or costs.split(ops["block1.a"], 1).units["gemm"] > 0


def test_layers_that_fit_nowhere(graph):
    cfg = PRESETS["tiny_two"].replace(name="small", twgt_bytes=64)
    op = graph.layers[1]
    assert isinstance(op, g.Divisible)
    assert Costs(graph, cfg)(op, 16) == float("inf") > Costs(graph, cfg)(op, 0)
