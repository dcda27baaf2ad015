"""Networks that begin with an image of float32 values."""

import numpy as np
import pytest

from tilewright.compiler.graph import Graph, QConv2d, Quantize, Tensor, Transpose


@pytest.fixture
def network():
    """A graph: an image of float32 values, its quantisation, one convolution."""

    def make(h=12, w=16, c=3, o=8, scale=0.02351972833275795, zero_point=-18, ties_away=True, n=1):
        scale = float(np.float32(scale))
        x, moved = Tensor("x", (n, h, w, c), "float32"), Tensor("moved", (n, c, h, w), "float32")
        q = Tensor("q", (n, c, h, w), "int8", scale, zero_point)
        y = Tensor("y", (n, o, -(-h // 2), -(-w // 2)), "int8", 0.9, -7)
        weight = np.random.default_rng(3).integers(-99, 99, (o, c, 3, 3)).astype(np.int8)
        facts = {"strides": (2, 2), "pads": (1, 1, h % 2, w % 2)}
        conv = QConv2d("conv", (q,), y, weight, np.full(o, 0.01, np.float32), np.arange(o, dtype=np.int32), **facts)
        ops = Transpose("move", (x,), moved, (0, 3, 1, 2)), Quantize("quantize", (moved,), q, ties_away), conv
        return Graph("g", (x,), (y,), ops)

    return make
