"""Layers in float32, in C."""

import numpy as np
import pytest

from tilewright.hw.errors import UnsupportedError

RNG = np.random.default_rng(7)


def real(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def test_convolutions(same):
    for _ in range(12):
        groups, per_group, of_group = RNG.integers(1, 4, 3)
        kernel, strides, dilations = (RNG.integers(1, 4, 2).tolist() for _ in range(3))
        reach = [(k - 1) * d + 1 + int(n) for k, d, n in zip(kernel, dilations, RNG.integers(0, 4, 2))]
        facts = {"strides": strides, "dilations": dilations, "groups": int(groups), "ordered": True}
        facts |= {"pads": RNG.integers(0, 3, 4).tolist(), "bias": real(groups * of_group)}
        weight = real(groups * of_group, per_group, *kernel)
        same("float_conv2d", real(2, groups * per_group, *reach), weight=weight, **facts)


def test_transposed_convolutions(same):
    for pads in ([0, 0, 0, 0], [1, 0, 2, 1], [0, 1, -2, 0], [1, 1, 0, -3]):
        for strides, dilations, groups in (([2, 3], [1, 2], 1), ([1, 1], [2, 1], 2), ([3, 2], [1, 1], 3)):
            facts = {"strides": strides, "dilations": dilations, "groups": groups, "pads": pads, "ordered": True}
            weight, bias = real(6, 2, 3, 3), real(2 * groups)
            same("float_conv_transpose2d", real(2, 6, 4, 5), weight=weight, bias=bias, **facts)


def test_products(same):
    for x, y in (((4, 30), (30, 5)), ((2, 1, 4, 3), (5, 3, 2)), ((1, 1), (1, 1))):
        same("float_matmul", real(*x), real(*y), ordered=True)


def test_pools(same):
    for _ in range(15):
        kernel, strides = RNG.integers(1, 5, 2).tolist(), RNG.integers(1, 4, 2).tolist()
        pads = [int(RNG.integers(0, kernel[k % 2])) for k in range(4)]
        x = real(2, 3, *(k + int(n) for k, n in zip(kernel, RNG.integers(0, 6, 2))))
        facts = {"kernel": kernel, "strides": strides, "pads": pads}
        same("float_average_pool", x, **facts)
        same("float_average_pool", x, **facts, padding_counts=True)
        same("float_max_pool", x, **facts)
        x[RNG.random(x.shape) < 0.2] = np.nan
        same("float_max_pool", x, **facts)


def test_sums_in_the_order_of_a_library_are_refused(in_c):
    facts = {"weight": real(1, 1, 1, 1), "bias": real(1), "strides": [1, 1], "pads": [0] * 4, "dilations": [1, 1]}
    for op, arrays, attrs in (
        ("float_matmul", (real(2, 2), real(2, 2)), {}),
        ("float_conv2d", (real(1, 1, 2, 2),), facts | {"groups": 1}),
        ("float_conv_transpose2d", (real(1, 1, 2, 2),), facts | {"groups": 1, "ordered": False}),
    ):
        with pytest.raises(UnsupportedError, match=f"host operator '{op}' adds products in the order of a library"):
            in_c(op, *arrays, **attrs)
