"""Transformations of the graph keep every value and every output; pairs of columns; rules."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler import graph as g
from tilewright.compiler.conv_shape import output_size
from tilewright.compiler.graph import reference
from tilewright.compiler.graph.simplify import PairedConv, UnpairedConv, moved_states, pair_columns, simplify
from tilewright.compiler.network import compile_for, compile_graph
from tilewright.hw.config import PRESETS
from tilewright.runtime.device import open_device
from tilewright.runtime.executable import HostStep
from tilewright.runtime.loader import Loaded, run


def tensor(name, *shape):
    return g.Tensor(name, shape, scale=0.1, zero_point=-9)


def weights(*shape, seed=0):
    rng = np.random.default_rng(seed)
    scale = rng.uniform(0.001, 0.01, shape[0]).astype(np.float32)
    return rng.integers(-128, 128, shape).astype(np.int8), scale, rng.integers(-99, 99, shape[0]).astype(np.int32)


def chained(shape, *steps):
    """x of `shape` and operators, each on the output of the one before it: (class, output's shape, parameters)."""
    t, ops = tensor("x", *shape), []
    for k, (kind, after, *parameters) in enumerate(steps):
        ops.append(kind(f"op{k}", (t,), tensor(f"t{k}", *after), *parameters))
        t = ops[-1].output
    return ops


NCHW, NHWC = (2, 3, 4, 5), (2, 4, 5, 3)
TO_NHWC, TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)
RESHAPES = ((1, 6, 1, 1), (g.Transpose, (1, 1, 1, 6), TO_NHWC), (g.Reshape, (1, 6)), (g.Reshape, (1, 2, 3)))
BACK = (1, 6, 2, 3), (g.Transpose, (1, 3, 6, 2), TO_NCHW), (g.Transpose, (1, 6, 2, 3), TO_NHWC)
BACK += ((g.Requantize, (1, 6, 2, 3)),)
CONV = (g.QConv2d, (1, 4, 8, 7), *weights(4, 3, 3, 3), -128, 127, (1, 1), (1, 0, 1, 0))
PADS = ((0, 0), (0, 0), (1, 2), (3, 1))
DENSE, IMAGE = (g.QDense, (2, 7), *weights(7, 60)), (g.Requantize, NCHW)
INPUT = (g.Transpose, NCHW, TO_NCHW), (g.Transpose, NHWC, TO_NHWC)


def shuffle(axes):
    """As files shuffle channels: NHWC, two groups, exchanged by `axes`, one after the other, NCHW."""
    apart = (1, 4, 5, 2, 3)
    turned = tuple(apart[k] for k in axes)
    moves = (g.Transpose, (1, 4, 5, 6), TO_NHWC), (g.Reshape, apart), (g.Transpose, turned, axes)
    return (1, 6, 4, 5), *moves, (g.Reshape, (1, 4, 5, 6)), (g.Transpose, (1, 6, 4, 5), TO_NCHW)


GROUPS = (2, 6, 3, 5), (g.Reshape, (2, 2, 3, 3, 5)), (g.Transpose, (2, 3, 2, 3, 5), (0, 2, 1, 3, 4))
# (shape of x and operators, numbers of those whose results are outputs besides the last, classes that are left)
LEFT = {
    "reshapes of reshapes become one": (RESHAPES, (), "Reshape"),
    "an output of reshapes stays": (RESHAPES, (0,), "Reshape Reshape"),
    "a slice of everything moves nothing": (
        ((1, 1, 6), (g.StridedSlice, (1, 1, 6), (0, 0, 0), (1, 1, 1)), (g.Reshape, (1, 6))),
        (),
        "Reshape",
    ),
    "a slice backwards stays": (
        ((1, 1, 6), (g.StridedSlice, (1, 1, 6), (0, 0, 5), (1, 1, -1)), (g.Reshape, (1, 6))),
        (),
        "StridedSlice Reshape",
    ),
    "transpositions that move elements stay": (
        ((1, 6, 2, 1), (g.Transpose, (1, 2, 6, 1), (0, 2, 1, 3)), (g.Reshape, (1, 12))),
        (),
        "Transpose Reshape",
    ),
    "transpositions there and back are none": (BACK, (), "Requantize"),
    "an output of transpositions stays": (BACK, (1,), "Transpose Transpose Requantize"),
    "shuffled channels are taken": (shuffle((0, 1, 2, 4, 3)), (), "Take"),
    "shuffled groups are taken": ((*GROUPS, (g.Reshape, (2, 6, 3, 5))), (), "Take"),
    "shuffled pixels stay": (shuffle((0, 2, 1, 4, 3)), (), "Transpose Reshape Transpose Reshape Transpose"),
    "an output within a shuffle stays": (shuffle((0, 1, 2, 4, 3)), (2,), "Transpose Reshape Transpose Take"),
    "dense layers on vectors stay": (
        ((2, 6, 1, 1), (g.Reshape, (2, 6)), (g.QDense, (2, 7), *weights(7, 6))),
        (),
        "Reshape QDense",
    ),
    "dense layers on images become convolutions": (
        (NCHW, IMAGE, (g.Reshape, (2, 60)), DENSE),
        (),
        "Requantize WholeImage Reshape",
    ),
    "dense layers on turned images become convolutions": (
        (NCHW, IMAGE, (g.Transpose, NHWC, TO_NHWC), (g.Reshape, (2, 60)), DENSE),
        (),
        "Requantize WholeImage Reshape",
    ),
    "dense layers read inputs as they lie": ((NHWC, (g.Reshape, (2, 60)), DENSE), (), "Reshape QDense"),
    "dense layers read turned inputs as they lie": ((NHWC, *INPUT, (g.Reshape, (2, 60)), DENSE), (), "Reshape QDense"),
    "padding goes into its convolution": (((1, 3, 5, 5), (g.Pad, (1, 3, 8, 9), PADS, -9), CONV), (), "QConv2d"),
    "padding of another value stays": (((1, 3, 5, 5), (g.Pad, (1, 3, 8, 9), PADS, 0), CONV), (), "Pad QConv2d"),
    "an output of padding stays": (((1, 3, 5, 5), (g.Pad, (1, 3, 8, 9), PADS, -9), CONV), (0,), "Pad QConv2d"),
}


def simplified(ops, outputs=()):
    """The operators that are left, which give all outputs as before."""
    wanted = tuple(ops[k].output for k in (*outputs, -1))
    graph = g.Graph("g", (ops[0].x,), wanted, tuple(ops))
    found = simplify(graph)
    x = np.random.default_rng(1).integers(-128, 128, ops[0].x.shape).astype(np.int8)
    before, after = (reference.trace(each, {"x": x}) for each in (graph, found))
    for t in wanted:
        assert np.array_equal(before[t.name], after[t.name])
    return found.ops


@pytest.mark.parametrize("name", LEFT)
def test_simplified(name):
    steps, outputs, left = LEFT[name]
    assert [type(op).__name__ for op in simplified(chained(*steps), outputs)] == left.split()


def test_parameters_of_simplified_operators():
    for name in ("shuffled channels are taken", "shuffled groups are taken"):
        (take,) = simplified(chained(*LEFT[name][0]))
        assert isinstance(take, g.Take) and take.indices == ((), (0, 3, 1, 4, 2, 5), (), ())
    (conv,) = simplified(chained(*LEFT["padding goes into its convolution"][0]))
    assert isinstance(conv, g.QConv2d) and conv.pads == (2, 3, 3, 1)
    *image, dense = chained(*LEFT["dense layers on images become convolutions"][0])
    dense = replace(dense, weight=np.sign(dense.weight), ternary=3, float32_scale=True)
    _, conv, _ = simplified([*image, dense])
    assert isinstance(conv, g.QConv2d) and conv.ternary == 3 and conv.float32_scale


def windowed(axes=(0, 2, 3, 1), extra=()):
    """A window (1, 3, 1, 2), NHWC, that takes a new row per inference: the state moves to NCHW, and back by `axes`."""
    t = {name: g.Tensor(name, shape) for name, shape in (("s", (1, 3, 1, 2)), ("c", (1, 2, 3, 1)), ("x", (1, 2, 1, 1)))}
    k, w, n = g.Tensor("k", (1, 2, 2, 1)), g.Tensor("w", (1, 2, 3, 1)), g.Tensor("n", (1, 3, 1, 2))
    ops = (
        g.Transpose("in", (t["s"],), t["c"], (0, 3, 1, 2), True),
        g.StridedSlice("kept", (t["c"],), k, (0, 0, 1, 0), (1, 1, 1, 1)),
        g.Concat("window", (k, t["x"]), w, 2),
        g.Transpose("out", (w,), n, axes, True),
    )
    first = np.arange(6, dtype=np.int8).reshape(1, 3, 1, 2)
    return g.Graph("g", (t["x"],), (w, *extra), ops, (g.State(t["s"], first, n),))


def test_states_are_kept_as_they_are_computed():
    before = windowed()
    after = moved_states(before)
    assert [op.name for op in after.ops] == ["kept", "window"]
    (state,) = after.states
    assert (state.tensor.name, state.tensor.shape, state.next.name) == ("s", (1, 2, 3, 1), "w")
    x = {"x": np.random.default_rng(0).integers(-9, 9, (5, 2, 1, 1)).astype(np.int8)}
    np.testing.assert_array_equal(reference.run(after, x)[0]["w"], reference.run(before, x)[0]["w"])


def test_states_that_others_see_as_they_are_stay():
    graph = windowed(extra=(g.Tensor("c", (1, 2, 3, 1)),))  # what the movement gives is an output
    assert moved_states(graph).ops == graph.ops
    s, y, z = g.Tensor("s", (1, 4)), g.Tensor("y", (2, 2)), g.Tensor("z", (4, 1))
    ops = (g.Reshape("one", (s,), y), g.Reshape("other", (s,), z), g.Reshape("back", (y,), g.Tensor("n", (1, 4))))
    state = g.State(s, np.zeros((1, 4), np.int8), ops[2].output)
    assert moved_states(g.Graph("g", (), (ops[2].output,), ops, (state,))).states == (state,)  # they move it unalike


def test_the_device_keeps_what_it_alone_reads():
    """The window is in blocks of channels from run to run: the host packs the new row, and nothing else."""
    graph = windowed()
    host = {"host": {op.name: "the test wants the accelerator" for op in graph.ops[1:3]}}
    executable = compile_for(graph, PRESETS["pynq_z1"], refused=host).executable
    assert [s.op for s in executable.steps if isinstance(s, HostStep)] == ["pack", "unpack"]
    (state,) = executable.states
    assert state.shape == (1, 1, 3, 1, 1, 16) and state.next == "w.packed"
    rows = np.random.default_rng(0).integers(-128, 128, (5, 1, 2, 1, 1)).astype(np.int8)
    expected, _ = reference.run(graph, {"x": rows[:, 0]})
    with Loaded(executable, open_device("model", executable.cfg)) as loaded:
        for _ in range(2):
            found = [loaded.run({"x": x})["w"] for x in rows]
            np.testing.assert_array_equal(np.concatenate(found), expected["w"])
            loaded.reset()


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
