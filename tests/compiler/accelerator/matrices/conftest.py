"""Products of images of rows."""

import numpy as np
import pytest

from tilewright.compiler.graph import BatchMatMul, Tensor


@pytest.fixture
def matmul():
    """A product of `shape` (matrices, rows, columns, inner) as images; of operands in `same` there is one for all."""

    def make(shape, transposed, zero_points=(0, 0), same=(), constant=False):
        matrices, rows, columns, inner = shape
        count = [1 if k in same else matrices for k in (0, 1)]
        second = (count[1], inner, 1, columns) if transposed else (count[1], columns, 1, inner)
        data = np.random.default_rng(2).integers(-128, 128, second).astype(np.int8) if constant else None
        x = Tensor("x", (count[0], inner, 1, rows), scale=0.1, zero_point=zero_points[0])
        y = Tensor("y", second, scale=0.1, zero_point=zero_points[1], data=data)
        z = Tensor("z", (matrices, columns, 1, rows), scale=0.6 * inner**0.5, zero_point=-7)
        return BatchMatMul("op", (x, y), z, transposed, images=True)

    return make
