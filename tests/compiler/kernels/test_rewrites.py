"""Rewrites of graphs for the accelerator: the same results, and which operators change."""

from dataclasses import replace

import numpy as np
import pytest

from tests.compiler.kernels.conftest import TINY
from tests.compiler.kernels.operators import SAME, conv, dense, tensor, wide
from tilewright.compiler import graph as g
from tilewright.compiler.accelerator.rewrites import WideConv, absorb, split_steps, split_weights, successive
from tilewright.compiler.accelerator.sequences import as_images
from tilewright.compiler.graph import reference
from tilewright.compiler.graph.simplify import simplify
from tilewright.compiler.kernels import table
from tilewright.compiler.kernels.recording import AbsorbedPad, AbsorbedSlice
from tilewright.compiler.network import compile_for, compile_graph
from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Isa

CFG, VTA = PRESETS["pynq_z1"], PRESETS["vta"]
NCHW, NHWC = (0, 3, 1, 2), (0, 2, 3, 1)


def has(kind, graph):
    return any(isinstance(op, kind) for op in graph.ops)


# paddings and slices of channels that their only reader makes


def padded_sum(narrow, wide, value, kind=g.Add, first=False):
    """A sum of an image of `wide` channels and one of `narrow`, padded with `value`, both made in the launch."""
    x, y = g.Tensor("x", (1, wide, 5, 7), scale=0.05, zero_point=-128), g.Tensor("y", (1, narrow, 5, 7), scale=0.08)
    a, b = replace(x, name="a", scale=0.06), replace(y, name="b", zero_point=9)
    c = replace(b, name="c", shape=x.shape)
    ops = (
        g.Requantize("one", (x,), a),
        g.Requantize("two", (y,), b),
        g.Pad("pad", (b,), c, ((0, 0), (0, wide - narrow), (0, 0), (0, 0)), value),
        kind("sum", (c, a) if first else (a, c), g.Tensor("z", x.shape, scale=0.09, zero_point=-17)),
    )
    return g.Graph("g", (x, y), (ops[-1].output,), ops)


@pytest.mark.parametrize("narrow, wide", [(24, 28), (28, 32), (8, 48), (16, 64), (3, 4)])
@pytest.mark.parametrize("kind, first", [(g.Add, False), (g.Add, True), (g.Sub, False)])
def test_the_sum_makes_the_padding(narrow, wide, kind, first, anywhere):
    (launch,) = anywhere(padded_sum(narrow, wide, 9, kind, first))
    isa = Isa(CFG)
    assert "DWGEMM" in {isa.mnemonic(fields) for fields in isa.decode(launch.insn)}


def test_any_value_and_the_smallest_configuration(anywhere):
    assert len(anywhere(padded_sum(24, 28, -100))) == 1
    anywhere(padded_sum(5, 11, 77), TINY)


def test_what_others_read_is_padded_by_itself(anywhere):
    graph = padded_sum(24, 28, 9)
    both = replace(graph, outputs=(*graph.outputs, graph.ops[2].output))
    assert not has(AbsorbedPad, absorb(both, CFG))
    assert has(AbsorbedPad, absorb(graph, CFG))
    anywhere(both)


@pytest.mark.parametrize(
    "pads", [((0, 0), (4, 0), (0, 0), (0, 0)), ((0, 0), (0, 0), (1, 0), (0, 0)), ((0, 0), (0, 4), (0, 0), (0, 1))]
)
def test_other_paddings_stay(pads, anywhere):
    x = g.Tensor("x", (1, 24, 5, 7), scale=0.05)
    y = g.Tensor("y", tuple(n + sum(pair) for n, pair in zip(x.shape, pads)), scale=0.05)
    other, z = replace(y, name="other"), replace(y, name="z", scale=0.09)
    graph = g.Graph("g", (x, other), (z,), (g.Pad("pad", (x,), y, pads, 0), g.Add("sum", (y, other), z)))
    assert not has(AbsorbedPad, absorb(graph, CFG))
    anywhere(graph)


def test_what_lacks_the_extension_pads_on_the_host(anywhere):
    cfg = CFG.replace(extensions=CFG.extensions - {"depthwise"})
    graph = padded_sum(24, 28, 9)
    assert absorb(graph, cfg) is graph
    anywhere(graph, cfg)


def test_one_padding_of_a_sum_is_absorbed(anywhere):
    x, y = g.Tensor("x", (1, 24, 5, 7), scale=0.05), g.Tensor("y", (1, 20, 5, 7), scale=0.05)
    a, b = g.Tensor("a", (1, 40, 5, 7), scale=0.05), g.Tensor("b", (1, 40, 5, 7), scale=0.05)
    pads = [
        g.Pad(f"pad {t.name}", (t,), u, ((0, 0), (0, 40 - t.shape[1]), (0, 0), (0, 0)), 3) for t, u in ((x, a), (y, b))
    ]
    graph = g.Graph("g", (x, y), (z := g.Tensor("z", a.shape, scale=0.09),), (*pads, g.Add("sum", (a, b), z)))
    assert sum(isinstance(op, AbsorbedPad) for op in absorb(graph, CFG).ops) == 1
    anywhere(graph)


def test_a_padding_whose_sum_runs_elsewhere_is_a_step_of_the_host(exact_graph):
    found = exact_graph(padded_sum(24, 28, 9), refused={"accelerator": {"sum": "the test refuses it"}})
    assert "pad" in {step.name for step in found.executable.steps}


def layer(name, x, y, groups=1):
    """A 3x3 convolution of padding 1."""
    op = conv(x.shape[1], x.shape[2:], y.shape[1], pads=SAME, groups=groups)
    return replace(op, name=name, inputs=(x,), output=y)


def sliced(channels, begin, count, block=8):
    """A convolution, then one of its results beside a depthwise one of `count` channels from `begin` on, joined."""
    x = g.Tensor("x", (1, 4, 6, 5), scale=0.05)
    tensors = {
        name: g.Tensor(name, (1, n, 6, 5), scale=0.06, zero_point=-128)
        for name, n in (("a", channels), ("b", block), ("c", count), ("d", count), ("y", block + count))
    }
    a, b, c, d, y = tensors.values()
    ops = (
        layer("first", x, a),
        layer("standard", a, b),
        g.StridedSlice("cut", (a,), c, (0, begin, 0, 0), (1, 1, 1, 1)),
        layer("depthwise", c, d, count),
        g.Concat("join", (b, d), y, 1),
    )
    return g.Graph("g", (x,), (y,), ops)


@pytest.fixture
def on_device_alone(anywhere):
    """The launches of a graph whose layers are not the host's, unless `refused` says else."""

    def run(graph, cfg=TINY, refused=None):
        return anywhere(graph, cfg, refused or {"host": {op.name: "the test refuses it" for op in graph.layers}})

    return run


@pytest.mark.parametrize(("channels", "begin", "count"), [(12, 8, 4), (12, 0, 4), (12, 4, 4), (14, 8, 6), (16, 4, 12)])
def test_a_slice_is_read_where_it_lies(channels, begin, count, on_device_alone):
    graph = sliced(channels, begin, count)
    assert has(AbsorbedSlice, absorb(graph, TINY))
    (launch,) = on_device_alone(graph)
    assert launch.origins is not None
    names = {name for k in launch.origins.of for name in launch.origins.paths[k][:1]}
    assert names == {"first", "standard", "depthwise"}


def test_other_configurations(on_device_alone):
    on_device_alone(sliced(32, 16, 16, 16), PRESETS["pynq_z1"])
    on_device_alone(sliced(40, 16, 24, 32), PRESETS["pynq_z1_plus"])


@pytest.mark.parametrize(("channels", "begin", "count"), [(12, 2, 4), (12, 4, 3)])
def test_parts_of_blocks_are_copied(channels, begin, count, on_device_alone):
    graph = sliced(channels, begin, count)
    assert not has(AbsorbedSlice, absorb(graph, TINY))
    on_device_alone(graph)


def test_what_others_read_is_copied(on_device_alone):
    graph = sliced(12, 8, 4)
    both = replace(graph, outputs=(*graph.outputs, graph.ops[2].output))
    assert not has(AbsorbedSlice, absorb(both, TINY))
    on_device_alone(both)


def test_without_depthwise_products_it_is_copied(on_device_alone):
    cfg = TINY.replace(extensions=TINY.extensions - {"depthwise"})
    graph = sliced(12, 8, 4)
    assert not has(AbsorbedSlice, absorb(graph, cfg))
    on_device_alone(graph, cfg)


def test_a_slice_whose_reader_runs_elsewhere(on_device_alone):
    on_device_alone(sliced(12, 8, 4), refused={"accelerator": {"depthwise": "the test refuses it"}})


# weights beyond int8


def alone(op):
    return g.Graph("g", op.inputs, (op.output,), (op,))


def test_wide_dense_layers_are_convolutions_of_one_pixel():
    op = dense(1, 40, 33)
    op = replace(op, weight=(2 * op.weight.astype(np.int16)).clip(-254, 254))
    ops = split_weights(alone(op), CFG).ops
    assert [type(each) for each in ops] == [g.Reshape, g.Take, WideConv, g.Reshape]
    values = {"x": np.random.default_rng(2).integers(-128, 128, (1, 40)).astype(np.int8)}
    wanted = reference.apply(op, values["x"])
    assert np.array_equal(compile_graph(alone(op), CFG).run({**values})[0]["y"], wanted)
    for each in ops:
        values[each.output.name] = reference.apply(each, *(values[t.name] for t in each.inputs))
    assert np.array_equal(values["y"], wanted)


def test_both_parts_add_up_to_wide_weights():
    op = wide()
    take, conv = split_weights(alone(op), CFG).ops
    assert isinstance(take, g.Take) and isinstance(conv, WideConv) and conv.macs == op.macs
    assert conv.weight.dtype == np.int8 and np.array_equal(conv.scales, op.scales)
    assert np.array_equal(conv.weight.reshape(32, 32, 3, 2, 3).sum(3, dtype=np.int16), op.weight)


def test_wide_weights_that_stay():
    largest = wide()
    largest.weight[0, 0, 0, 0] = 255  # which two int8 numbers do not make
    for op in (largest, wide(dilations=(2, 1), pads=(2, 1, 2, 1)), wide(pads=(9, 1, 9, 1))):
        assert split_weights(alone(op), CFG).ops == (op,)
    # layers of equal shapes have refusals of their own
    narrow = replace(largest, weight=np.clip(largest.weight, -128, 127).astype(np.int8))
    found = [table.refusal(op, CFG) for op in (largest, narrow, replace(largest, name="other"))]
    assert [why.endswith("not within int8") for why in found] == [True, False, True] and not found[1]


# means, LSTMs


def test_means_over_columns_and_then_rows(exact):
    x = tensor("x", (2, 20, 9, 8), 0.1, -7)
    between, y = tensor("t", (2, 20, 9), 0.07, 5), tensor("y", (2, 20), 0.04, 11)
    ops = g.Mean("a", (x,), between, (3,)), g.Mean("b", (between,), y, (2,))
    exact(*ops)
    graph = g.Graph("g", (x,), (y, between), ops)
    assert successive(graph) is graph  # an output keeps its shape
    assert [op.x.shape for op in successive(replace(graph, outputs=(y,))).ops] == [x.shape, (2, 20, 9, 1)]
    kept = g.Mean("b", (between,), replace(y, shape=(2, 20, 1)), (2,))  # the rows stay
    graph = g.Graph("g", (x,), (kept.output,), (ops[0], kept))
    assert successive(graph) is graph


def lstm(steps=1, size=64, scale=0.1, zero_point=-3):
    """An LSTM whose hidden values stay from run to run, of gates that are given."""
    rng = np.random.default_rng(4)
    gates = g.Tensor("gates", (1, steps, 4 * size), "int16", 2.0**-12)
    hidden, cells = (
        g.Tensor("hidden", (1, size), zero_point=zero_point),
        g.Tensor("cells", (1, size), "int16", 2.0**-11),
    )
    wide = g.Tensor("wide", (1, steps + 1, size), "int16", hidden.scale, zero_point)
    weight = rng.integers(-128, 128, (4 * size, size)).astype(np.int8)
    bias = (-zero_point * weight.sum(1, dtype=np.int64)).astype(np.int32)
    op = g.Lstm("lstm", (gates, hidden, cells), wide, weight, bias, np.full(4 * size, scale), 2.0**-22)
    start = rng.integers(-128, 128, hidden.shape).astype(np.int8)
    return g.Graph("g", (gates, cells), (wide,), (op,), (g.State(hidden, start, hidden),))


@pytest.mark.parametrize("scale, dtype", [(0.01, "int16"), (0.3, "int32")])
def test_a_step_is_exact_with_its_products_on_the_device(exact_graph, scale, dtype):
    graph = lstm(scale=scale)
    own, step = split_steps(graph, lambda own: True).ops
    assert isinstance(own, g.Dense16) and isinstance(step, g.LstmStep) and own.output.dtype == dtype
    assert not own.bias.any() and own.macs + step.macs == graph.macs
    rng = np.random.default_rng(8)
    values = {t.name: rng.integers(-9000, 9000, t.shape).astype(np.int16) for t in graph.inputs}
    executable = exact_graph(graph, CFG, data=values, refused={}).executable
    assert [s.macs for s in executable.launches] == [graph.macs]


def test_it_stays_whole_where_that_is_faster():
    small, long = lstm(size=8), lstm(steps=3)
    assert [type(op) for op in split_steps(long, lambda own: True).ops] == [g.Lstm]
    for graph in (small, long):
        (choice,) = compile_for(graph, CFG).assignment.choices
        assert isinstance(choice.ops[0], g.Lstm)
    without = CFG.replace(extensions=CFG.extensions - {"rescale"})
    assert isinstance(compile_for(lstm(), without).assignment.choices[0].ops[0], g.Lstm)


# sequences as images


def t(name, *shape, scale=0.1, zero_point=0, data=None):
    return g.Tensor(name, shape, "int8", scale, zero_point, data)


def on_rows(name, x, units):
    """[rows, dense layer, and back] of (1, T, D)."""
    _, count, features = x.shape
    weight = np.random.default_rng(len(name)).integers(-127, 128, (units, features)).astype(np.int8)
    flat, y = t(f"{name}.x", count, features, scale=x.scale), t(f"{name}.y", count, units, scale=4.0)
    op = g.QDense(name, (flat,), y, weight, np.full(units, 0.05, np.float32), np.zeros(units, np.int32))
    back = t(f"{name}.out", 1, count, units, scale=4.0)
    return [g.Reshape(f"{name}.rows", (x,), flat), op, g.Reshape(f"{name}.back", (y,), back)]


def graph_of(inputs, ops, *outputs):
    return g.Graph("g", tuple(inputs), outputs or (ops[-1].output,), tuple(ops))


def check(before):
    """`before` as images, simplified, which computes the same; its operators by name."""
    after = simplify(as_images(before, CFG))
    rng = np.random.default_rng(6)
    values = {x.name: rng.integers(-128, 128, x.shape).astype(np.int8) for x in before.inputs}
    wanted, found = (reference.trace(each, values, "single") for each in (before, after))
    for y in before.outputs:
        np.testing.assert_array_equal(found[y.name], wanted[y.name])
    return {op.name: op for op in after.ops}


def moves(ops):
    return [op for op in ops.values() if isinstance(op, (g.Reshape, g.Transpose))]


def product_of(ops, name):
    assert isinstance(op := ops[name], g.BatchMatMul)
    return op


def test_layers_on_rows_keep_their_ternary_channels():
    x = t("x", 1, 6, 32)
    into, layer, back = on_rows("q", x, 32)
    assert isinstance(layer, g.QDense)
    divided = replace(layer, weight=np.sign(layer.weight), ternary=16)
    ops = check(graph_of((x,), [into, divided, back]))
    assert isinstance(op := ops["q"], g.QConv2d) and op.ternary == 16


def two_heads(turned):
    """Scores and their softmax of two heads of queries and keys, as a .tflite file has them."""
    x = t("x", 1, 6, 32)
    ops, parts = [], {}
    for name in "qk":
        ops += on_rows(name, x, 32)
        split, image = t(f"{name}.split", 1, 6, 2, 16, scale=4.0), t(f"{name}.image", 1, 16, 6, 2, scale=4.0)
        mixed, plain = t(f"{name}.mixed", 1, 16, 2, 6, scale=4.0), t(f"{name}.plain", 1, 2, 6, 16, scale=4.0)
        ops += [g.Reshape(split.name, (ops[-1].output,), split), g.Transpose(image.name, (split,), image, NCHW, True)]
        ops += [g.Transpose(mixed.name, (image,), mixed, (0, 1, 3, 2))]
        ops += [g.Transpose(plain.name, (mixed,), plain, NHWC, True)]
        parts[name] = plain
    if turned:
        keys = t("turned", 1, 2, 16, 6, scale=4.0)
        ops.append(g.Transpose("turned", (parts["k"],), keys, (0, 1, 3, 2)))
        parts["k"] = keys
    scores, image = t("scores", 1, 2, 6, 6, scale=9.0), t("scores.image", 1, 6, 2, 6, scale=9.0)
    scaled, weights = t("scaled", 1, 6, 2, 6, scale=2.0), t("weights", 1, 6, 2, 6, scale=1 / 256, zero_point=-128)
    quarter = t("quarter", 1, 1, 1, 1, data=np.full((1, 1, 1, 1), 25, np.int8), scale=0.01)
    y = t("y", 1, 2, 6, 6, scale=1 / 256, zero_point=-128)
    ops += [g.BatchMatMul("matmul", (parts["q"], parts["k"]), scores, not turned)]
    ops += [g.Transpose("image", (scores,), image, NCHW, True), g.Mul("mul", (image, quarter), scaled)]
    ops += [g.Softmax("softmax", (scaled,), weights, 1, 1.0), g.Transpose("y", (weights,), y, NHWC, True)]
    return graph_of([x], ops)


@pytest.mark.parametrize("turned", [False, True])
def test_heads_are_split_by_nothing_that_moves(turned):
    ops = check(two_heads(turned))
    product = product_of(ops, "matmul")
    assert product.images and product.transposed and product.x.shape == (2, 16, 1, 6)
    assert [op.in_place for op in ops.values() if isinstance(op, g.Heads)] == [True, True]
    assert ops["softmax"].x.shape == (2, 6, 1, 6) and isinstance(ops["q"], g.QConv2d)
    assert len(moves(ops)) == 6  # of the input, and of the output, which stays under its name


def test_element_wise_operators_between_dense_layers():
    x, ops = t("x", 1, 5, 20), on_rows("first", t("x", 1, 5, 20), 12)
    y = ops[-1].output
    mean, less = t("mean", 1, 5, 1, scale=2.0), t("less", 1, 5, 12, scale=4.0)
    bias = t("bias", 12, data=np.arange(12, dtype=np.int8))
    ops += [g.Mean("mean", (y,), mean, (2,)), g.Sub("less", (y, mean), less)]
    more = t("more", 1, 5, 12, scale=4.0)
    ops += [g.Add("more", (less, bias), more), *on_rows("second", more, 7)]
    found = check(graph_of([x], ops))
    assert found["mean"].output.shape == (1, 1, 1, 5) and found["less"].output.shape == (1, 12, 1, 5)
    assert found["more"].inputs[1].shape == (1, 12, 1, 1) and len(moves(found)) == 4


def test_products_of_any_rank_and_with_one_operand_for_all():
    x, y, z = t("x", 2, 3, 4, 5), t("y", 1, 1, 5, 6), t("z", 2, 3, 4, 6, scale=3.0)
    found = check(graph_of([x, y], [g.BatchMatMul("op", (x, y), z)]))
    product = product_of(found, "op")
    assert product.x.shape == (6, 5, 1, 4)
    assert product.transposed and product.inputs[1].shape == (1, 5, 1, 6)  # as it lies
    x, y, z = t("x", 4, 5), t("y", 5, 6), t("z", 4, 6, scale=3.0)
    assert product_of(check(graph_of([x, y], [g.BatchMatMul("op", (x, y), z)])), "op").images
    x, y, z = t("x", 2, 1, 4, 5), t("y", 3, 5, 6), t("z", 2, 3, 4, 6, scale=3.0)
    assert not product_of(check(graph_of([x, y], [g.BatchMatMul("op", (x, y), z)])), "op").images


def test_what_stays():
    x = t("x", 1, 5, 20)
    lookup = g.Lookup("op", (x,), t("y", 1, 5, 20), "abs", np.zeros(256, np.int8))
    for ops in ([lookup], on_rows("alone", t("x", 1, 1, 20), 4)):
        before = graph_of([ops[0].x], ops)
        assert as_images(before, CFG) is before
    before = graph_of([x], on_rows("op", x, 4))
    assert as_images(before, VTA) is before


@pytest.mark.parametrize("move", [g.Transpose, g.Reshape])
def test_constants_that_are_moved_are_operands(move):
    x, y, moved = t("x", 2, 8, 16), t("y", 2, 8, 5, scale=4.0), t("w.moved", 2, 16, 5)
    shape = (2, 5, 16) if move is g.Transpose else (2, 80)
    w = t("w", *shape, data=np.random.default_rng(1).integers(-9, 9, shape).astype(np.int8))
    made = g.Transpose("move", (w,), moved, (0, 2, 1)) if move is g.Transpose else g.Reshape("move", (w,), moved)
    ops = check(graph_of((x,), [made, g.BatchMatMul("product", (x, moved), y)]))
    assert product_of(ops, "product").images


def test_images_whose_counts_do_not_divide_are_no_heads():
    x, split, rows, y = t("x", 2, 3, 1, 4), t("split", 3, 2, 4), t("rows", 3, 4, 2), t("y", 3, 4, 5)
    w = t("w", 3, 2, 5, data=np.random.default_rng(1).integers(-9, 9, (3, 2, 5)).astype(np.int8))
    moves = [g.Reshape("split", (x,), split), g.Transpose("rows", (split,), rows, (0, 2, 1))]
    ops = check(graph_of((x,), [*moves, g.BatchMatMul("product", (rows, w), y)]))
    assert product_of(ops, "product").images and not any(isinstance(op, g.Heads) for op in ops.values())
