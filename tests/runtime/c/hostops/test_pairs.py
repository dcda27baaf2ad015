"""Operators on two arrays, in C."""

import itertools

import numpy as np
import pytest

from tilewright.runtime.hostops.numbers import COMPARISONS

RNG = np.random.default_rng(7)
SHAPES = [((2, 3, 4), (2, 3, 4)), ((2, 3, 4), (3, 1)), ((6, 1), (1, 4)), ((1,), (2, 5)), ((1, 1), (1, 1)), ((), (3,))]
MULTIPLIERS = [0, 1 << 30, (1 << 31) - 1, 1518500250, 1095936512]


def some(shape):
    """int8 values, the extremes among them."""
    return RNG.choice(np.array([-128, -127, -1, 0, 1, 126, 127, *range(-128, 128)], np.int8), shape)


def points(count):
    return RNG.choice([-128, -3, 0, 5, 127], count).tolist()


def scales(count, low=-32, high=31):
    return {
        "multipliers": RNG.choice(MULTIPLIERS, count).tolist(),
        "exponents": RNG.integers(low, high, count, endpoint=True).tolist(),
    }


def every_pair():
    values = np.arange(-128, 128).astype(np.int8)
    return values[:, None], values


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_shapes(same, shapes):
    x, y = map(some, shapes)
    same("add", x, y, zero_points=[3, -4, 5], **scales(3, -20, 0), sign=1, shift=20)
    same("multiply", x, y, zero_points=[3, -4, 5], multiplier=1 << 30, exponent=-5, low=-9, high=100)
    same("maximum", x, y)
    same("minimum", x, y)
    same("select", RNG.integers(0, 2, shapes[0]).astype(bool), x, y)
    same("select", RNG.integers(0, 2, shapes[1]).astype(bool), x.astype(np.int64), y.astype(np.int64))


def test_arithmetic(same):
    x, y = every_pair()
    for _ in range(12):
        clamp = {"low": int(RNG.integers(-128, 0)), "high": int(RNG.integers(0, 128))}
        one = {k[:-1]: v[0] for k, v in scales(1).items()}
        shift = int(RNG.integers(0, 23))
        same("add", x, y, zero_points=points(3), **scales(3), sign=int(RNG.choice([-1, 1])), shift=shift, **clamp)
        same("multiply", x, y, zero_points=points(3), **one, **clamp)
        same("divide", x, y, zero_points=points(3), **one, **clamp)
        same("prelu", x, y, zero_points=points(3), **scales(2))
        same("squared_difference", x, y, zero_points=points(3), **scales(3), shift=int(RNG.integers(0, 8)))


def test_tables_of_pairs(same):
    table = RNG.integers(-128, 128, (256, 256)).astype(np.int8)
    x, y = every_pair()
    for first, second in itertools.product((np.int8, np.uint8), repeat=2):
        same("lookup_pair", x.view(first), y.view(second), table=table)


@pytest.mark.parametrize("function", COMPARISONS)
def test_comparisons(same, function):
    x, y = every_pair()
    same("compare_int8", x, y, function=function, zero_points=points(2), **scales(2, -9, 0))
    same("compare_int8", x, y, function=function, zero_points=[0, 0], multipliers=[1 << 30] * 2, exponents=[1, 1])
    for dtype in ("int32", "int64", "float32"):
        a, b = x.astype(dtype), y.astype(dtype)
        same("compare", a, b, function=function)
    for dtype in (np.int32, np.int64):
        edges = np.array([np.iinfo(dtype).min, -1, 0, 1, np.iinfo(dtype).max], dtype)
        same("compare", edges[:, None], edges, function=function)
    edges = np.array([np.nan, -np.inf, np.inf, 0.0, -0.0, 1e-45, -1e-45, 3.4e38], np.float32)
    same("compare", edges[:, None], edges, function=function)
    truths = np.array([False, True])
    same("compare", truths[:, None], truths, function=function)
