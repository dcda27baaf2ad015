"""LSTMs of one step: their products on the accelerator, and the same results."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright.compiler.accelerator.rewrites import split_steps
from tilewright.compiler.graph import Dense16, Graph, Lstm, LstmStep, State, Tensor
from tilewright.compiler.network import compile_for
from tilewright.hw.config import PRESETS

CFG = PRESETS["pynq_z1"]


def network(steps=1, size=64, scale=0.1, zero_point=-3):
    """An LSTM whose hidden values stay from run to run, of gates that are given."""
    rng = np.random.default_rng(4)
    gates = Tensor("gates", (1, steps, 4 * size), "int16", 2.0**-12)
    hidden, cells = Tensor("hidden", (1, size), zero_point=zero_point), Tensor("cells", (1, size), "int16", 2.0**-11)
    wide = Tensor("wide", (1, steps + 1, size), "int16", hidden.scale, zero_point)
    weight = rng.integers(-128, 128, (4 * size, size)).astype(np.int8)
    bias = (-zero_point * weight.sum(1, dtype=np.int64)).astype(np.int32)
    op = Lstm("lstm", (gates, hidden, cells), wide, weight, bias, np.full(4 * size, scale), 2.0**-22)
    start = rng.integers(-128, 128, hidden.shape).astype(np.int8)
    return Graph("g", (gates, cells), (wide,), (op,), (State(hidden, start, hidden),))


@pytest.mark.parametrize("scale, dtype", [(0.01, "int16"), (0.3, "int32")])
def test_a_step_is_exact_with_its_products_on_the_device(exact_graph, scale, dtype):
    graph = network(scale=scale)
    own, step = split_steps(graph, lambda own: True).ops
    assert isinstance(own, Dense16) and isinstance(step, LstmStep) and own.output.dtype == dtype
    assert not own.bias.any() and own.macs + step.macs == graph.macs
    rng = np.random.default_rng(8)
    values = {t.name: rng.integers(-9000, 9000, t.shape).astype(np.int16) for t in graph.inputs}
    executable = exact_graph(graph, CFG, data=values, refused={}).executable
    assert [s.macs for s in executable.launches] == [graph.macs]


def test_it_stays_whole_where_that_is_faster():
    small, long = network(size=8), network(steps=3)
    assert [type(op) for op in split_steps(long, lambda own: True).ops] == [Lstm]
    for graph in (small, long):
        (choice,) = compile_for(graph, CFG).assignment.choices
        assert isinstance(choice.ops[0], Lstm)
    without = replace(CFG, extensions=CFG.extensions - {"rescale"})
    assert isinstance(compile_for(network(), without).assignment.choices[0].ops[0], Lstm)
