"""Products of two computed matrices, as one launch against the reference."""

import numpy as np
import pytest

from tilewright.compiler.graph import BatchMatMul, Tensor
from tilewright.hw.config import PRESETS

SYMMETRIC, SKEWED, LARGEST = (0, 0), (-128, 3), (5, -128)


def matmul(matrices, rows, columns, inner, transposed, zero_points=SYMMETRIC, same=(), constant=False):
    """A product of `matrices` as images; of the operands in `same` there is one for all."""
    count = [1 if k in same else matrices for k in (0, 1)]
    second = (count[1], inner, 1, columns) if transposed else (count[1], columns, 1, inner)
    data = np.random.default_rng(2).integers(-128, 128, second).astype(np.int8) if constant else None
    x = Tensor("x", (count[0], inner, 1, rows), scale=0.1, zero_point=zero_points[0])
    y = Tensor("y", second, scale=0.1, zero_point=zero_points[1], data=data)
    z = Tensor("z", (matrices, columns, 1, rows), scale=0.6 * inner**0.5, zero_point=-7)
    return BatchMatMul("op", (x, y), z, transposed, images=True)


@pytest.mark.parametrize("zero_points", [SYMMETRIC, SKEWED, LARGEST])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("shape", [(1, 16, 16, 16), (2, 17, 16, 8), (3, 5, 7, 19), (2, 64, 48, 32), (16, 1, 33, 4)])
def test_products(exact, shape, transposed, zero_points):
    exact(matmul(*shape, transposed, zero_points))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("shape", [(1, 600, 40, 24), (1, 30, 40, 3000), (1, 20, 3000, 24)])
def test_operands_larger_than_a_scratchpad(exact, shape, transposed):
    exact(matmul(*shape, transposed, SKEWED))


@pytest.mark.parametrize("same", [(0,), (1,)])
@pytest.mark.parametrize("transposed", [False, True])
def test_one_operand_for_all_matrices(exact, transposed, same):
    exact(matmul(3, 20, 30, 20, transposed, LARGEST, same))


def test_a_constant_operand(exact):
    exact(matmul(2, 10, 20, 30, True, SKEWED, constant=True))


def test_blocks_of_another_size(exact):
    exact(matmul(2, 9, 13, 6, False, SKEWED), cfg=PRESETS["tiny"])
