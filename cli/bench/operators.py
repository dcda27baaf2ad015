"""Layers of ResNet-18 that are lowered as a network's operators: the first convolution, the maximum and the sums.

Where a configuration has the extensions, the first convolution reads an image that the host has laid out
(compiler/kernels/conv.py), and the multiplier array sorts what the maximum compares
(compiler/kernels/pool.py) and computes sums (compiler/kernels/elementwise.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from ...compiler import graph as g
from ...compiler.accelerator.first_images import cheapest_layout
from ...compiler.graph.operators import ADD_SHIFT
from ...compiler.kernels import language, table
from ...compiler.kernels.conv import host_step
from ...compiler.kernels.elementwise import weighted_sum
from ...compiler.kernels.pool import max_pool_sorted
from ...compiler.kernels.recording import Recording, packed_shape
from ...hw.config import Config
from ...hw.rounding import requantise
from ...runtime import layout
from ...runtime.hostops.elementwise import add
from ...runtime.hostops.pooling import max_pool
from ...runtime.program import Program
from .layers import BenchLayer, accumulators

_SCALES, _ZERO_POINTS = (0.05, 0.04, 0.07), (-3, 5, -10)  # of the operands of a sum, and of the sum


@lru_cache(maxsize=16)
def sum_of(layer: BenchLayer) -> g.Add:
    """A sum of two tensors of different scales."""
    x, y, out = (
        g.Tensor(name, (1, layer.shape.o, *layer.shape.size), scale=scale, zero_point=zero)
        for name, scale, zero in zip(("x", "y", "out"), _SCALES, _ZERO_POINTS)
    )
    return g.Add(layer.name, (x, y), out)


@lru_cache(maxsize=4)
def convolution(layer: BenchLayer) -> g.QConv2d:
    """A convolution with random weights, whose outputs fill int8."""
    shape, rng = layer.shape, np.random.default_rng(layer.shape.o)
    x, out = g.Tensor("x", (1, shape.c, *shape.size)), g.Tensor("out", (1, shape.o, *shape.output), zero_point=-5)
    weight = rng.integers(-128, 128, (shape.o, shape.c, *shape.kernel), np.int8)
    scale = (rng.uniform(30, 60, shape.o) / (5000 * np.sqrt(weight[0].size))).astype(np.float32)
    bias = rng.integers(-(1 << 18), 1 << 18, shape.o, np.int32)
    return g.QConv2d(layer.name, (x,), out, weight, scale, bias, strides=shape.strides, pads=shape.pads)


@lru_cache(maxsize=4)
def maximum_of(layer: BenchLayer) -> g.MaxPool:
    """The maximum over windows of a layer's kernel."""
    shape = layer.shape
    x, out = g.Tensor("x", (1, shape.c, *shape.size)), g.Tensor("out", (1, shape.o, *shape.output))
    return g.MaxPool(layer.name, (x,), out, shape.kernel, shape.strides, shape.pads)


def goes_this_way(layer: BenchLayer, cfg: Config) -> bool:
    """True for a layer that is built here."""
    if layer.op == "add":
        return table.chosen(sum_of(layer), cfg) is weighted_sum
    if layer.op == "max_pool":
        return not language.why_not(max_pool_sorted, maximum_of(layer), cfg)
    return (
        layer.op == "conv2d"
        and layer.shape.c < cfg.block_in
        and cheapest_layout(convolution(layer), cfg, nhwc=False) is not None
    )


_OPERATORS: dict[str, Callable[[BenchLayer], g.Add | g.MaxPool | g.QConv2d]] = {
    "add": sum_of,
    "max_pool": maximum_of,
    "conv2d": convolution,
}


def program(layer: BenchLayer, cfg: Config) -> Program:
    """The program of the layer: inputs `x` (and `y`), output `out`; weights are constants."""
    rec = Recording(cfg, "double", layer.name)
    op = _OPERATORS[layer.op](layer)
    shape = packed_shape(op.output.shape, cfg)
    rec.activations["out"] = rec.program.buffer("out", shape, cfg.out_bits, kind="output")
    if not isinstance(op, g.QConv2d):
        for t in op.inputs:
            rec.activations[t.name] = rec.program.buffer(t.name, packed_shape(t.shape, cfg), cfg.inp_bits)
        table.lower(rec, op)
        return rec.program
    fold = cheapest_layout(op, cfg, nhwc=False)
    assert fold is not None
    rec.folded[op.name] = fold, rec.program.buffer("x", host_step(op, fold, cfg)[1], cfg.inp_bits)
    table.lower(rec, op)
    return rec.program


def data(layer: BenchLayer, cfg: Config, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """(random inputs of `program`, the output that it must give), packed."""
    if layer.op == "add":
        x, y = (rng.integers(-128, 128, (1, layer.shape.o, *layer.shape.size), np.int8) for _ in range(2))
        multipliers, exponents = zip(*sum_of(layer).multipliers)
        scales = {"multipliers": multipliers, "exponents": exponents, "low": -128, "high": 127}
        out = add(x, y, **scales, zero_points=_ZERO_POINTS, sign=1, shift=ADD_SHIFT)
        return {"x": layout.pack_activations(x, cfg), "y": layout.pack_activations(y, cfg)}, _packed(out, cfg)
    if layer.op == "max_pool":
        op = maximum_of(layer)
        x = rng.integers(-128, 128, op.x.shape, np.int8)
        out = max_pool(x, kernel=op.kernel, strides=op.strides, pads=op.pads)
        return {"x": layout.pack_activations(x, cfg)}, _packed(out, cfg)
    op = convolution(layer)
    fold = cheapest_layout(op, cfg, nhwc=False)
    assert fold is not None
    x = rng.integers(-128, 128, op.x.shape, np.int8)
    acc = accumulators(x[0], op.weight, layer.shape) + op.bias[:, None]
    multiplier, exponent = (each[:, None] for each in op.multipliers)
    out = requantise(acc, multiplier, exponent, op.output.zero_point)
    image = layout.fold_windows(x, **host_step(op, fold, cfg)[0])
    return {"x": image}, _packed(out.reshape(op.output.shape), cfg)


def _packed(out: np.ndarray, cfg: Config) -> np.ndarray:
    return layout.pack_activations(out, cfg, block=cfg.block_out)
