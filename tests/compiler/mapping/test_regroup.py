"""compiler/mapping/regroup.py: regrouped networks compute what they did."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.graph import reference
from tilewright.compiler.graph.regroup import ties
from tilewright.compiler.mapping import ChannelMapping, refusal, regroup
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import InputError

TINY = PRESETS["tiny_two"]


def mapping_of(graph, rng, share=0.7):
    """A random mapping; layers that share an order have nested ternary channels."""
    found, orders, layers = ties(graph), {}, {}
    for op in graph.layers:
        if refusal(op) or rng.random() > share:
            continue
        count = len(op.weight)
        order = orders.setdefault(found.root(op.output.name), rng.permutation(count).tolist())
        first = int(rng.integers(0, count + 1))
        layers[op.name] = {"gemm": tuple(order[:first]), "ternary": tuple(order[first:])}
    return ChannelMapping(layers)


def same(graph, new, seed=0):
    """Both give the same outputs, under the same names."""
    rng = np.random.default_rng(seed)
    assert [(t.name, t.shape) for t in new.outputs] == [(t.name, t.shape) for t in graph.outputs]
    x = {t.name: rng.integers(-128, 128, t.shape).astype(np.int8) for t in graph.inputs}
    before, after = (reference.run(each, x)[0] for each in (graph, new))
    for t in graph.outputs:
        assert np.array_equal(before[t.name], after[t.name]), t.name


def ternary(op):
    return op.ternary if isinstance(op, g.Divisible) else 0


def check_blocks(new, cfg):
    for op in new.layers:
        if ternary(op):
            assert (len(op.weight) - ternary(op)) % cfg.block_out == 0, op.name


@pytest.mark.parametrize("seed", range(60))
def test_random_networks_compute_what_they_did(random_net, seed):
    graph, rng = random_net(seed), np.random.default_rng(seed)
    mapping = mapping_of(graph, rng)
    new = regroup(graph, mapping, TINY)
    same(graph, new, seed)
    check_blocks(new, TINY)
    split = {name for name, units in mapping.layers.items() if units["ternary"]}
    assert {op.name for op in new.layers if ternary(op)} == split


def test_nothing_mapped_is_the_same_graph(random_net):
    graph = random_net(1)
    assert regroup(graph, ChannelMapping({}), TINY) is graph
    whole = {op.name: {"gemm": range(len(op.weight))} for op in graph.layers}
    assert regroup(graph, ChannelMapping(whole), PRESETS["tiny"]) is graph


def test_the_order_is_folded_into_what_follows(net):
    made = net()
    x = made.conv(made.x, 6)
    made.dense(made.flat(made.add(g.MaxPool, [x], (1, 6, 4, 4), (2, 2), (2, 2), scale_of=x)), 4)
    graph = made.graph()
    new = regroup(graph, ChannelMapping({"qconv2d0": {"gemm": (1, 3, 5, 0, 2), "ternary": (4,)}}), TINY)
    assert [type(op) for op in new.ops] == [type(op) for op in graph.ops]
    first, last = new.layers
    assert first.output.shape == (1, 9, 8, 8) and ternary(first) == 1
    assert last.weight.shape == (4, 9 * 16) and new.outputs == graph.outputs
    assert not first.weight[5:8].any() and not last.weight.reshape(4, 9, 16)[:, 5:8].any()
    same(graph, new)


def test_the_last_layer_is_brought_back(net):
    made = net()
    made.dense(made.flat(made.conv(made.x, 4)), 10)
    graph = made.graph()
    new = regroup(graph, ChannelMapping({"qdense2": {"gemm": range(1, 10), "ternary": (0,)}}), TINY)
    *_, dense, take = new.ops
    assert dense.output.name == "t2.grouped" and isinstance(take, g.Take) and take.output == graph.outputs[0]
    assert take.indices == ((), (12, *range(9)))
    same(graph, new)
    new = regroup(graph, ChannelMapping({"qdense2": {"gemm": range(8), "ternary": (8, 9)}}), TINY)
    assert len(new.ops) == len(graph.ops) and ternary(new.layers[-1]) == 2  # in order as it is
    same(graph, new)


def test_inputs_of_sums_are_brought_into_their_order(net):
    made = net(shape=(1, 6, 8, 8))
    made.total(made.x, made.conv(made.x, 6))
    graph = made.graph()
    new = regroup(graph, ChannelMapping({"qconv2d0": {"gemm": (0, 1, 3), "ternary": (2, 4, 5)}}), TINY)
    assert [type(op).__name__ for op in new.ops] == ["QConv2d", "Take", "Add", "Take"]
    same(graph, new)


def test_states_keep_their_order(net):
    made = net(shape=(1, 6, 8, 8))
    state = made.tensor("s", 1, 6, 8, 8)
    y = made.conv(made.total(made.x, state), 6)
    nxt = made.add(g.Requantize, [y], y.shape, scale_of=state)
    initial = np.full(state.shape, 3, np.int8)
    graph = g.Graph("g", (made.x,), (y,), tuple(made.ops), (g.State(state, initial, nxt),))
    new = regroup(graph, ChannelMapping({"qconv2d1": {"gemm": (0, 1, 3), "ternary": (2, 4, 5)}}), TINY)
    assert new.states[0].next == nxt
    x = np.random.default_rng(0).integers(-128, 128, (4, 6, 8, 8)).astype(np.int8)
    results = [reference.run(each, {"x": x})[0][y.name] for each in (graph, new)]
    assert (results[0] == results[1]).all()


def test_names_that_are_taken(net):
    made = net()
    made.conv(made.x, 4)
    (op,) = made.graph().layers
    x, y = made.tensor("t0.grouped", 1, 3, 8, 8), op.output
    graph = g.Graph("g", (x,), (y,), (replace(op, inputs=(x,)),))
    new = regroup(graph, ChannelMapping({op.name: {"gemm": (1,), "ternary": (0, 2, 3)}}), TINY)
    assert new.ops[0].output.name == "t0.grouped'"
    same(graph, new)


@pytest.mark.parametrize("contract", ["double", "single"])
def test_weights_of_another_size_are_divided_where_results_stay(net, contract):
    made = net(7)
    made.conv(made.x, 8, magnitude=100)
    (op,) = made.graph().layers
    graph = g.Graph("g", (made.x,), (op.output,), (replace(op, bias=0 * op.bias),), contract=contract)
    split = ChannelMapping({op.name: {"gemm": range(4), "ternary": range(4, 8)}})
    if contract == "double":
        with pytest.raises(InputError, match="channel 4 cannot be ternary"):
            regroup(graph, split, TINY)
        return
    new = regroup(graph, split, TINY)
    x = np.random.default_rng(0).integers(-128, 128, (1, 3, 8, 8)).astype(np.int8)
    assert abs(op.weight[4:]).max() > 1 == abs(new.layers[0].weight[4:]).max()
    results = [reference.run(each, {"x": x})[0][op.output.name] for each in (graph, new)]
    assert (results[0] == results[1]).all()
