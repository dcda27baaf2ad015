"""A check of one configuration: a small random network, exact on the behavioural model or refused by name."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...compiler import graph as g
from ...compiler.accelerator.layerwise import LayerAccelerator
from ...compiler.accelerator.module import Accelerator
from ...compiler.limits import runs_whole_networks
from ...compiler.network import compile_graph
from ...compiler.target.host import HostCpu, HostModel
from ...compiler.target.module import Target
from ...hw.config import Config
from ...runtime.executable import Executable


def small_network(seed: int, bits: int = 8) -> g.Graph:
    """Convolution, depthwise convolution, pointwise convolution, residual sum, mean and dense layer, all random.

    Weights have `bits` bits.
    """
    rng = np.random.default_rng([seed, 2])
    images, channels, grown, labels = (int(rng.integers(1, most)) for most in (4, 9, 41, 21))
    size, stride = int(rng.integers(4, 11)), int(rng.integers(1, 3))
    small = -(-size // stride)
    x = g.Tensor("x", (images, channels, size, size), scale=0.02, zero_point=-9)
    a, b, c, d = (g.Tensor(name, (images, grown, small, small), scale=0.1, zero_point=z) for name, z in _ZEROS)
    e, f = g.Tensor("e", (images, grown), scale=0.1, zero_point=4), g.Tensor("f", (images, labels), scale=0.3)
    end = (small - 1) * stride + 3 - size - 1  # rows below the image that the last window reads
    around, layer = (1, 1, 1, 1), partial(_linear, rng, 1 << bits - 1)
    ops: tuple[g.Operator, ...] = (
        layer(g.QConv2d, "first", x, a, channels, 3, strides=(stride, stride), pads=(1, 1, end, end)),
        layer(g.QConv2d, "depthwise", a, b, 1, 3, pads=around, groups=grown),
        layer(g.QConv2d, "pointwise", b, c, grown, 1),
        g.Add("residual", (a, c), d),
        g.Mean("mean", (d,), e, (2, 3)),
        layer(g.QDense, "dense", e, f, grown),
    )
    return g.Graph(f"small_{seed}", (x,), (f,), ops)


_SLOW = 1.0  # Hz
_ZEROS = (("a", -128), ("b", -3), ("c", 5), ("d", 0))


def _linear(
    rng: np.random.Generator,
    limit: int,
    kind: type[g.QConv2d] | type[g.QDense],
    name: str,
    x: g.Tensor,
    y: g.Tensor,
    inputs: int,
    kernel: int = 0,
    **facts: Any,
) -> g.Linear:
    """A layer from `x` to `y` with random weights below `limit` and scales, biases beyond 16 bits among them."""
    outputs = y.shape[1]
    weight = rng.integers(-limit, limit, (outputs, inputs, *([kernel] * 2 if kernel else []))).astype(np.int8)
    scales = rng.uniform(0.001, 0.01, outputs).astype(np.float32)
    return kind(name, (x,), y, weight, scales, rng.integers(-40000, 40000, outputs).astype(np.int32), **facts)


def on_accelerator(graph: g.Graph, cfg: Config, *, every_value: bool = False) -> Executable:
    """Compile `graph` for a host so slow that the accelerator runs all that it can. Raises as `compile_graph`."""
    own = Accelerator(cfg) if runs_whole_networks(cfg) else LayerAccelerator(cfg)
    target = Target(cfg.name, (own, HostCpu(HostModel(clock=_SLOW))))
    return compile_graph(graph, cfg, every_value=every_value, target=target)
