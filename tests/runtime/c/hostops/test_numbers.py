"""Operators on numbers of any type, and by position, in C."""

import numpy as np
import pytest

RNG = np.random.default_rng(7)
NAN = np.array([[1, np.nan, 3, np.nan], [np.inf, -np.inf, 0.0, -0.0], [-0.0, 0.0, -1e-45, 1e-45]], np.float32)


def few(shape, dtype):
    """Values of which many are equal."""
    return RNG.integers(-3, 4, shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "float32"])
def test_positions_of_extremes(same, dtype):
    x = few((3, 5, 4), dtype)
    for smallest in (False, True):
        for axis, shape in ((0, [5, 4]), (1, [3, 4]), (2, [3, 5])):
            same("arg_max", x, axis=axis, shape=shape, dtype="int64", smallest=smallest)
            same("arg_max", x, axis=axis, shape=shape, dtype="int32", smallest=smallest)
    for positions in (False, True):
        for count in (1, 3, 4):
            same("top_k", x, count=count, positions=positions)


def test_what_is_no_number_is_largest(same):
    for smallest in (False, True):
        for shape, axis in (([3], 1), ([4], 0)):
            same("arg_max", NAN, axis=axis, shape=shape, dtype="int32", smallest=smallest)
    same("top_k", NAN, count=4, positions=True)
    same("top_k", NAN, count=3, positions=False)


@pytest.mark.parametrize("where", ["int32", "int64"])
@pytest.mark.parametrize("dtype", ["int8", "int64", "float32", "bool"])
def test_elements_by_position(same, in_c, where, dtype):
    x = few((4, 5, 6), dtype)
    for axis in range(3):
        same("gather", x, RNG.integers(0, x.shape[axis], (2, 3)).astype(where), axis=axis)
        same("gather", x, np.array(x.shape[axis] - 1).astype(where), axis=axis)
        for wrong in (-1, x.shape[axis]):
            assert in_c("gather", x, np.array([0, wrong]).astype(where), axis=axis) is None
    for depth in (1, 2, 3):
        places = np.stack([RNG.integers(0, n, (2, 2)) for n in x.shape[:depth]], -1).astype(where)
        same("gather_nd", x, places)
        for wrong in (-1, x.shape[depth - 1]):
            places[1, 0, depth - 1] = wrong
            assert in_c("gather_nd", x, places) is None


def test_types(same):
    numbers = ["int32", "int64", "float32"]
    edges = [-128, -1, 0, 1, 127, 255, 256, 32768, 65535, (1 << 31) - 1, -(1 << 31), 1 << 40, (1 << 24) + 1]
    for found in ["int8", "uint8", "int16", "bool", *numbers]:
        x = np.array(edges).astype(found)
        for dtype in ["int8", "uint8", "int16", *numbers]:
            same("cast", x, dtype=dtype)
    x = np.array([1.9, -1.9, -0.5, 3e9, -3e9, 9.3e18, -9.3e18, 1e-45], np.float32)
    for dtype in ["int8", "int32", "int64", "float32"]:
        same("cast", x, dtype=dtype)


def test_integers_of_other_scales(same):
    for found, dtype in ((a, b) for a in ("int8", "int16", "int32") for b in ("int8", "int16", "int32")):
        info = np.iinfo(found)
        x = np.concatenate([[info.min, info.max, 0, -1], RNG.integers(info.min, info.max, 99)]).astype(found)
        for multiplier, exponent in ((0, 0), (1 << 30, 1), (1450798206, -6), ((1 << 31) - 1, 31), (1 << 30, -32)):
            for x_zero_point, zero_point in ((0, 0), (-(1 << 31), (1 << 31) - 1), (300, -(1 << 31))):
                scale = {"multiplier": multiplier, "exponent": exponent}
                points = {"x_zero_point": x_zero_point, "zero_point": zero_point}
                same("rescale_integers", x, **points, **scale, dtype=dtype)
        if found != "int8":
            same("narrow", x)
