"""Layers of ResNet-18 that go the way of a network's operators: the first convolution, the maximum and the sums.

Where a configuration has the extensions, the first convolution reads an image that the host has laid out (see
lowering/folded.py), the multiplier array sorts what the maximum compares (lowering/maxima.py), and computes sums
(lowering/sums.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from ..hw.config import Config
from ..hw.rounding import requantise
from ..runtime import kernels, layout
from ..runtime.program import Program
from . import graph as g
from .forms import weighted_sum
from .lowering import elementwise, linear, pooling
from .lowering.fold import best_fold
from .lowering.folded import host_step
from .lowering.maxima import tiles_of
from .lowering.recording import Recording, packed_shape
from .lowering.sums import possible
from .operators import ADD_SHIFT
from .workloads import Layer, accumulators

_SCALES, _ZERO_POINTS = (0.05, 0.04, 0.07), (-3, 5, -10)  # of the operands of a sum, and of the sum


@lru_cache(maxsize=16)
def sum_of(c: Layer) -> g.Add:
    """A sum of two tensors of different scales."""
    tensors = (
        g.Tensor(name, (1, c.co, c.size, c.size), scale=scale, zero_point=zero)
        for name, scale, zero in zip(("x", "y", "out"), _SCALES, _ZERO_POINTS)
    )
    x, y, out = tensors
    return g.Add(c.name, (x, y), out)


@lru_cache(maxsize=4)
def convolution(c: Layer) -> g.QConv2d:
    """A convolution with random weights, whose outputs fill int8."""
    rng = np.random.default_rng(c.co)
    x, out = g.Tensor("x", (1, c.ci, c.size, c.size)), g.Tensor("out", (1, c.co, c.output, c.output), zero_point=-5)
    weight = rng.integers(-128, 128, (c.co, c.ci, c.kernel, c.kernel), np.int8)
    scale = (rng.uniform(30, 60, c.co) / (5000 * np.sqrt(weight[0].size))).astype(np.float32)
    bias = rng.integers(-(1 << 18), 1 << 18, c.co, np.int32)
    pads = (c.pad, c.pad, c.pad, c.pad)
    return g.QConv2d(c.name, (x,), out, weight, scale, bias, strides=(c.stride, c.stride), pads=pads)


@lru_cache(maxsize=4)
def maximum_of(c: Layer) -> g.MaxPool:
    """The maximum over windows of a layer's kernel."""
    x, out = g.Tensor("x", (1, c.ci, c.size, c.size)), g.Tensor("out", (1, c.co, c.output, c.output))
    return g.MaxPool(c.name, (x,), out, (c.kernel, c.kernel), (c.stride, c.stride), (c.pad, c.pad, c.pad, c.pad))


def goes_this_way(op: str, c: Layer, cfg: Config) -> bool:
    """Whether layer `c` of kind `op` is built here."""
    if op == "add":
        return possible(cfg) and weighted_sum(sum_of(c)) is not None
    if op == "max_pool":
        return tiles_of(maximum_of(c), cfg) is not None
    return op == "conv2d" and c.ci < cfg.block_in and best_fold(convolution(c), cfg) is not None


_OPERATORS: dict[str, Callable[[Layer], g.Add | g.MaxPool | g.QConv2d]] = {
    "add": sum_of,
    "max_pool": maximum_of,
    "conv2d": convolution,
}


def program(op: str, c: Layer, cfg: Config) -> Program:
    """The program of the layer: inputs `x` (and `y`), output `out`; weights are constants."""
    rec = Recording(cfg, "double", c.name)
    layer = _OPERATORS[op](c)
    shape = packed_shape(layer.output.shape, cfg)
    rec.activations["out"] = rec.program.buffer("out", shape, cfg.out_bits, kind="output")
    if not isinstance(layer, g.QConv2d):
        for t in layer.inputs:
            rec.activations[t.name] = rec.program.buffer(t.name, packed_shape(t.shape, cfg), cfg.inp_bits)
        if isinstance(layer, g.Add):
            elementwise.add(rec, layer)
        else:
            pooling.maximum(rec, layer)
        return rec.program
    fold = best_fold(layer, cfg)
    assert fold is not None
    rec.folded[layer.name] = fold, rec.program.buffer("x", host_step(layer, fold, cfg)[1], cfg.inp_bits)
    linear.lower(rec, layer)
    return rec.program


def data(op: str, c: Layer, cfg: Config, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """(random inputs of `program`, the output that it must give), packed."""
    if op == "add":
        x, y = (rng.integers(-128, 128, (1, c.co, c.size, c.size), np.int8) for _ in range(2))
        multipliers, exponents = zip(*sum_of(c).multipliers)
        scales = {"multipliers": multipliers, "exponents": exponents, "low": -128, "high": 127}
        out = kernels.add(x, y, **scales, zero_points=_ZERO_POINTS, sign=1, shift=ADD_SHIFT)
        return {"x": layout.pack_activations(x, cfg), "y": layout.pack_activations(y, cfg)}, _packed(out, cfg)
    if op == "max_pool":
        layer = maximum_of(c)
        x = rng.integers(-128, 128, layer.x.shape, np.int8)
        out = kernels.max_pool(x, kernel=layer.kernel, strides=layer.strides, pads=layer.pads)
        return {"x": layout.pack_activations(x, cfg)}, _packed(out, cfg)
    layer = convolution(c)
    fold = best_fold(layer, cfg)
    assert fold is not None
    x = rng.integers(-128, 128, layer.x.shape, np.int8)
    acc = accumulators(x[0], layer.weight, c) + layer.bias[:, None]
    multiplier, exponent = (each[:, None] for each in layer.multipliers)
    out = requantise(acc, multiplier, exponent, layer.output.zero_point)
    image = layout.fold_windows(x, **host_step(layer, fold, cfg)[0])
    return {"x": image}, _packed(out.reshape(layer.output.shape), cfg)


def _packed(out: np.ndarray, cfg: Config) -> np.ndarray:
    return layout.pack_activations(out, cfg, block=cfg.block_out)
