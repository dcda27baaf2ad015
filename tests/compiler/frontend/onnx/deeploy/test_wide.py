"""Operators of the dialect that run in int32, beside numpy's formulas: means, ITA's softmax."""

import numpy as np
import pytest

from tilewright.hw.errors import UnsupportedError


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
