"""RequantShift behind every kind of value: one operator where integers allow it, each exact."""

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler import reference
from tilewright.hw.errors import UnsupportedError


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
    with pytest.raises(UnsupportedError, match="factors or offsets that are not constant"):
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
