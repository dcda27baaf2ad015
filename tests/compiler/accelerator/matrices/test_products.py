"""Products of two computed matrices, as one launch against the reference."""

import pytest

from tilewright.hw.config import PRESETS

SYMMETRIC, SKEWED, LARGEST = (0, 0), (-128, 3), (5, -128)


@pytest.mark.parametrize("zero_points", [SYMMETRIC, SKEWED, LARGEST])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("shape", [(1, 16, 16, 16), (2, 17, 16, 8), (3, 5, 7, 19), (2, 64, 48, 32), (16, 1, 33, 4)])
def test_products(exact, matmul, shape, transposed, zero_points):
    exact(matmul(shape, transposed, zero_points))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("shape", [(1, 600, 40, 24), (1, 30, 40, 3000), (1, 20, 3000, 24)])
def test_operands_larger_than_a_scratchpad(exact, matmul, shape, transposed):
    exact(matmul(shape, transposed, SKEWED))


@pytest.mark.parametrize("same", [(0,), (1,)])
@pytest.mark.parametrize("transposed", [False, True])
def test_one_operand_for_all_matrices(exact, matmul, transposed, same):
    exact(matmul((3, 20, 30, 20), transposed, LARGEST, same))


def test_a_constant_operand(exact, matmul):
    exact(matmul((2, 10, 20, 30), True, SKEWED, constant=True))


def test_blocks_of_another_size(exact, matmul):
    exact(matmul((2, 9, 13, 6), False, SKEWED), cfg=PRESETS["tiny"])
