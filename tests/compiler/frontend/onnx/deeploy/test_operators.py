"""Every operator of the dialect alone, beside its formula on Python's integers or numpy's."""

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.hw.errors import UnsupportedError

EVERY = np.arange(-128, 128)[None]


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
        (lambda n, x: n.node("iSoftmax", x, axis=1, log2=3), "is not along the last axis"),
        (lambda n, x: n.node("iRMSNorm", x, x, D=4, n_levels=256), "has weights that are not constant"),
        (lambda n, x: n.node("iRMSNorm", x, n.const(1), D=0, n_levels=256), "has D = 0 and 256 levels"),
        (lambda n, x: n.node("TrueIntegerDiv", x, Delta=4, eta=1, eps=-2, y=2), "divides by 0"),
        (lambda n, x: n.node("iHardswish", n.node("Mul", x, x), three=1, six=2, one_over_six=1), "more than 8 bits"),
        (lambda n, x: n.node("MatMul", x, n.const([1, 2, 3])), "multiplies by a vector"),
        (lambda n, x: n.node("RequantShift", x), "factors or offsets that are not constant"),
    ],
)
def test_nodes_that_are_refused(net, make, message):
    net.output(net.shift(make(net, net.input(1, 2, 3))))
    with pytest.raises(UnsupportedError, match=message):
        net.graph()
