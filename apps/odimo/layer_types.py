"""Layers whose first output channels are those of a standard convolution, the last those of a depthwise one.

Both run on the multiplier array by commands of one queue, hence one after the other: the cost of a layer is the sum of
both, not the longer one. The tables are programs of each type alone; the excess, below 0 as a rule, is what one program
of both saves: the start of a launch, and loads of the second type while the first one computes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...compiler import graph as g
from ...compiler.network import launch_cycles
from ...hw.config import Config
from ...hw.errors import UnsupportedError
from .integers import IntegerNetwork, IntegerNode, to_graph
from .measure import SPLIT_STEPS, UNIT_STEPS, LayerShape, anchors, compiled
from .tables import SHARED, LayerCost, UnitTable, sampled


def check(cfg: Config) -> None:
    """Raise `UnsupportedError` if `cfg` has no products for depthwise convolutions."""
    if "depthwise" not in cfg.extensions:
        raise UnsupportedError(
            f"types of layers: configuration {cfg.name} lacks extension depthwise; choose one that has it, as tiny or "
            "pynq_z1_plus"
        )


def typed_graph(shape: LayerShape, depthwise: int) -> g.Graph:
    """A network of one convolution of that shape, int8 in and out, its last `depthwise` channels of that type."""
    rng = np.random.default_rng(0)
    weight = rng.integers(-127, 128, (shape.channels, shape.inputs[0], *shape.kernel)).astype(np.int8)
    scales, bias = np.full(shape.channels, 2.0**-9, np.float32), np.zeros(shape.channels, np.int32)
    node = IntegerNode("layer", "layer", ("input",), shape.output, 2.0**-4, -128, depthwise=depthwise)
    moves = replace(node, strides=shape.strides, pads=shape.pads, dilations=shape.dilations)
    whole = replace(moves, weight=weight, bias=bias, weight_scale=scales)
    _, *ops, _ = to_graph(IntegerNetwork(shape.inputs, 2.0**-6, (whole,)), "layer").ops
    return g.Graph("layer", (ops[0].x,), (ops[-1].output,), tuple(ops))


def typed_cycles(cfg: Config, shape: LayerShape, depthwise: int) -> int:
    """Cycles of a layer with so many of its channels depthwise, in the timing model."""
    return launch_cycles(compiled(typed_graph(shape, depthwise), cfg))


def typed_cost(cfg: Config, shape: LayerShape) -> LayerCost:
    """The tables of a layer with as many inputs as outputs. Raises `UnsupportedError` as `check`."""
    check(cfg)
    channels, block = shape.channels, cfg.block_out
    counts = anchors(channels, block, UNIT_STEPS)
    standard = sampled(lambda n: typed_cycles(cfg, replace(shape, channels=n), 0), counts)

    def alone(count: int) -> int:
        size = replace(shape, inputs=(count, *shape.inputs[1:]), channels=count)
        return typed_cycles(cfg, size, count)

    apart = LayerCost((standard, sampled(alone, counts)), SHARED)
    splits = [0, *anchors(channels, block, SPLIT_STEPS)]
    found = {channels - n: typed_cycles(cfg, shape, channels - n) - apart.hard(n, channels - n) for n in splits}
    return replace(apart, excess=UnitTable(tuple(sorted(found)), tuple(float(found[n]) for n in sorted(found))))
