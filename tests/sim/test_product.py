import numpy as np
import pytest

from tilewright.sim import product
from tilewright.sim.product import Multiplier

SHAPES = [(3, 5, 7), (392, 144, 64), (196, 576, 80), (1, 4096, 33), (65, 16384, 40), (29, 1024, 300)]


def integers(*shape):
    return np.random.default_rng(len(shape)).integers(-8, 8, shape).astype(np.float32)


@pytest.mark.parametrize("rows, depth, columns", SHAPES)
def test_blocks_give_the_same_product(rows, depth, columns):
    a, b = integers(rows, depth), integers(columns, depth).T
    expected = a.astype(np.int64) @ b.astype(np.int64)
    np.testing.assert_array_equal(product._in_blocks(a, b), expected)
    multiply = Multiplier()
    for _ in range(3):
        np.testing.assert_array_equal(multiply(a, b), expected)


def test_stacks_are_cut_too():
    a, b = integers(3, 60, 128), integers(3, 128, 60)
    np.testing.assert_array_equal(product._in_blocks(a, b), np.matmul(a, b))


def test_a_part_of_a_wider_matrix_is_multiplied_in_place():
    a, b = integers(400, 300), integers(300, 64)
    np.testing.assert_array_equal(product._in_blocks(a[:, 100:228], b[100:228]), np.matmul(a[:, 100:228], b[100:228]))


class Clock:
    """Time that passes only in whole products."""

    def __init__(self):
        self.now = self.whole = 0.0

    def perf_counter(self):
        self.now += 1e-6
        return self.now


def test_disturbed_products_are_cut_into_blocks_ever_longer(monkeypatch):
    clock, ways = Clock(), []
    a, b = integers(400, 100), integers(100, 64)
    real, in_blocks = np.matmul, product._in_blocks

    def whole(x, y, **more):
        if len(x) == 400:
            ways.append("whole")
            clock.now += clock.whole
        return real(x, y, **more)

    def blocked(x, y):
        ways.append("blocks")
        return in_blocks(x, y)

    monkeypatch.setattr(product, "time", clock)
    monkeypatch.setattr(product.np, "matmul", whole)
    monkeypatch.setattr(product, "_in_blocks", blocked)
    multiply = Multiplier()

    def counts(n):
        ways.clear()
        for _ in range(n):
            multiply(a, b)
        return ways.count("whole"), ways.count("blocks")

    assert counts(100) == (99, 1)  # one to know what blocks take
    clock.whole = 8e-3
    assert counts(1 + 64) == (1, 64)
    assert counts(1 + 256) == (1, 256)
    clock.whole = 0.0
    assert counts(100) == (100, 0)
    multiply(a[:3], b)
    assert ways[-1] == "whole"
