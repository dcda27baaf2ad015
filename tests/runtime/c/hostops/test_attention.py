"""Operators of transformers, in C."""

import numpy as np
import pytest

RNG = np.random.default_rng(7)


def int8(*shape):
    return RNG.integers(-128, 128, shape).astype(np.int8)


def at(position):
    return np.array([position], np.int32)


def test_products_of_matrices(same):
    for scale in ({"multiplier": 1 << 30, "exponent": -7}, {"multiplier": 16908288, "exponent": 0}):
        facts = {"zero_points": [3, -5, 7], **scale}
        for x, y in (((4, 6), (6, 5)), ((2, 1, 4, 3), (5, 3, 2)), ((3, 2, 1, 1), (1, 1)), ((2, 3, 4), (2, 4, 2))):
            same("batch_matmul", int8(*x), int8(*y), **facts)
            transposed = int8(*y[:-2], y[-1], y[-2])
            same("batch_matmul", int8(*x), transposed, **facts, transposed=True)
        same("batch_matmul", int8(3, 6, 1, 4), int8(3, 5, 1, 6), **facts, images=True)
        same("batch_matmul", int8(3, 6, 1, 4), int8(3, 6, 1, 5), **facts, images=True, transposed=True)
        same("batch_matmul", int8(1, 6, 1, 4), int8(3, 5, 1, 6), **facts, images=True)
    extremes = np.full((2, 600), -128, np.int8)
    same("batch_matmul", extremes, extremes.T.copy(), zero_points=[127, 127, 0], multiplier=1 << 30, exponent=-17)


@pytest.mark.parametrize("width", [1, 2, 64, 100, 300])
def test_norm(same, width):
    multiplier, exponent = RNG.integers(1 << 30, 1 << 31, width), RNG.integers(-22, -14, width)
    for x in (int8(2, 3, width), np.zeros((1, width), "i1"), np.full((1, width), -128, "i1"), np.ones(width, "i1")):
        same("rms_norm", x, multiplier=multiplier, exponent=exponent)


def test_rotation(same, in_c):
    angles = RNG.uniform(0, 7, (9, 4))
    tables = {
        "cosine": np.round(np.cos(angles) * 16384).astype("i2"),
        "sine": np.round(np.sin(angles) * 16384).astype("i2"),
    }
    for place in (0, 5, 8):
        same("rotate", int8(1, 24), at(place), **tables)
        same("rotate", np.full((1, 8), -128, np.int8), at(place), **tables)
    assert in_c("rotate", int8(1, 8), at(-1), **tables) is in_c("rotate", int8(1, 8), at(9), **tables) is None


def test_caches(same, in_c):
    for place in (0, 4, 5, 13, -1):
        same("write_rows", int8(1, 3, 5, 1), int8(1, 3), at(place))
    for place in (0, 3, 4, 99):
        same("write_columns", int8(1, 100, 3, 1), int8(1, 3, 4, 1), at(place))
    for place in (-1, 100):
        assert in_c("write_columns", int8(1, 100, 3, 1), int8(1, 3, 4, 1), at(place)) is None


GROUPS = [
    {"key_groups": [0] * 4, "value_groups": [0] * 8},
    {"key_groups": [0, 0, 3, -1], "value_groups": [3, 0, -1, 0, 3]},
]


@pytest.mark.parametrize("groups", GROUPS, ids=str)
@pytest.mark.parametrize("context, seen", [(112, 100), (8, 8), (1, 1), (1024, 1024), (8192, 600)])
def test_attention(same, in_c, groups, context, seen):
    width, lanes = 2 * len(groups["key_groups"]), len(groups["value_groups"])
    facts = {**groups, "seen": seen, "multipliers": [1 << 30, 1184974977], "exponents": [-6, -23]}
    queries, keys, values = int8(1, 3 * width), int8(1, width, context, 1), int8(1, context, lanes, 1)
    for place in {0, seen // 2, seen - 1}:
        same("attention", queries, keys, values, at(place), **facts)
    same("attention", 0 * queries, keys, values, at(seen - 1), **facts)
    for place in (-1, seen):
        assert in_c("attention", queries, keys, values, at(place), **facts) is None
