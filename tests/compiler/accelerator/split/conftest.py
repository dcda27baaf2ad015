"""Layers whose last channels are ternary."""

import numpy as np
import pytest

from tilewright.compiler.conv_shape import ConvShape
from tilewright.compiler.graph import QConv2d, QDense, Tensor


@pytest.fixture
def divided():
    """A layer of `shape` with `ternary` channels at the end; a dense one where `dense`, else a convolution."""

    def make(shape: ConvShape, ternary: int, *, dense=False, zero_points=(-7, 5), seed=3, name="op", x=None):
        rng = np.random.default_rng(seed)
        weight = rng.integers(-128, 128, (shape.o, shape.c, *shape.kernel)).astype(np.int8)
        weight[shape.o - ternary :] = rng.integers(-1, 2, (ternary, shape.c, *shape.kernel))
        scale = rng.uniform(0.001, 0.01, shape.o).astype(np.float32)
        scale[shape.o - ternary :] *= 60  # so that their outputs fill int8 as those of the others
        bias = rng.integers(-1000, 1000, shape.o).astype(np.int32)
        sizes = ((), ()) if dense else (shape.size, shape.output)
        x = x or Tensor(f"{name}.x", (shape.n, shape.c, *sizes[0]), scale=0.05, zero_point=zero_points[0])
        y_scale = 0.02 * (shape.c * shape.taps) ** 0.5
        y = Tensor(f"{name}.y", (shape.n, shape.o, *sizes[1]), scale=y_scale, zero_point=zero_points[1])
        if dense:
            return QDense(name, (x,), y, weight[:, :, 0, 0], scale, bias, -120, ternary=ternary)
        facts = {"strides": shape.strides, "pads": shape.pads, "dilations": shape.dilations, "ternary": ternary}
        return QConv2d(name, (x,), y, weight, scale, bias, -120, **facts)

    return make
