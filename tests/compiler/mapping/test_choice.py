"""compiler/mapping/choice.py: the mapping of the least cost."""

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler import network
from tilewright.compiler.mapping import by_layer, candidates, regroup, ternary_channels_of
from tilewright.compiler.network import min_cost
from tilewright.hw.config import PRESETS

TINY = PRESETS["tiny_two"]


def test_candidates_leave_whole_blocks():
    assert candidates(16, 16, 4) == [0, 4, 8, 12, 16]
    assert candidates(10, 10, 4) == [0, 2, 6, 10]
    assert candidates(10, 7, 4) == [0, 2, 6, 7]
    assert candidates(3, 3, 16) == [0, 3]


def never(op, ternary):
    """What every cost is at least."""
    return float("-inf")


def test_a_bound_spares_costs(net):
    made = net()
    made.conv(made.x, 12)
    looked = []

    def cost(op, ternary):
        looked.append(ternary)
        return {0: 9, 4: 5, 8: 5, 12: 8}[ternary]

    mapping = by_layer(made.graph(), TINY, cost, lambda op, ternary: {0: 6, 4: 5, 8: 3, 12: 7}[ternary])
    assert numbers(mapping) == {"qconv2d0": 4} and looked == [8, 4]


def numbers(mapping):
    return {name: len(units["ternary"]) for name, units in mapping.layers.items()}


def test_the_cheapest_of_all_splits_and_of_equal_ones_the_one_with_more_on_gemm(net):
    made = net()
    made.dense(made.flat(made.total(made.conv(made.x, 12), made.conv(made.x, 12))), 10)
    graph = made.graph()
    rng = np.random.default_rng(0)
    for _ in range(20):
        table = {(op.name, k): int(rng.integers(0, 5)) for op in graph.layers for k in range(13)}
        mapping = by_layer(graph, TINY, lambda op, ternary, table=table: table[op.name, ternary], never)
        for op in graph.layers:
            every = [(table[op.name, k], k) for k in candidates(len(op.weight), len(op.weight), 4)]
            assert numbers(mapping)[op.name] == min(every)[1]
        regroup(graph, mapping, TINY)  # no two layers disagree


def test_layers_with_other_weights(net):
    made = net()
    x = made.conv(made.x, 8)
    y = made.conv(made.x, 8, ternary=False)
    made.total(x, y)
    z = made.conv(made.x, 8)
    z = made.total(z, made.conv(made.x, 8))
    first, second = (op for op in made.graph().layers if op.output.name in (z.name, "t3", "t4"))
    first.weight[:3] = 5 * np.arange(first.weight[:3].size).reshape(first.weight[:3].shape) % 7
    second.weight[4] = np.arange(27).reshape(3, 3, 3)
    graph = made.graph()
    found = {op.name: channels for op, channels in ternary_channels_of(graph)}
    assert found == {"qconv2d0": list(range(8)), "qconv2d3": [3, 5, 6, 7], "qconv2d4": [3, 5, 6, 7]}
    mapping = by_layer(graph, TINY, lambda op, ternary: -ternary, never)
    assert mapping.layers["qconv2d3"] == {"gemm": (0, 1, 2, 4), "ternary": (3, 5, 6, 7)}
    assert {op.ternary for op in regroup(graph, mapping, TINY).layers if isinstance(op, g.Divisible)} == {0, 4, 8}


@pytest.mark.parametrize("name", ["tiny", "pynq_z1"])
def test_without_the_unit_nothing_is_split(net, name):
    made = net()
    made.conv(made.x, 8)
    assert min_cost(made.graph(), PRESETS[name]).layers == {}


def test_a_wrong_estimate_is_no_slower_than_one_unit_alone(net, monkeypatch):
    class Wrong:
        def __init__(self, graph, cfg):
            pass

        def __call__(self, op, ternary):
            return abs(ternary - 4)

        least = __call__

    monkeypatch.setattr(network, "Costs", Wrong)
    made = net()
    made.conv(made.conv(made.x, 16), 16)
    assert numbers(min_cost(made.graph(), TINY)) == {"qconv2d0": 16, "qconv2d1": 16}
