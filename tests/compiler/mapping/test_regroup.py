"""compiler/graph/regroup.py: regrouped networks compute what they did, and what their orders of channels follow."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.graph import reference
from tilewright.compiler.graph.regroup import Kind, Orders, capable, derived, factors, relabelled, ties
from tilewright.compiler.mapping import ChannelMapping, regroup
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import InputError
from tilewright.hw.rounding import CONTRACTS, requantise


def last(net):
    return ties(net.graph()).of[net.ops[-1].name]


def constant(*shape):
    return g.Tensor("c", shape, data=np.zeros(shape, np.int8))


@pytest.mark.parametrize(
    ("make", "kind", "axis"),
    [
        (lambda m, x: m.add(g.Mean, [x], (1, 4), (2, 3)), Kind.SAME, 1),
        (lambda m, x: m.add(g.Mean, [x], (1, 4, 1, 8), (2,)), Kind.SAME, 1),
        (lambda m, x: m.add(g.Mean, [x], (1, 8, 8), (1,)), Kind.FIXED, -1),
        (lambda m, x: m.add(g.Mul, [constant(4, 1, 1), x], x.shape), Kind.SAME, 1),
        (lambda m, x: m.add(g.Mul, [constant(1, 4, 1, 1), x], x.shape), Kind.SAME, 1),
        (lambda m, x: m.add(g.Mul, [constant(8), x], x.shape), Kind.SAME, 1),
        (lambda m, x: m.add(g.ReduceMax, [x], (1, 1, 8, 8), (1,), scale_of=x), Kind.FIXED, None),
        (lambda m, x: m.add(g.StridedSlice, [x], (1, 2, 8, 8), (0, 1, 0, 0), (1,) * 4, scale_of=x), Kind.FIXED, None),
        (lambda m, x: m.add(g.StridedSlice, [x], (1, 4, 7, 8), (0, 0, 1, 0), (1,) * 4, scale_of=x), Kind.SAME, 1),
        (lambda m, x: m.add(g.Take, [x], x.shape, ((), (1, 0, 3, 2), (), ()), scale_of=x), Kind.FIXED, None),
        (lambda m, x: m.add(g.Reshape, [x], (1, 2, 2, 8, 8), scale_of=x), Kind.FIXED, None),
        (lambda m, x: m.add(g.Reshape, [x], (1, 4, 8, 1, 8), scale_of=x), Kind.SAME, 1),
        (lambda m, x: m.add(g.QConv2d, [x], x.shape, *m.parameters(4, (2, 1, 1)), groups=2), Kind.FIXED, None),
        (lambda m, x: m.add(g.Add, [m.flat(x), m.flat(x, True)], (1, 256)), Kind.SAME, 1),
        (lambda m, x: m.add(g.Transpose, [x], (1, 8, 8, 4), (0, 2, 3, 1), scale_of=x), Kind.SAME, 3),
        (lambda m, x: m.add(g.Concat, [x, x], (1, 4, 16, 8), 2, scale_of=x), Kind.SAME, 1),
        (lambda m, x: m.add(g.Concat, [x, x], (1, 8, 8, 8), 1, scale_of=x), Kind.DERIVED, 1),
    ],
)
def test_orders_that_operators_keep_or_need(net, make, kind, axis):
    made = net()
    make(made, made.conv(made.x, 4))
    tie = last(made)
    assert tie.kind is kind and axis in (None, tie.axis)


@pytest.mark.parametrize(("nhwc", "order"), [(False, [2, 3, -1, -1, 0, 1]), (True, [1, -1, 0, 3, -1, 2])])
def test_images_turned_to_rows(net, nhwc, order):
    made = net(shape=(1, 3, 1, 2))
    made.flat(made.conv(made.x, 2, 1), nhwc)
    tie = last(made)
    assert (tie.kind, tie.axis, tie.operands) == (Kind.DERIVED, 1, (3 if nhwc else 1,))
    assert derived(made.ops[-1], tie, [np.array([1, -1, 0])]).tolist() == order


def test_concatenations_follow_their_operands(net):
    made = net()
    x = made.conv(made.x, 4)
    made.add(g.Concat, [x, x], (1, 8, 8, 8), 1, scale_of=x)
    order = np.array([3, -1, 1, 0, 2])
    assert derived(made.ops[-1], last(made), [order, order]).tolist() == [3, -1, 1, 0, 2, 7, -1, 5, 4, 6]


def orders(net, block=4, **ternary):
    graph = net.graph()
    return Orders(graph, ties(graph), {name: frozenset(found) for name, found in ternary.items()}, block)


def test_channels_that_are_not_nested_are_refused(net):
    made = net()
    made.total(made.conv(made.x, 9), made.conv(made.x, 9))
    with pytest.raises(InputError) as caught:
        orders(made, qconv2d0={0, 1, 2, 3, 4, 5}, qconv2d1={7, 0})
    assert str(caught.value) == (
        "layers 'qconv2d0' and 'qconv2d1' share one order of channels, as a sum of them needs: the ternary channels of "
        "one must be among the other's; 1, 2, 3, 4, ... are in the first alone, 7 in the second; map them alike"
    )


def dense(weight, scale, bias, zero_point=0, **facts):
    weight = np.array(weight, np.int8)
    x = g.Tensor("x", (1, weight.shape[1]), scale=0.05, zero_point=zero_point)
    y = g.Tensor("y", (1, len(weight)), scale=0.1, zero_point=3)
    scale = np.full(len(weight), scale, np.float32)
    return g.QDense("fc", (x,), y, weight, scale, np.full(len(weight), bias, np.int32), **facts)


def results(op, sums, factor, contract):
    """What `op` gives for every sum of products of weights of size 1."""
    multiplier, exponent = op.multipliers
    acc = op.bias[0] + factor * sums
    return requantise(acc, multiplier[0], exponent[0], op.output.zero_point, op.low, op.high, contract)


def test_factors():
    op = dense([[0, 3, -3], [0, 0, 0], [1, -1, 1], [2, 1, 0], [-128, 0, -128]], 0.1, 0)
    assert factors(op).tolist() == [3, 1, 1, 0, 128]


@pytest.mark.parametrize("contract", CONTRACTS)
@pytest.mark.parametrize("seed", range(40))
def test_relabelled_layers_give_every_result_they_gave(seed, contract):
    rng = np.random.default_rng(seed)
    k, inputs = int(rng.integers(2, 128)), int(rng.integers(1, 40))
    bias = int(rng.integers(-999, 999)) * (1 if seed % 2 else k)
    low, high = sorted(int(v) for v in rng.integers(-128, 128, 2))
    op = dense(k * rng.integers(-1, 2, (1, inputs)), rng.uniform(0.5, 4) / k / inputs, bias, low=low, high=high)
    weight = op.weight // max(1, int(factors(op)[0]))
    most = int(np.abs(weight).sum()) * 128
    sums = np.arange(-most, most + 1)
    used = results(op, sums, int(factors(op)[0]), contract)
    if capable(op, contract)[0]:
        new = relabelled(op, [0], contract)
        assert np.abs(new.weight).max() <= 1
        assert np.array_equal(results(new, sums, 1, contract), used)
    else:  # neither of the nearest biases gives all results
        scale = (op.weight_scale * factors(op)).astype(np.float32)
        for bias in {int(op.bias[0]) // k, -(-int(op.bias[0]) // k)}:
            new = replace(op, weight=weight, weight_scale=scale, bias=np.array([bias], np.int32))
            assert not np.array_equal(results(new, sums, 1, contract), used)
        with pytest.raises(InputError, match="results would round otherwise"):
            relabelled(op, [0], contract)


def test_where_results_round_once_and_biases_are_multiples_layers_can_be_divided():
    rng, found = np.random.default_rng(0), {contract: [] for contract in CONTRACTS}
    for k in (2, 4, 5, 64, 127):
        for _ in range(20):
            op = dense(k * rng.integers(-1, 2, (1, 9)), rng.uniform(0.5, 4) / k / 9, k * int(rng.integers(-99, 99)))
            for contract in CONTRACTS:
                found[contract].append(bool(capable(op, contract)[0]))
    assert np.mean(found["single"]) == 1 and np.mean(found["double"]) < 0.1


def test_other_channels_stay():
    op = dense([[1, -1], [64, -64], [5, 3], [32, 0]], 0.0625, 0)
    assert relabelled(op, [], "double") is op and relabelled(op, [0], "double") is op
    new = relabelled(op, [1], "double")
    assert new.weight.tolist() == [[1, -1], [1, -1], [5, 3], [32, 0]]
    assert new.weight_scale.tolist() == [0.0625, 4.0, 0.0625, 0.0625]
    assert capable(op, "double").tolist() == [True, True, False, True]


def test_weights_of_several_sizes_are_refused():
    with pytest.raises(InputError) as caught:
        relabelled(dense([[1, -1, 0], [5, 3, 1]], 0.1, 0), [0, 1], "double")
    assert str(caught.value) == (
        "layer 'fc': channel 1 cannot be ternary: it has weights of size 3 and 5; all must be -k, 0 or k for one k; "
        "map it to gemm"
    )


def test_sums_beyond_int32_are_refused():
    op = dense([[2, -2]], 0.1, 2**31 - 1)
    assert not capable(op, "double")[0]
    with pytest.raises(InputError, match="round otherwise"):
        relabelled(op, [0], "double")


TINY = PRESETS["tiny_two"]


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


def test_nothing_mapped_is_the_same_graph(net):
    made = net()
    made.dense(made.flat(made.depthwise(made.conv(made.x, 6))), 4)
    graph = made.graph()
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
