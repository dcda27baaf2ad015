"""Layers of weights, in C."""

import numpy as np
import pytest

RNG = np.random.default_rng(7)


def int8(*shape):
    return RNG.integers(-128, 128, shape).astype(np.int8)


def weights(kind, *shape):
    return int8(*shape) if kind == "int8" else RNG.integers(-255, 256, shape).astype(np.int16)


def int32(*shape):
    return RNG.integers(-(1 << 31), 1 << 31, shape).astype(np.int32)


@pytest.mark.parametrize("kind", ["int8", "int16"])
def test_convolutions(same, kind):
    for _ in range(15):
        groups, per_group, of_group = RNG.integers(1, 4, 3)
        kernel, strides, dilations = (RNG.integers(1, 4, 2).tolist() for _ in range(3))
        pads = RNG.integers(0, 3, 4).tolist()
        reach = [(k - 1) * d + 1 + int(n) for k, d, n in zip(kernel, dilations, RNG.integers(0, 4, 2))]
        facts = {"weight": weights(kind, groups * of_group, per_group, *kernel), "bias": int32(groups * of_group)}
        facts |= {"x_zero_point": int(RNG.integers(-128, 128)), "strides": strides, "pads": pads}
        x = int8(2, groups * per_group, *reach)
        same("conv2d_accumulators", x, **facts, dilations=dilations, groups=int(groups))


@pytest.mark.parametrize("kind", ["int8", "int16"])
def test_transposed_convolutions(same, kind):
    for pads in ([0, 0, 0, 0], [1, 0, 2, 1], [0, 1, -2, 0], [1, 1, 0, -3]):
        for strides, kernel in (([2, 3], [3, 4]), ([1, 1], [4, 3]), ([3, 2], [3, 2])):
            facts = {"weight": weights(kind, 5, 3, *kernel), "bias": int32(5), "x_zero_point": -9}
            same("conv_transpose2d_accumulators", int8(2, 3, 4, 5), **facts, strides=strides, pads=pads)


@pytest.mark.parametrize("kind", ["int8", "int16"])
def test_dense(same, kind):
    for rows, features, units in ((3, 6, 5), (1, 1, 1), (2, 300, 4)):
        facts = {"weight": weights(kind, units, features), "bias": int32(units), "x_zero_point": 127}
        same("dense_accumulators", int8(rows, features), **facts)
        scale = {"multiplier": RNG.integers(1 << 30, 1 << 31, units), "exponent": RNG.integers(-20, 1, units)}
        same("dense_int16", int8(rows, features), **facts, **scale)
        same("dense_int16", int8(rows, features), **facts, **scale, dtype="int32")


@pytest.mark.parametrize("contract", ["double", "single"])
@pytest.mark.parametrize("shape", [(2, 6), (2, 6, 3), (1, 6, 4, 5)], ids=str)
def test_channels(same, shape, contract):
    multiplier = np.array([0, 1 << 30, (1 << 31) - 1, 1518500250, 1095936512, (1 << 31) - 1])
    for exponent in ([-32, -9, 0, 1, 20, 31], [-9, -10, -11, -12, -13, -31]):
        facts = {"multiplier": multiplier, "exponent": np.array(exponent), "zero_point": -3, "low": -50}
        same("requantise", int32(*shape), **facts, contract=contract)
        same("requantise", np.full(shape, -(1 << 31), np.int32), **facts, contract=contract)
        same("requantise", np.full(shape, (1 << 31) - 1, np.int32), **facts, contract=contract)


def test_filters(same):
    for filters, taps, units in ((4, 3, 2), (6, 9, 6), (1, 1, 1)):
        weight, bias = (RNG.integers(-(1 << 15), 1 << 15, (filters, taps)).astype(np.int16), int32(units))
        window = RNG.integers(-(1 << 15), 1 << 15, (3, filters, taps)).astype(np.int16)
        facts = {"weight": weight, "bias": bias, "multiplier": 1095936512, "exponent": -20, "zero_point": 5}
        same("filter_int16", window, **facts)
        same("filter_int16", np.full_like(window, -(1 << 15)), **facts)
