"""Operators of Deeploy's dialect, and what a RequantShift makes of them, against integers computed beside."""

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler import reference
from tilewright.hw.errors import UnsupportedError

EVERY = np.arange(-128, 128)[None]
ROOT = {"coeffA": [2.0], "coeffB": [25.0], "coeffC": [331.0], "log2": [19.0], "n_levels": [256.0]}


def gelu(x, b=-98, one=9000):
    d = min(abs(x), -b) + b
    return x * ((one + (x > 0) * (one - d * d) - (x < 0) * (one - d * d)) >> 1)


def hardswish(x):
    return x * (min(max(x + 122, 0), 245) * 42)


def each(function):
    return np.array([[function(int(v)) for v in EVERY[0]]])


@pytest.mark.parametrize(
    ("op", "attrs", "function", "mul"),
    [
        ("iGELU", {"b": -98, "one": 9000}, gelu, 7),
        ("iHardswish", {"three": 122, "six": 245, "one_over_six": 42}, hardswish, 9),
        ("TrueIntegerDiv", {"Delta": 16384, "eta": 200000, "eps": 1, "y": 2}, lambda x: x * 8191, 4),
        ("Relu", {}, lambda x: max(x, 0), 70000),
    ],
)
def test_functions_of_one_value(net, op, attrs, function, mul):
    x = net.node(op, net.input(1, 256), **attrs)
    net.output(x, net.shift(x, mul))
    graph, (whole, narrow) = net.run(EVERY)
    assert np.array_equal(whole, each(function)) and np.array_equal(narrow, net.shifted(each(function), mul))


def test_a_quotient_of_two_tensors(net):
    x, y = net.int8(2, 6), np.array([[3], [7]])
    attrs = {"Delta": 1024, "eta": 100, "eps": 1}
    net.output(net.node("TrueIntegerDiv", net.input(2, 6), net.input(2, 1), **attrs))
    graph, (found,) = net.run(x, y)
    assert np.array_equal(found, x * (1024 * 100 // (y * 100 + 1)))


@pytest.mark.parametrize("levels", [256, 128])
def test_softmax_with_a_shift_or_without(net, levels):
    x = net.int8(1, 2, 3, 9)
    attrs = {"coeffA": [2.0], "coeffB": [25.0], "coeffC": [331.0], "log2": [19.0], "n_levels": [float(levels)]}
    y = net.node("iSoftmax", net.input(1, 2, 3, 9), **attrs)
    net.output(y, net.shift(y, 100000), net.shift(y, 90000, signed=0))
    graph, found = net.run(x)
    below = x - x.max(-1, keepdims=True)
    z = np.minimum(-below // 19, 31)
    e = (2 * (below + z * 19 + 25) ** 2 + 331) >> z
    shares = e * (levels - 1) // e.sum(-1, keepdims=True)
    assert np.array_equal(found[0], shares)
    assert np.array_equal(found[1], net.shifted(shares, 100000))
    assert np.array_equal(found[2], net.shifted(shares, 90000, low=0, high=255))
    assert [type(op) for op in graph.ops].count(g.IntegerSoftmax) == 3


@pytest.mark.parametrize("op", ["iRMSNorm", "iLayerNorm"])
def test_norms(net, op):
    x, weight, bias = net.int8(1, 5, 12), net.rng.integers(-(2**21), 2**21, 12), net.rng.integers(-(2**19), 2**19, 12)
    more = [net.const(bias)] if op == "iLayerNorm" else []
    net.output(net.node(op, net.input(1, 5, 12), net.const(weight), *more, D=1 << 16, n_levels=256))
    graph, (found,) = net.run(x)
    values = x - np.trunc(x.sum(-1, keepdims=True) / 12).astype(int) if more else x
    root = np.floor(np.sqrt((values**2).sum(-1, keepdims=True) // 12 + 1)).astype(int)
    quotient = np.sign(values * weight) * (np.abs(values * weight) // root)
    assert np.array_equal(found, np.clip((quotient + bias if more else quotient) >> 16, -128, 127))


def test_a_norm_with_one_weight_for_all(net):
    net.output(net.node("iRMSNorm", net.input(3, 8), net.const(1 << 20), D=1 << 14, n_levels_out=[256.0]))
    _, (found,) = net.run(np.full((3, 8), 5))
    assert found.tolist() == [[5 * (1 << 20) // 5 >> 14] * 8] * 3


def test_caches_are_joined_with_new_rows(net):
    cache, new = net.int8(1, 2, 3, 4), net.int8(1, 2, 1, 4)
    net.output(net.shift(net.node("Concat", net.input(1, 2, 3, 4), net.input(1, 2, 1, 4), axis=-2), 1 << 16))
    graph, (found,) = net.run(cache, new)
    assert np.array_equal(found, np.concatenate([cache, new], 2)) and [op.name for op in graph.ops] == ["Concat_0"]
    assert graph.ops[0].output.name == "RequantShift_1_0"  # which does nothing here


def test_an_empty_cache_is_no_input(net):
    x = net.input(1, 2, 1, 4)
    net.output(net.shift(net.node("Concat", net.input(1, 2, 0, 4), x, axis=-2), 70000))
    graph, (found,) = net.run(given := net.int8(1, 2, 1, 4))
    assert [t.name for t in graph.inputs] == [x] and np.array_equal(found, net.shifted(given, 70000))


def test_values_move_at_any_width(net):
    x, w = net.int8(2, 6), net.int8(6, 8)
    rows = net.node("Reshape", net.input(2, 6), net.const([1, 2, 6], np.int64))
    y = net.node("Transpose", net.node("MatMul", rows, net.const(w)), perm=[0, 2, 1])
    narrow = net.node("Slice", rows, *(net.const([n], np.int64) for n in (1, 2, 1)))
    net.output(y, narrow, net.node("Gather", rows, net.const([3, 0], np.int64), axis=2), net.shift(rows))
    graph, (wide, row, taken, _) = net.run(x)
    assert np.array_equal(wide, (x @ w)[None].transpose(0, 2, 1)) and graph.outputs[0].dtype == "int32"
    assert np.array_equal(row, x[None, 1:2]) and np.array_equal(taken, x[None][..., [3, 0]])


def test_tables_move(net):
    x = net.int8(2, 6)
    y = net.node("Transpose", net.node("Relu", net.input(2, 6)), perm=[1, 0])
    net.output(net.shift(y, 90000))
    assert np.array_equal(net.run(x)[1][0], net.shifted(np.maximum(x, 0), 90000).T)


def test_wide_arithmetic(net):
    x, y = net.int8(1, 6), net.int8(1, 6)
    a, b = net.input(1, 6), net.input(1, 6)
    product = net.node("Mul", a, b)
    net.output(
        net.node("Sub", product, a),
        net.node("Add", net.node("Mul", product, net.const(3)), net.const(np.arange(6) * 1000)),
        net.node("Mul", net.node("Add", a, net.const(200)), net.const(-4)),
        net.node("Concat", product, b, axis=1),
        net.node("MatMul", product, net.const(np.eye(6))),
        net.shift(product, 5, 999),
    )
    _, found = net.run(x, y)
    wanted = [x * y - x, x * y * 3 + np.arange(6) * 1000, (x + 200) * -4, np.concatenate([x * y, y], 1), x * y]
    wanted.append(np.clip((x * y * 5 + 999 + (1 << 15)) >> 16, -128, 127))
    assert all(np.array_equal(one, other) for one, other in zip(found, wanted))


def test_gemm_is_a_layer(net):
    x, w, bias = net.int8(3, 5), net.int8(4, 5), net.int8(4)
    net.output(net.shift(net.node("Gemm", net.input(3, 5), net.const(w), net.const(bias), transB=1), 900))
    graph, (found,) = net.run(x)
    assert [type(op) for op in graph.ops] == [g.QDense] and np.array_equal(found, net.shifted(x @ w.T + bias, 900))


def test_gemm_of_sums_and_by_wide_weights(net):
    x, w = net.int8(3, 5), net.int8(5, 4)
    a = net.input(3, 5)
    net.output(net.node("Gemm", net.node("Mul", a, a), net.const(w), net.const(np.arange(4))))
    net.output(net.node("Gemm", a, net.const(w * 9)))
    _, found = net.run(x)
    assert np.array_equal(found[0], (x * x) @ w + np.arange(4)) and np.array_equal(found[1], x @ w * 9)


def test_a_constant_of_three_dimensions(net):
    x, y = net.int8(2, 3, 4), net.int8(2, 3, 4)
    net.output(net.shift(net.node("Mul", net.input(2, 3, 4), net.const(y)), 900))
    _, (found,) = net.run(x)
    assert np.array_equal(found, net.shifted(x * y, 900))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda n, x: n.node("iGELU", x, b=-98), r"iGELU 'iGELU_0' has no attribute 'one'"),
        (lambda n, x: n.node("iGELU", x, b=-98, one=0.5), "has one of 0.5, which is no integer"),
        (lambda n, x: n.node("iSoftmax", x, axis=1, **ROOT), "is not along the last axis"),
        (lambda n, x: n.node("iRMSNorm", x, x, D=4, n_levels=256), "has weights that are not constant"),
        (lambda n, x: n.node("iRMSNorm", x, n.const(1), D=0, n_levels=256), "has D = 0 and 256 levels"),
        (lambda n, x: n.node("TrueIntegerDiv", x, Delta=4, eta=1, eps=-2, y=2), "divides by 0"),
        (lambda n, x: n.node("iHardswish", n.node("Mul", x, x), three=1, six=2, one_over_six=1), "more than 8 bits"),
        (lambda n, x: n.node("MatMul", x, n.const([1, 2, 3])), "multiplies by a vector"),
        (lambda n, x: n.node("RequantShift", x), "RequantShift 'RequantShift_0' has 1 inputs; 3 are needed"),
    ],
)
def test_nodes_that_are_refused(net, make, message):
    net.output(net.shift(make(net, net.input(1, 2, 3))))
    with pytest.raises(UnsupportedError, match=message):
        net.graph()


def kinds(graph):
    return [type(op) for op in graph.ops]


def test_a_product_with_constant_weights_is_a_layer(net):
    x, w, bias = net.int8(1, 6, 24), net.int8(24, 20), net.rng.integers(-5000, 5000, 20)
    y = net.node("MatMul", net.input(1, 6, 24), net.const(w))
    net.output(net.shift(net.node("Add", net.const(bias), y), 700))
    graph, (found,) = net.run(x)
    assert kinds(graph) == [g.Reshape, g.QDense, g.Reshape]
    assert np.array_equal(found, net.shifted(x @ w + bias, 700))


def test_factors_and_offsets_per_channel_are_a_layer_too(net):
    x, w = net.int8(5, 24), net.int8(24, 20)
    mul = net.rng.integers(100, 4000, 20)
    bias = net.rng.integers(-900, 900, 20)
    net.output(net.shift(net.node("MatMul", net.input(5, 24), net.const(w)), mul, mul * bias))
    graph, (found,) = net.run(x)
    assert kinds(graph) == [g.QDense] and np.array_equal(found, net.shifted(x @ w, mul, mul * bias))


def test_other_offsets_take_wide_integers_on_the_host(net):
    x, w, add = net.int8(5, 24), net.int8(24, 20), net.rng.integers(-(1 << 20), 1 << 20, 20)
    net.output(net.shift(net.node("MatMul", net.input(5, 24), net.const(w)), 4000, add))
    graph, (found,) = net.run(x)
    assert kinds(graph) == [g.IntegerMatMul, g.RequantShift] and np.array_equal(found, net.shifted(x @ w, 4000, add))


def test_unsigned_values_go_through_layers(net):
    x, w = net.int8(5, 24), net.int8(24, 20)
    y = net.shift(net.input(5, 24), 100000, signed=0)
    z = net.shift(net.node("MatMul", y, net.const(w)), 900, levels=128, signed=0)
    net.output(y, z)
    graph, (first, second) = net.run(x)
    wanted = net.shifted(x, 100000, 0, 16, 0, 255)
    assert np.array_equal(first, wanted) and np.array_equal(second, net.shifted(wanted @ w, 900, 0, 16, 0, 127))
    assert [t.dtype for t in graph.outputs] == ["uint8", "int8"]


@pytest.mark.parametrize("op", ["Add", "Mul"])
def test_two_tensors_are_one_operator(net, op):
    x, y = net.int8(1, 40), net.int8(1, 40)
    net.output(net.shift(net.node(op, net.input(1, 40), net.input(1, 40)), 50000 if op == "Add" else 777))
    graph, (found,) = net.run(x, y)
    assert kinds(graph) == [g.ShiftAdd if op == "Add" else g.ShiftMul]
    assert np.array_equal(found, net.shifted(x + y, 50000) if op == "Add" else net.shifted(x * y, 777))


def test_sums_broadcast_and_have_offsets(net):
    x, y = net.int8(1, 3, 2, 5), net.int8(5)
    total = net.node("Add", net.input(1, 3, 2, 5), net.input(5))
    net.output(net.shift(total, 60000), net.shift(total, 60000, 12345))
    graph, (plain, offset) = net.run(x, y)
    assert np.array_equal(plain, net.shifted(x + y, 60000)) and np.array_equal(offset, net.shifted(x + y, 60000, 12345))
    assert g.ShiftAdd in kinds(graph) and g.RequantShift in kinds(graph)


def test_products_of_two_tensors(net):
    x, y = net.int8(1, 4, 3, 8), net.int8(1, 4, 8, 5)
    net.output(net.shift(net.node("MatMul", net.input(1, 4, 3, 8), net.input(1, 4, 8, 5)), 700))
    graph, (found,) = net.run(x, y)
    assert kinds(graph) == [g.ShiftMatMul] and np.array_equal(found, net.shifted(x @ y, 700))


def test_one_value_is_a_fraction_or_a_table(net):
    x = np.arange(-128, 128)[None]
    name = net.input(1, 256)
    net.output(net.shift(name, 4171896), net.shift(name, 50000, 777), net.shift(name, 65536), net.shift(name, -70000))
    graph, found = net.run(x)
    for got, (mul, add) in zip(found, [(4171896, 0), (50000, 777), (65536, 0), (-70000, 0)]):
        assert np.array_equal(got, net.shifted(x, mul, add))
    assert kinds(graph) == [g.ShiftRequantize, g.Lookup, g.Lookup, g.Reshape]  # nothing but a copy of what stays


def test_more_levels_than_int8_has(net):
    x, w = net.int8(5, 24), net.int8(24, 20)
    y = net.shift(net.node("MatMul", net.input(5, 24), net.const(w)), 3000, levels=1 << 16)
    net.output(y, net.shift(y, 123, div=1 << 12))
    graph, (wide, narrow) = net.run(x)
    wanted = net.shifted(x @ w, 3000, 0, 16, -(1 << 15), (1 << 15) - 1)
    assert np.array_equal(wide, wanted) and np.array_equal(narrow, net.shifted(wanted, 123, 0, 12))
    assert [t.dtype for t in graph.outputs] == ["int32", "int8"]


def test_a_movement_of_sums_comes_after_their_shift(net):
    x, w = net.int8(1, 6, 24), net.int8(24, 20)
    y = net.node("MatMul", net.input(1, 6, 24), net.const(w))
    net.output(net.shift(net.node("Transpose", y, perm=[0, 2, 1]), 700))
    graph, (found,) = net.run(x)
    assert kinds(graph).count(g.QDense) == 1 and np.array_equal(found, net.shifted(x @ w, 700).transpose(0, 2, 1))


def test_convolutions(net):
    x, w, bias = net.int8(1, 3, 6, 5), net.int8(8, 3, 3, 3), net.rng.integers(-900, 900, 8)
    y = net.node("Conv", net.input(1, 3, 6, 5), net.const(w), net.const(bias), pads=[1, 1, 1, 1], strides=[2, 1])
    net.output(net.shift(y, np.full((1, 8, 1, 1), 500), np.full((1, 8, 1, 1), 500 * 7)))
    graph, (found,) = net.run(x)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2]
    sums = np.einsum("nchwij,ocij->nohw", windows, w) + bias[:, None, None]
    assert kinds(graph) == [g.QConv2d] and np.array_equal(found, net.shifted(sums, 500, 3500))


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"div": 0}, "has div = 0 and 256 levels"),
        ({"levels": 1}, "has div = 65536 and 1 levels"),
        ({"mul": 0.5}, "has factors of 0.5, which is no integer of 32 bits"),
        ({"add": np.inf}, "has offsets of inf"),
    ],
)
def test_numbers_that_are_refused(net, facts, message):
    net.output(net.shift(net.input(1, 4), **facts))
    with pytest.raises(UnsupportedError, match=message):
        net.graph()


def test_factors_that_are_computed_are_refused(net):
    net.output(net.node("RequantShift", net.input(1, 4), net.input(1), net.const(0), div=2, n_levels=4, signed=1))
    with pytest.raises(UnsupportedError, match="has factors that are not constant"):
        net.graph()


@pytest.mark.parametrize("levels", [256, 1 << 16])
def test_sums_that_move_2001_times_before_they_are_requantised(net, levels):
    w, x = net.rng.integers(-8, 8, (6, 4)), net.rng.integers(-128, 128, (3, 6))
    y = net.node("MatMul", net.input(3, 6), net.const(w))
    for _ in range(2001):
        y = net.node("Transpose", y, perm=[1, 0])
    net.output(net.shift(y, 700, levels=levels))
    (found,) = reference.run(net.graph(), {"x0": x.astype(np.int8)})[0].values()
    np.testing.assert_array_equal(found, net.shifted((x @ w).T, 700, low=-levels // 2, high=levels // 2 - 1))


def half_away(x, divisor):
    return np.sign(x) * ((np.abs(x) + divisor // 2) // divisor)


@pytest.mark.parametrize("op", ["IntegerMean", "ReduceMean", "ReduceSum"])
@pytest.mark.parametrize(("axes", "keep"), [([2, 3], 0), ([1], 1), ([-1], 0), (2, 1)])
def test_means_and_sums(net, op, axes, keep):
    x, along = net.int8(2, 3, 5, 4), tuple(np.atleast_1d(axes).tolist())
    y = net.node(op, net.input(2, 3, 5, 4), axes=axes, keepdims=keep)
    net.output(y, net.shift(y, 70000))
    _, (found, narrow) = net.run(x)
    sums = x.sum(along, keepdims=bool(keep))
    count = x.size // x.sum(along).size
    up = op == "ReduceMean" and count == 4 and not keep  # a power of two, whose dimension goes: a shift
    wanted = sums if op == "ReduceSum" else (sums + count // 2) // count if up else half_away(sums, count)
    assert np.array_equal(found, wanted) and np.array_equal(narrow, net.shifted(wanted, 70000))


def test_quotients_of_two_tensors(net):
    """Within int32, and where the numerator leaves it."""
    x, y = net.int8(1, 4, 6), np.arange(4).reshape(1, 4, 1)
    a, b = net.input(1, 4, 6), net.input(1, 4, 1)
    net.output(net.node("IntegerDiv", a, b, Delta=8, eta=16, eps=1))
    net.output(net.node("IntegerDiv", net.node("Mul", a, net.const(1 << 10)), b, Delta=1000, eta=50, eps=7))
    last = [net.const(v) for v in (900, -31, 1 << 10)]
    net.output(net.node("RQIntegerDiv", a, b, *last, Delta=8, eta=16, eps=1, n_levels=256, signed=1))
    _, found = net.run(x, y)
    assert np.array_equal(found[0], half_away(128 * x, 16 * y + 1))
    assert np.array_equal(found[1], half_away((50000 << 10) * x, 50 * y + 7))
    assert np.array_equal(found[2], net.shifted(found[0], 900, -31, 10))


def ita(x, levels):
    below = (x.max(-1, keepdims=True) - x + 16) >> 5
    return (levels - 1) * 256 // (256 >> below).sum(-1, keepdims=True) >> below


def ita_partial(row, width, levels):
    most, total = -128, 0
    for k in range(0, len(row), width):
        group = [int(v) for v in row[k : k + width]]
        if max(group) > most:
            total, most = total >> ((max(group) - most + 16) >> 5), max(group)
        total += sum(256 >> ((most - v + 16) >> 5) for v in group)
    return [(levels // 2 - 1) * 256 // total >> ((most - int(v) + 16) >> 5) for v in row]


def test_the_softmax_of_ita(net):
    x = net.int8(1, 2, 5, 48)
    x[0, 0, 0] = -128
    y = net.node("ITAMax", net.input(1, 2, 5, 48), n_levels=256)
    part = net.node("ITAPartialMax", "x0", n_levels=[256.0], group_width=16)
    net.output(y, part, net.shift(y, 1 << 15, signed=0))
    _, (whole, partial, narrow) = net.run(x)
    assert np.array_equal(whole, ita(x, 256)) and np.array_equal(narrow, net.shifted(whole, 1 << 15, 0, 16, 0, 255))
    assert np.array_equal(partial.reshape(10, 48), [ita_partial(row, 16, 256) for row in x.reshape(10, 48)])


def test_a_norm_that_only_scales(net):
    x, weight, bias = net.int8(1, 4, 6), net.int8(6), net.rng.integers(-9999, 9999, 6)
    attrs = {"D": [1 << 16], "mul": [425], "n_levels": [256]}
    net.output(net.node("iNoNorm", net.input(1, 4, 6), net.const(weight), net.const(bias), **attrs))
    each = [net.const(np.broadcast_to(v, (4, 6)).reshape(-1)) for v in (weight, bias)]
    net.output(net.node("iNoNorm", "x0", *each, **attrs))
    _, found = net.run(x)
    wanted = np.clip(((x * weight + bias) * 425) >> 16, -128, 127)
    assert np.array_equal(found[0], wanted) and np.array_equal(found[1], wanted)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda n, x: n.node("ITAMax", x, axis=1, n_levels=256), "is not along the last axis"),
        (lambda n, x: n.node("ITAPartialMax", x, n_levels=256, group_width=5), "has groups of 5 of 16; 1 to 64 whole"),
        (lambda n, x: n.node("iNoNorm", x, x, x, D=4, mul=1, n_levels=256), "has weights that are not constant"),
        (lambda n, x: n.node("iNoNorm", x, n.const(1), n.const(1), D=0, mul=1, n_levels=9), "has D = 0 and 9 levels"),
        (lambda n, x: n.node("Conv", x, n.node("Mul", x, x)), "is not on int8 images with constant weights"),
        (lambda n, x: n.node("MaxPool", n.node("Mul", x, x), kernel_shape=[2]), "values of more than 8 bits"),
        (lambda n, x: n.node("GlobalAveragePool", x), "GlobalAveragePool 'GlobalAveragePool_0' is not supported"),
        (lambda n, x: n.node("Clip", x, x), "has bounds that are not constant"),
    ],
)
def test_what_is_refused(net, make, message):
    net.output(net.shift(make(net, net.input(1, 2, 16))))
    with pytest.raises(UnsupportedError, match=message):
        net.graph()


def convolved(x, w, stride, pad, dilation, groups):
    """Sums by Python's loops over outputs and taps."""
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    (n, _, h, width), (o, c, kh, kw) = x.shape, w.shape
    size = [(s - (k - 1) * dilation - 1) // stride + 1 for s, k in ((h, kh), (width, kw))]
    found = np.zeros((n, o, *size), np.int64)
    for m, i, j in np.ndindex(o, *size):
        first = m // (o // groups) * c
        seen = x[:, first : first + c, i * stride :, j * stride :]
        seen = seen[:, :, : (kh - 1) * dilation + 1 : dilation, : (kw - 1) * dilation + 1 : dilation]
        found[:, m, i, j] = (seen * w[m]).sum((1, 2, 3))
    return found


@pytest.mark.parametrize(
    ("kernel", "stride", "pad", "dilation", "groups"),
    [(3, 1, 1, 1, 1), (1, 1, 0, 1, 1), (1, 2, 0, 1, 1), (3, 2, 1, 1, 2), (2, 1, 0, 2, 4), (5, 3, 2, 1, 1)],
)
def test_a_convolution_whose_offsets_are_no_multiples_of_its_factors(net, kernel, stride, pad, dilation, groups):
    """As files have it that were trained with batch norms: each channel has a factor and an offset of its own."""
    x, w = net.int8(1, 4, 9, 8), net.int8(8, 4 // groups, kernel, kernel)
    factor, offset = net.rng.integers(-9, 99, (1, 8, 1, 1)), net.rng.integers(-(10**6), 10**6, (1, 8, 1, 1))
    attrs = {"strides": [stride] * 2, "pads": [pad] * 4, "dilations": [dilation] * 2, "group": groups}
    y = net.node("Conv", net.input(1, 4, 9, 8), net.const(w), net.const(np.arange(8)), **attrs)
    net.output(y, net.shift(y, factor, offset), net.shift(y, factor, offset, signed=0))
    _, found = net.run(x)
    sums = convolved(x, w, stride, pad, dilation, groups) + np.arange(8).reshape(-1, 1, 1)
    assert np.array_equal(found[0], sums)
    assert np.array_equal(found[1], net.shifted(sums, factor, offset))
    assert np.array_equal(found[2], net.shifted(sums, factor, offset, 16, 0, 255))


def test_a_convolution_of_unsigned_values_pads_with_zeros(net):
    x, w = net.int8(1, 3, 6, 6), net.int8(5, 3, 3, 3)
    first = net.shift(net.input(1, 3, 6, 6), 1 << 17, signed=0)
    net.output(net.node("Conv", first, net.const(w), pads=[1] * 4))
    _, (found,) = net.run(x)
    assert np.array_equal(found, convolved(np.clip(x * 2, 0, 255), w, 1, 1, 1, 1))


@pytest.mark.parametrize("shape", [(1, 6, 1), (6, 1), (1, 6, 1, 1), (6,)])
@pytest.mark.parametrize("offset", [0, 12345])
def test_rows_are_convolved(net, shape, offset):
    """Factors are one per channel in whatever shape the file has them."""
    x, w, factor = net.int8(1, 4, 9), net.int8(6, 4, 3), net.rng.integers(1, 99, 6)
    y = net.node("Conv", net.input(1, 4, 9), net.const(w), pads=[1, 1], strides=[2])
    net.output(net.shift(y, factor.reshape(shape), offset))
    graph, (found,) = net.run(x)
    padded, sums = np.pad(x, ((0, 0), (0, 0), (1, 1))), np.zeros((1, 6, 5), np.int64)
    for k in range(5):
        sums[..., k] = (padded[:, None, :, 2 * k : 2 * k + 3] * w).sum((2, 3))
    assert np.array_equal(found, net.shifted(sums, factor[:, None], offset))
    assert any(isinstance(op, g.QConv2d) for op in graph.ops) == (not offset)


def test_a_convolution_takes_a_sum_or_a_product_before_it_is_shifted(net):
    x, w, more = net.int8(1, 2, 5, 5), net.int8(4, 2, 1, 1), net.rng.integers(-99, 99, (1, 4, 1, 1))
    y = net.node("Conv", net.input(1, 2, 5, 5), net.const(w))
    added = net.shift(net.node("Add", y, net.const(more)), 500)
    net.output(added, net.shift(net.node("Relu", net.node("Mul", y, net.const(more))), 9))
    graph, (found, product) = net.run(x)
    sums = convolved(x, w, 1, 0, 1, 1)
    assert np.array_equal(found, net.shifted(sums + more, 500)) and isinstance(graph.ops[0], g.QConv2d)
    assert np.array_equal(product, net.shifted(np.maximum(sums * more, 0), 9))
