"""Means over channels as one launch against the reference."""

import pytest

from tilewright.compiler.graph import Mean, Tensor


@pytest.mark.parametrize("zero_point", [0, -128, 77])
@pytest.mark.parametrize("shape", [(1, 16, 1, 16), (2, 20, 1, 20), (1, 3, 40, 9), (1, 128, 1, 128), (3, 600, 1, 7)])
def test_every_mean_is_that_of_the_reference(exact, shape, zero_point):
    x = Tensor("x", shape, scale=0.1, zero_point=zero_point)
    y = Tensor("y", (shape[0], 1, *shape[2:]), scale=0.02, zero_point=-5)
    exact(Mean("op", (x,), y, (1,)))
