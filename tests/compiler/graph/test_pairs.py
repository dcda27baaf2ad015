"""Pairs of columns: the convolutions that take their place compute the same integers."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler import graph as g
from tilewright.compiler.conv_shape import output_size
from tilewright.compiler.graph import reference
from tilewright.compiler.graph.simplify import PairedConv, UnpairedConv, pair_columns
from tilewright.compiler.network import compile_graph
from tilewright.hw.config import PRESETS
from tilewright.runtime.loader import run

PYNQ = PRESETS["pynq_z1"]


def layer(name, x, o, kernel, seed, strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1), groups=1):
    rng = np.random.default_rng(seed)
    n, c, *size = x.shape
    spans = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations))
    y = g.Tensor(f"{name} out", (n, o, *output_size(tuple(size), spans, strides, pads)), scale=0.5, zero_point=3 - seed)
    weight = rng.integers(-128, 128, (o, c // groups, *kernel)).astype(np.int8)
    scale, bias = rng.uniform(0.001, 0.01, o).astype(np.float32), rng.integers(-500, 500, o).astype(np.int32)
    facts = {"strides": strides, "pads": pads, "dilations": dilations, "groups": groups, "low": -100 - seed}
    return g.QConv2d(name, (x,), y, weight, scale, bias, **facts)


def network(size=(12, 16), c=3, o=8, into=None, between=None, out_of=None):
    """A convolution into `o` channels, a depthwise one and a pointwise one."""
    x = g.Tensor("x", (1, c, *size), scale=0.02, zero_point=-7)
    first = layer("first", x, **{"o": o, "kernel": (3, 3), "seed": 1, "pads": (1, 1, 1, 1)} | (into or {}))
    middle = {"o": o, "groups": o, "kernel": (3, 3), "seed": 2, "pads": (1, 1, 1, 1)} | (between or {})
    second = layer("middle", first.output, **middle)
    third = layer("last", second.output, **{"o": 20, "kernel": (1, 1), "seed": 3} | (out_of or {}))
    return g.Graph("g", (x,), (third.output,), (first, second, third))


def values(graph, x):
    return reference.trace(graph, {"x": x})[graph.outputs[0].name]


def image(graph):
    return np.random.default_rng(4).integers(-128, 128, graph.inputs[0].shape).astype(np.int8)


def test_three_convolutions_in_pairs():
    graph = network(into={"strides": (2, 2), "pads": (0, 0, 1, 1)})
    paired = pair_columns(graph, 16)
    assert [type(op) for op in paired.ops] == [PairedConv, PairedConv, UnpairedConv]
    assert [op.output.shape for op in paired.ops] == [(1, 16, 6, 4), (1, 16, 6, 4), (1, 20, 6, 8)]
    assert [op.macs for op in paired.ops] == [op.macs for op in graph.ops]
    assert np.array_equal(values(paired, image(graph)), values(graph, image(graph)))


def test_the_accelerator_computes_in_pairs():
    graph = network()
    executable = compile_graph(graph, PYNQ)
    got = run(executable, {"x": image(graph)})[0]
    assert np.array_equal(got["last out"], values(graph, image(graph)))


def test_the_last_of_three_is_not_the_first_of_three_more():
    graph = network(out_of={"o": 8})
    fourth = layer("fourth", graph.outputs[0], 8, (3, 3), 4, pads=(1, 1, 1, 1), groups=8)
    fifth = layer("fifth", fourth.output, 16, (1, 1), 5)
    longer = g.Graph("g", graph.inputs, (fifth.output,), (*graph.ops, fourth, fifth))
    paired = pair_columns(longer, 16)
    assert [isinstance(op, (PairedConv, UnpairedConv)) for op in paired.ops] == [True] * 3 + [False] * 2
    assert np.array_equal(values(paired, image(graph)), values(longer, image(graph)))


@pytest.mark.parametrize(
    "facts",
    [
        {"o": 12},  # more than half of the lanes
        {"size": (12, 15)},  # an odd number of columns
        {"into": {"dilations": (1, 2), "pads": (1, 2, 1, 2)}},
        {"between": {"dilations": (1, 2), "pads": (1, 2, 1, 2)}},
        {"between": {"strides": (2, 2)}},
        {"between": {"pads": (1, 0, 1, 0)}},  # narrower by two columns
        {"between": {"groups": 1}},
        {"out_of": {"kernel": (3, 3)}},
        {"out_of": {"strides": (1, 2)}},
        {"out_of": {"groups": 4}},
        {"c": 16},
        {"size": (12, 19), "into": {"strides": (1, 2), "kernel": (3, 3), "pads": (0, 0, 0, 0)}},  # 9 columns
    ],
    ids=str,
)
def test_others_stay(facts):
    graph = network(**facts)
    assert pair_columns(graph, 16) is graph


def test_layers_of_two_units_stay():
    graph = network()
    first = graph.ops[0]
    assert isinstance(first, g.QConv2d)
    first = replace(first, weight=np.sign(first.weight), ternary=4)
    divided = replace(graph, ops=(first, *graph.ops[1:]))
    assert pair_columns(divided, 16) is divided


def test_tensors_that_others_read_stay():
    graph = network()
    seen = g.Graph("g", graph.inputs, (*graph.outputs, graph.ops[0].output), graph.ops)
    assert pair_columns(seen, 16) is seen
    more = g.Requantize("more", (graph.ops[1].output,), g.Tensor("z", graph.ops[1].output.shape))
    read = g.Graph("g", graph.inputs, (*graph.outputs, more.output), (*graph.ops, more))
    assert pair_columns(read, 16) is read


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_random_shapes_are_exact(data):
    kernels = st.tuples(st.integers(1, 4), st.integers(1, 5))
    kernel, own = data.draw(kernels, "kernel"), data.draw(kernels, "depthwise kernel")
    strides = (data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3)))
    pads = data.draw(st.tuples(*[st.integers(0, 2)] * 4), "pads")
    left = data.draw(st.integers(0, own[1] - 1), "left")
    size = kernel[0] + data.draw(st.integers(6, 12)), kernel[1] + data.draw(st.integers(3, 20))
    rows = {"strides": (data.draw(st.integers(1, 2)), 1), "dilations": (data.draw(st.integers(1, 2)), 1)}
    between = {"kernel": own, "pads": (own[0], left, own[0], own[1] - 1 - left), **rows}
    into = {"kernel": kernel, "strides": strides, "pads": pads}
    graph = network(size, data.draw(st.integers(1, 4)), data.draw(st.integers(2, 8)), into, between)
    paired = pair_columns(graph, 16)
    assert np.array_equal(values(paired, image(graph)), values(graph, image(graph)))
