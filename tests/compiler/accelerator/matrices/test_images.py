"""Networks of sequences as networks of images: the same results, and which operators change."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.accelerator.sequences import as_images
from tilewright.compiler.graph import reference
from tilewright.compiler.graph.simplify import simplify
from tilewright.hw.config import PRESETS

CFG, NCHW, NHWC = PRESETS["pynq_z1"], (0, 3, 1, 2), (0, 2, 3, 1)


def t(name, *shape, scale=0.1, zero_point=0, data=None):
    return g.Tensor(name, shape, "int8", scale, zero_point, data)


def dense(name, x, units):
    """[rows, dense layer, and back] of (1, T, D)."""
    _, count, features = x.shape
    weight = np.random.default_rng(len(name)).integers(-127, 128, (units, features)).astype(np.int8)
    flat, y = t(f"{name}.x", count, features, scale=x.scale), t(f"{name}.y", count, units, scale=4.0)
    op = g.QDense(name, (flat,), y, weight, np.full(units, 0.05, np.float32), np.zeros(units, np.int32))
    back = t(f"{name}.out", 1, count, units, scale=4.0)
    return [g.Reshape(f"{name}.rows", (x,), flat), op, g.Reshape(f"{name}.back", (y,), back)]


def graph(inputs, ops, *outputs):
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
    into, layer, back = dense("q", x, 32)
    assert isinstance(layer, g.QDense)
    divided = replace(layer, weight=np.sign(layer.weight), ternary=16)
    ops = check(graph((x,), [into, divided, back]))
    assert isinstance(op := ops["q"], g.QConv2d) and op.ternary == 16


def attention(turned):
    """Scores and their softmax of two heads of queries and keys, as a .tflite file has them."""
    x = t("x", 1, 6, 32)
    ops, parts = [], {}
    for name in "qk":
        ops += dense(name, x, 32)
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
    return graph([x], ops)


@pytest.mark.parametrize("turned", [False, True])
def test_heads_are_split_by_nothing_that_moves(turned):
    ops = check(attention(turned))
    product = product_of(ops, "matmul")
    assert product.images and product.transposed and product.x.shape == (2, 16, 1, 6)
    assert [op.in_place for op in ops.values() if isinstance(op, g.Heads)] == [True, True]
    assert ops["softmax"].x.shape == (2, 6, 1, 6) and isinstance(ops["q"], g.QConv2d)
    assert len(moves(ops)) == 6  # of the input, and of the output, which stays under its name


def test_element_wise_operators_between_dense_layers():
    x, ops = t("x", 1, 5, 20), dense("first", t("x", 1, 5, 20), 12)
    y = ops[-1].output
    mean, less = t("mean", 1, 5, 1, scale=2.0), t("less", 1, 5, 12, scale=4.0)
    bias = t("bias", 12, data=np.arange(12, dtype=np.int8))
    ops += [g.Mean("mean", (y,), mean, (2,)), g.Sub("less", (y, mean), less)]
    more = t("more", 1, 5, 12, scale=4.0)
    ops += [g.Add("more", (less, bias), more), *dense("second", more, 7)]
    found = check(graph([x], ops))
    assert found["mean"].output.shape == (1, 1, 1, 5) and found["less"].output.shape == (1, 12, 1, 5)
    assert found["more"].inputs[1].shape == (1, 12, 1, 1) and len(moves(found)) == 4


def test_products_of_any_rank_and_with_one_operand_for_all():
    x, y, z = t("x", 2, 3, 4, 5), t("y", 1, 1, 5, 6), t("z", 2, 3, 4, 6, scale=3.0)
    found = check(graph([x, y], [g.BatchMatMul("op", (x, y), z)]))
    product = product_of(found, "op")
    assert product.x.shape == (6, 5, 1, 4)
    assert product.transposed and product.inputs[1].shape == (1, 5, 1, 6)  # as it lies
    x, y, z = t("x", 4, 5), t("y", 5, 6), t("z", 4, 6, scale=3.0)
    assert product_of(check(graph([x, y], [g.BatchMatMul("op", (x, y), z)])), "op").images
    x, y, z = t("x", 2, 1, 4, 5), t("y", 3, 5, 6), t("z", 2, 3, 4, 6, scale=3.0)
    assert not product_of(check(graph([x, y], [g.BatchMatMul("op", (x, y), z)])), "op").images


def test_what_stays():
    x = t("x", 1, 5, 20)
    lookup = g.Lookup("op", (x,), t("y", 1, 5, 20), "abs", np.zeros(256, np.int8))
    for ops in ([lookup], dense("alone", t("x", 1, 1, 20), 4)):
        before = graph([ops[0].x], ops)
        assert as_images(before, CFG) is before
    before = graph([x], dense("op", x, 4))
    assert as_images(before, PRESETS["vta"]) is before


@pytest.mark.parametrize("move", [g.Transpose, g.Reshape])
def test_constants_that_are_moved_are_operands(move):
    x, y, moved = t("x", 2, 8, 16), t("y", 2, 8, 5, scale=4.0), t("w.moved", 2, 16, 5)
    shape = (2, 5, 16) if move is g.Transpose else (2, 80)
    w = t("w", *shape, data=np.random.default_rng(1).integers(-9, 9, shape).astype(np.int8))
    made = g.Transpose("move", (w,), moved, (0, 2, 1)) if move is g.Transpose else g.Reshape("move", (w,), moved)
    ops = check(graph((x,), [made, g.BatchMatMul("product", (x, moved), y)]))
    assert product_of(ops, "product").images


def test_images_whose_counts_do_not_divide_are_no_heads():
    x, split, rows, y = t("x", 2, 3, 1, 4), t("split", 3, 2, 4), t("rows", 3, 4, 2), t("y", 3, 4, 5)
    w = t("w", 3, 2, 5, data=np.random.default_rng(1).integers(-9, 9, (3, 2, 5)).astype(np.int8))
    moves = [g.Reshape("split", (x,), split), g.Transpose("rows", (split,), rows, (0, 2, 1))]
    ops = check(graph((x,), [*moves, g.BatchMatMul("product", (rows, w), y)]))
    assert product_of(ops, "product").images and not any(isinstance(op, g.Heads) for op in ops.values())
