"""Layers and pools against their definitions in Python's integers."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from tilewright.hw import rounding
from tilewright.runtime.hostops.layers import (
    conv2d_accumulators,
    conv_transpose2d_accumulators,
    dense_accumulators,
    requantise,
)
from tilewright.runtime.hostops.pooling import average_pool, exact_average_pool, max_pool

RNG = np.random.default_rng(7)


def int8(*shape):
    return RNG.integers(-128, 128, shape).astype(np.int8)


def wrap(acc):
    return (acc + 2**31) % 2**32 - 2**31


@pytest.mark.parametrize("groups, channels, outputs", [(1, 3, 4), (2, 4, 6), (4, 4, 4), (3, 3, 6)])
@pytest.mark.parametrize("strides, dilations, pads", [((1, 2), (2, 1), (1, 0, 2, 3)), ((2, 1), (1, 1), (0, 0, 0, 0))])
def test_convolution(groups, channels, outputs, strides, dilations, pads):
    x, weight = int8(2, channels, 6, 5), int8(outputs, channels // groups, 3, 2)
    bias = RNG.integers(2**31 - 20000, 2**31, outputs).astype(np.int32)  # sums beyond 32 bits wrap
    geometry = {"strides": strides, "dilations": dilations, "pads": pads, "groups": groups}
    acc = conv2d_accumulators(x, weight=weight, bias=bias, x_zero_point=-9, **geometry)
    assert acc.dtype == np.int32
    for n, o, i, j in np.ndindex(*acc.shape):
        total = int(bias[o])
        for c, k, m in product(range(channels // groups), range(3), range(2)):
            row, column = i * strides[0] - pads[0] + k * dilations[0], j * strides[1] - pads[1] + m * dilations[1]
            if 0 <= row < 6 and 0 <= column < 5:
                channel = o // (outputs // groups) * (channels // groups) + c
                total += (int(x[n, channel, row, column]) + 9) * int(weight[o, c, k, m])
        assert acc[n, o, i, j] == wrap(total)


@pytest.mark.parametrize("strides, pads", [((2, 1), (1, 0, 0, 1)), ((3, 2), (0, 1, -2, -1)), ((1, 1), (0, 0, 0, 0))])
def test_transposed_convolution(strides, pads):
    x, weight, bias = int8(2, 3, 4, 3), int8(5, 3, 2, 3), RNG.integers(-999, 999, 5).astype(np.int32)
    geometry = {"strides": strides, "pads": pads}
    acc = conv_transpose2d_accumulators(x, weight=weight, bias=bias, x_zero_point=4, **geometry)
    size = [(n - 1) * s + k - pads[d] - pads[d + 2] for d, (n, s, k) in enumerate(zip((4, 3), strides, (2, 3)))]
    expected = np.zeros((2, 5, *size), np.int64) + bias.reshape(-1, 1, 1)
    for n, c, i, j, o, k, m in product(range(2), range(3), range(4), range(3), range(5), range(2), range(3)):
        row, column = i * strides[0] + k - pads[0], j * strides[1] + m - pads[1]
        if 0 <= row < size[0] and 0 <= column < size[1]:
            expected[n, o, row, column] += (int(x[n, c, i, j]) - 4) * int(weight[o, c, k, m])
    assert acc.dtype == np.int32 and np.array_equal(acc, expected)


def test_dense_layer():
    x, weight, bias = int8(3, 50), int8(4, 50), np.full(4, -(2**31) + 5, np.int32)
    acc = dense_accumulators(x, weight=weight, bias=bias, x_zero_point=100)
    for n, o in np.ndindex(3, 4):
        assert acc[n, o] == wrap(sum((int(a) - 100) * int(w) for a, w in zip(x[n], weight[o])) + int(bias[o]))


def test_exact_mean_of_windows():
    x = int8(1, 2, 6, 5)
    pads, strides = (1, 0, 1, 2), (2, 1)
    y = exact_average_pool(x, kernel=(3, 4), strides=strides, pads=pads, low=-100, high=90)
    for _, c, i, j in np.ndindex(*y.shape):
        top, left = max(0, 2 * i - 1), max(0, j)
        values = x[0, c, top : 2 * i + 2, left : j + 4].astype(int)
        mean = Fraction(int(values.sum()), values.size)
        rounded = int(abs(mean) + Fraction(1, 2)) * (1 if mean >= 0 else -1)
        assert y[0, c, i, j] == min(max(rounded, -100), 90)


def test_windows_clamp():
    x = int8(1, 1, 4, 4)
    y = max_pool(x, kernel=(2, 2), strides=(2, 2), pads=(0, 0, 0, 0), low=-5, high=6)
    assert np.array_equal(y[0, 0], np.clip(x[0, 0].reshape(2, 2, 2, 2).max((1, 3)), -5, 6))
    points, scale = {"x_zero_point": 0, "zero_point": 0}, {"multiplier": 1 << 30, "exponent": -1, "low": -5, "high": 6}
    y = average_pool(x, kernel=(2, 2), strides=(2, 2), contract="double", **points, **scale)
    assert y.min() >= -5 and y.max() <= 6


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 3)], ids=str)
@pytest.mark.parametrize("contract", ["double", "single"])
def test_requantisation_per_channel(shape, contract):
    acc = RNG.integers(-(2**20), 2**20, shape).astype(np.int32)
    constants = {"multiplier": np.array([2**30, 2**31 - 1, 0]), "exponent": np.array([-9, -13, 0])}
    result = requantise(acc, **constants, zero_point=-3, low=-50, high=60, contract=contract)
    for c in range(3):
        m, e = constants["multiplier"][c], constants["exponent"][c]
        assert np.array_equal(result[:, c], rounding.requantise(acc[:, c], m, e, -3, -50, 60, contract))


def test_max_pooling_never_takes_the_padding():
    x = np.full((1, 1, 2, 2), -128, np.int8)
    assert (max_pool(x, kernel=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1]) == -128).all()


def test_average_pooling_removes_the_zero_point():
    x = np.full((1, 1, 4, 4), 9, np.int8)
    attrs = {"kernel": [2, 4], "strides": [2, 1], "x_zero_point": 5, "zero_point": -1}
    y = average_pool(x, **attrs, multiplier=2**30, exponent=-2)  # one eighth
    assert y.shape == (1, 1, 2, 1) and (y == 4 * 8 // 8 - 1).all()
