"""Operators of the dialect that run in int32, beside numpy's formulas: sums of convolutions, means, ITA's softmax."""

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.hw.errors import UnsupportedError


def shifted(x, mul, add=0, bits=16, low=-128, high=127):
    return np.clip((np.asarray(x, np.int64) * mul + add + ((1 << bits) >> 1)) >> bits, low, high)


def half_away(x, divisor):
    return np.sign(x) * ((np.abs(x) + divisor // 2) // divisor)


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
    assert np.array_equal(found[1], shifted(sums, factor, offset))
    assert np.array_equal(found[2], shifted(sums, factor, offset, 16, 0, 255))


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
    assert np.array_equal(found, shifted(sums, factor[:, None], offset))
    assert any(isinstance(op, g.QConv2d) for op in graph.ops) == (not offset)


def test_a_convolution_takes_a_sum_or_a_product_before_it_is_shifted(net):
    x, w, more = net.int8(1, 2, 5, 5), net.int8(4, 2, 1, 1), net.rng.integers(-99, 99, (1, 4, 1, 1))
    y = net.node("Conv", net.input(1, 2, 5, 5), net.const(w))
    added = net.shift(net.node("Add", y, net.const(more)), 500)
    net.output(added, net.shift(net.node("Relu", net.node("Mul", y, net.const(more))), 9))
    graph, (found, product) = net.run(x)
    sums = convolved(x, w, 1, 0, 1, 1)
    assert np.array_equal(found, shifted(sums + more, 500)) and isinstance(graph.ops[0], g.QConv2d)
    assert np.array_equal(product, shifted(np.maximum(sums * more, 0), 9))


@pytest.mark.parametrize("op", ["IntegerMean", "ReduceMean", "ReduceSum"])
@pytest.mark.parametrize(("axes", "keep"), [([2, 3], 0), ([1], 1), ([-1], 0), (2, 1)])
def test_means_and_sums(net, op, axes, keep):
    x, along = net.int8(2, 3, 5, 4), tuple(np.atleast_1d(axes).tolist())
    y = net.node(op, net.input(2, 3, 5, 4), axes=axes, keepdims=keep)
    net.output(y, net.shift(y, 70000))
    _, (found, narrow) = net.run(x)
    sums = x.sum(along, keepdims=bool(keep))
    wanted = sums if op == "ReduceSum" else half_away(sums, x.size // x.sum(along).size)
    assert np.array_equal(found, wanted) and np.array_equal(narrow, shifted(wanted, 70000))


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
    assert np.array_equal(found[2], shifted(found[0], 900, -31, 10))


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
    assert np.array_equal(whole, ita(x, 256)) and np.array_equal(narrow, shifted(whole, 1 << 15, 0, 16, 0, 255))
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
