"""Operators of Deeploy's dialect, in C."""

import numpy as np
import pytest

RNG = np.random.default_rng(7)


def some(shape, dtype="int8", bound=None):
    info = np.iinfo(dtype)
    low, high = (info.min, info.max) if bound is None else (-bound, bound)
    return RNG.integers(low, high, shape, endpoint=True).astype(dtype)


def test_sums_that_wrap(same):
    for x, y in (("int8", "int8"), ("int32", "int8"), ("int8", "int32"), ("int32", "int32")):
        for a, b in (((4, 6), (6, 5)), ((2, 1, 4, 3), (5, 3, 2)), ((1, 1), (1, 1))):
            same("integer_matmul", some(a, x), some(b, y))


@pytest.mark.parametrize("shift", [0, 1, 16, 31])
def test_shifts(same, shift):
    edges = np.array([-(1 << 31), (1 << 31) - 1, -1, 0, 1, 1 << 16, -(1 << 16)], np.int32)
    x, factor = np.concatenate([edges, some(30, "int32")]), np.concatenate([edges, some(3, "int32")])
    for offset in (0, 1 << 15, -(1 << 31)):
        inputs = x, factor[:, None], np.full(1, offset, np.int32)
        same("requant_shift", *inputs, shift=shift, low=-128, high=127)
        same("requant_shift", *inputs, shift=shift, low=0, high=255, zero_point=-128, dtype="int8")
        same("requant_shift", *inputs, shift=shift, low=-(1 << 31), high=(1 << 31) - 1, zero_point=-128, dtype="int32")


@pytest.mark.parametrize("dtype, bound", [("int8", None), ("int32", 1 << 20)])
def test_softmax(same, dtype, bound):
    for quadratic, linear, constant, period in ((1, 86, 3888, 64), (1, 0, 0, 1), (-3, 5, 7, 100), (1, 84, -9999, 62)):
        facts = {"quadratic": quadratic, "linear": linear, "constant": constant, "period": period}
        for levels in (256, 1, 1 << 16):
            scale = {"multiplier": 1791197184, "exponent": -1}
            same("integer_softmax", some((2, 3, 17), dtype, bound), **facts, levels=levels, **scale)
            same("integer_softmax", some((4, 1), dtype, bound), **facts, levels=levels, **scale, zero_point=-3, low=-9)


@pytest.mark.parametrize("dtype, bound", [("int8", None), ("int32", 1 << 20)])
def test_norm(same, dtype, bound):
    for size in (1, 64, 100):
        for x in (some((2, 3, size), dtype, bound), np.zeros((1, size), dtype), np.full((1, size), -128, dtype)):
            weight, bias = some(size, "int32", 1 << 24), some(size, "int32", 1 << 20)
            same("integer_norm", x, weight, shift=16)
            same("integer_norm", x, weight, bias, shift=9, low=-9, high=9, x_zero_point=4)
            same("integer_norm", x, weight, bias, shift=0)
