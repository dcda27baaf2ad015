"""Softmax along channels as one launch, bit by bit that of the kernel."""

import pytest

from tilewright.compiler.graph import Softmax, Tensor
from tilewright.hw.config import PRESETS

PLUS = PRESETS["pynq_z1_plus"]


def softmax(shape, scale=0.1, beta=1.0, axis=1):
    x, y = Tensor("x", shape, scale=scale), Tensor("y", shape, scale=1 / 256, zero_point=-128)
    return Softmax("op", (x,), y, axis, beta)


@pytest.mark.parametrize("scale", [1e-6, 0.02, 0.1, 1.5])
@pytest.mark.parametrize("shape", [(1, 16, 1, 16), (2, 20, 1, 20), (1, 3, 4, 9), (4, 128, 1, 128), (1, 300, 1, 33)])
def test_every_row_is_that_of_the_kernel(exact, shape, scale):
    exact(softmax(shape, scale), cfg=PLUS)
