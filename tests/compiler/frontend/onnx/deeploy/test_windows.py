"""Convolutions of the dialect that are summed in int32, beside Python's loops over outputs and taps."""

import numpy as np
import pytest

from tilewright.compiler import graph as g


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
