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


def simplified(outputs, *ops):
    """The operators left, of which the first reads x; outputs are those of the graph as it was."""
    graph = g.Graph("g", (ops[0].x,), outputs, ops)
    found = simplify(graph)
    x = np.random.default_rng(1).integers(-128, 128, ops[0].x.shape).astype(np.int8)
    before, after = (reference.trace(each, {"x": x}) for each in (graph, found))
    for t in outputs:
        assert np.array_equal(before[t.name], after[t.name])
    return [type(op).__name__ for op in found.ops], found.ops


def test_reshapes_of_reshapes_become_one():
    x, a, b, c = tensor("x", 1, 6, 1, 1), tensor("a", 1, 1, 1, 6), tensor("b", 1, 6), tensor("c", 1, 2, 3)
    ops = (g.Transpose("t", (x,), a, (0, 2, 3, 1)), g.Reshape("r", (a,), b), g.Reshape("s", (b,), c))
    assert simplified((c,), *ops)[0] == ["Reshape"]
    assert simplified((a, c), *ops)[0] == ["Reshape", "Reshape"]  # an output stays


def test_a_slice_of_everything_moves_nothing():
    x, a, b = tensor("x", 1, 1, 6), tensor("a", 1, 1, 6), tensor("b", 1, 6)
    ops = g.StridedSlice("s", (x,), a, (0, 0, 0), (1, 1, 1)), g.Reshape("r", (a,), b)
    assert simplified((b,), *ops)[0] == ["Reshape"]
    back = g.StridedSlice("s", (x,), a, (0, 0, 5), (1, 1, -1)), ops[1]
    assert simplified((b,), *back)[0] == ["StridedSlice", "Reshape"]


def test_transpositions_that_move_elements_stay():
    x, a, b = tensor("x", 1, 6, 2, 1), tensor("a", 1, 2, 6, 1), tensor("b", 1, 12)
    assert simplified((b,), g.Transpose("t", (x,), a, (0, 2, 1, 3)), g.Reshape("r", (a,), b))[0] == [
        "Transpose",
        "Reshape",
    ]


def test_a_shuffle_of_channels_takes_them():
    x, y = tensor("x", 2, 6, 3, 5), tensor("y", 2, 6, 3, 5)
    split, turned = tensor("split", 2, 2, 3, 3, 5), tensor("turned", 2, 3, 2, 3, 5)
    ops = g.Reshape("a", (x,), split), g.Transpose("b", (split,), turned, (0, 2, 1, 3, 4)), g.Reshape("c", (turned,), y)
    _, (take,) = simplified((y,), *ops)
    assert isinstance(take, g.Take) and take.indices == ((), (0, 3, 1, 4, 2, 5), (), ())


@pytest.mark.parametrize("nhwc", [False, True])
@pytest.mark.parametrize("float32_scale", [False, True])
def test_dense_layers_on_flattened_images_become_convolutions(nhwc, float32_scale):
    x, image, turned = tensor("x", 2, 3, 4, 5), tensor("image", 2, 3, 4, 5), tensor("turned", 2, 4, 5, 3)
    flat, y = tensor("flat", 2, 60), tensor("y", 2, 7)
    turn = (g.Transpose("t", (image,), turned, (0, 2, 3, 1)),) if nhwc else ()
    ops = (g.Requantize("q", (x,), image), *turn, g.Reshape("r", (turned if nhwc else image,), flat))
    ops = (*ops, g.QDense("fc", (flat,), y, *weights(7, 60), float32_scale=float32_scale))
    kinds, _ = simplified((y,), *ops)
    assert kinds == ["Requantize", "WholeImage", "Reshape"]


def test_flattened_layers_keep_their_ternary_channels():
    x, image, flat, y = tensor("x", 2, 3, 4, 5), tensor("image", 2, 3, 4, 5), tensor("flat", 2, 60), tensor("y", 2, 7)
    weight, *parameters = weights(7, 60)
    dense = g.QDense("fc", (flat,), y, np.sign(weight), *parameters, ternary=3)
    _, ops = simplified((y,), g.Requantize("q", (x,), image), g.Reshape("r", (image,), flat), dense)
    assert isinstance(ops[1], g.QConv2d) and ops[1].ternary == 3


def test_dense_layers_on_vectors_stay():
    x, flat, y = tensor("x", 2, 6, 1, 1), tensor("flat", 2, 6), tensor("y", 2, 7)
    assert simplified((y,), g.Reshape("r", (x,), flat), g.QDense("fc", (flat,), y, *weights(7, 6)))[0] == [
        "Reshape",
        "QDense",
    ]


def test_padding_goes_into_the_convolution_that_reads_it():
    x, padded, y = tensor("x", 1, 3, 5, 5), tensor("p", 1, 3, 8, 9), tensor("y", 1, 4, 8, 7)
    pad = ((0, 0), (0, 0), (1, 2), (3, 1))
    conv = g.QConv2d("c", (padded,), y, *weights(4, 3, 3, 3), pads=(1, 0, 1, 0))
    kinds, ops = simplified((y,), g.Pad("pad", (x,), padded, pad, -9), conv)
    assert kinds == ["QConv2d"] and getattr(ops[0], "pads", None) == (2, 3, 3, 1)
    assert simplified((y,), g.Pad("pad", (x,), padded, pad, 0), conv)[0] == ["Pad", "QConv2d"]  # another value
    assert simplified((padded, y), g.Pad("pad", (x,), padded, pad, -9), conv)[0] == ["Pad", "QConv2d"]


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


@pytest.mark.parametrize("turned", [False, True])
def test_dense_layers_on_inputs_read_them_as_they_lie(turned):
    x, nchw, nhwc = tensor("x", 2, 4, 5, 3), tensor("nchw", 2, 3, 4, 5), tensor("nhwc", 2, 4, 5, 3)
    flat, y = tensor("flat", 2, 60), tensor("y", 2, 7)
    there = (g.Transpose("t", (x,), nchw, (0, 3, 1, 2)), g.Transpose("s", (nchw,), nhwc, (0, 2, 3, 1)))
    ops = (*(there if turned else ()), g.Reshape("r", (nhwc if turned else x,), flat))
    kinds, left = simplified((y,), *ops, g.QDense("fc", (flat,), y, *weights(7, 60)))
    assert kinds == ["Reshape", "QDense"] and left[0].x is x


def test_transpositions_there_and_back_are_none():
    x, there, back, y = (
        tensor(name, *shape)
        for name, shape in (("x", (1, 6, 2, 3)), ("t", (1, 3, 6, 2)), ("b", (1, 6, 2, 3)), ("y", (1, 6, 2, 3)))
    )
    ops = (g.Transpose("t", (x,), there, (0, 3, 1, 2)), g.Transpose("b", (there,), back, (0, 2, 3, 1)))
    ops = (*ops, g.Requantize("q", (back,), y))
    assert simplified((y,), *ops)[0] == ["Requantize"]
    assert simplified((back, y), *ops)[0] == ["Transpose", "Transpose", "Requantize"]  # an output stays


def shuffle(axes, size=(1, 6, 4, 5)):
    """As files shuffle channels: NHWC, groups apart, exchanged by `axes`, one after the other, NCHW."""
    n, c, h, w = size
    nhwc, apart = tensor("nhwc", n, h, w, c), tensor("apart", n, h, w, 2, c // 2)
    turned = tensor("turned", *(apart.shape[k] for k in axes))
    last, y = tensor("last", n, h, w, c), tensor("y", *size)
    return (
        g.Transpose("a", (tensor("x", *size),), nhwc, (0, 2, 3, 1)),
        g.Reshape("b", (nhwc,), apart),
        g.Transpose("c", (apart,), turned, axes),
        g.Reshape("d", (turned,), last),
        g.Transpose("e", (last,), y, (0, 3, 1, 2)),
    )


def test_channels_in_another_order_are_taken():
    ops = shuffle((0, 1, 2, 4, 3))
    kinds, left = simplified((ops[-1].output,), *ops)
    (op,) = left
    assert kinds == ["Take"] and isinstance(op, g.Take) and op.indices == ((), (0, 3, 1, 4, 2, 5), (), ())
    assert len(simplified((ops[-1].output,), *shuffle((0, 2, 1, 4, 3)))[0]) == 5  # which moves pixels, too
    assert simplified((ops[-1].output, ops[2].output), *ops)[0] == ["Transpose", "Reshape", "Transpose", "Take"]


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
