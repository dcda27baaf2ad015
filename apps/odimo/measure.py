"""Cycles of layers and points on the timing model, and a point's scores on a device. Needs no torch.

A layer is measured as a program of its own, with random weights: cycles depend on shapes alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ...compiler import graph as g
from ...compiler.mapping import ChannelMapping, regroup
from ...compiler.network import compile_for, launch_cycles
from ...hw.config import Config
from ...runtime.device import open_device
from ...runtime.executable import Executable
from ...runtime.loader import Loaded
from .integers import INPUT, OUTPUT, IntegerNetwork, IntegerNode, to_graph
from .mapping import allowed
from .tables import LayerCost, UnitTable, sampled

UNIT_STEPS = 4  # about the entries of a table of one unit
SPLIT_STEPS = 16  # and of that of splits: most layers have fewer
REFUSED = "the cost of its channels is the accelerator's"


@dataclass(frozen=True)
class LayerShape:
    """What a layer's cycles depend on: the input (C, H, W) or (C,), output channels, and how the kernel moves."""

    inputs: tuple[int, ...]
    channels: int
    kernel: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int] = (0, 0)
    dilations: tuple[int, int] = (1, 1)

    def to_json(self) -> dict[str, Any]:
        """The shape as JSON holds it."""
        return asdict(self)

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> LayerShape:
        """What `to_json` made, also after JSON made lists of the tuples."""
        given: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in value.items()}
        return LayerShape(**given)

    @property
    def output(self) -> tuple[int, ...]:
        """The output's size."""
        if len(self.inputs) == 1:
            return (self.channels,)
        sizes = (
            (n + 2 * pad - dilation * (k - 1) - 1) // stride + 1
            for n, pad, dilation, k, stride in zip(
                self.inputs[1:], self.pads, self.dilations, self.kernel, self.strides
            )
        )
        return (self.channels, *sizes)


def shapes(network: IntegerNetwork) -> dict[str, LayerShape]:
    """The shape of each layer of a network, by name."""
    results = {"input": network.input_shape} | {node.name: node.shape for node in network.nodes}
    found = {}
    for node in network.nodes:
        if node.weight is not None:
            kernel = node.weight.shape[2:] if node.weight.ndim == 4 else (1, 1)
            moves = kernel, node.strides, node.pads, node.dilations
            found[node.name] = LayerShape(results[node.inputs[0]], len(node.weight), *moves)
    return found


def layer_graph(shape: LayerShape, ternary: int) -> g.Graph:
    """A network of one layer of that shape, int8 in and out, its last `ternary` channels for the ternary unit."""
    rng = np.random.default_rng(0)
    channels, *rows = shape.inputs
    kernel = list(shape.kernel if rows else ())
    weight = rng.integers(-127, 128, (shape.channels, channels, *kernel)).astype(np.int8)
    if ternary:
        weight[-ternary:] = np.sign(weight[-ternary:])
    scales, bias = np.full(shape.channels, 2.0**-9, np.float32), np.zeros(shape.channels, np.int32)
    node = IntegerNode("layer", "layer", ("input",), shape.output, 2.0**-4, -128)
    moves = replace(node, strides=shape.strides, pads=shape.pads, dilations=shape.dilations)
    whole = replace(moves, weight=weight, bias=bias, weight_scale=scales)
    op = to_graph(IntegerNetwork(shape.inputs, 2.0**-6, (whole,)), "layer").layers[0]
    return g.Graph("layer", (op.x,), (op.output,), (replace(op, ternary=ternary),))


def layer_cycles(cfg: Config, shape: LayerShape, digital: int, ternary: int) -> int:
    """Cycles of a layer with `digital` channels on GEMM and `ternary` on the other unit, in the timing model."""
    return launch_cycles(compiled(layer_graph(replace(shape, channels=digital + ternary), ternary), cfg))


def anchors(channels: int, block: int, most: int) -> list[int]:
    """Numbers of channels at which a table is filled: one block, then about each `most`th in whole blocks, and all."""
    whole = allowed(channels, block)
    steps = min(len(whole) - 1, most)
    return sorted({whole[1], *(whole[k * (len(whole) - 1) // steps] for k in range(1, steps + 1))})


def layer_cost(cfg: Config, shape: LayerShape) -> LayerCost:
    """The tables of a layer: each unit alone with whole blocks of channels, and the splits between them."""
    channels, block = shape.channels, cfg.block_out
    counts = anchors(channels, block, UNIT_STEPS)
    digital = sampled(lambda n: layer_cycles(cfg, shape, n, 0), counts)
    if "ternary" not in cfg.units:
        never = UnitTable(digital.counts, tuple(0.0 if n == 0 else 2 * digital.cycles[-1] for n in digital.counts))
        return LayerCost((digital, never))
    alone = LayerCost((digital, sampled(lambda n: layer_cycles(cfg, shape, 0, n), counts)))
    splits = [n for n in anchors(channels, block, SPLIT_STEPS) if n < channels]
    found = {channels - n: float(layer_cycles(cfg, shape, n, channels - n)) for n in splits}
    found |= {0: alone.hard(channels, 0), channels: alone.hard(0, channels)}
    return replace(alone, splits=UnitTable(tuple(sorted(found)), tuple(found[n] for n in sorted(found))))


def compile_point(cfg: Config, network: IntegerNetwork, channels: Mapping[str, Any], name: str) -> Executable:
    """The program of a trained network whose layers' channels are on the units that `channels` says."""
    graph = to_graph(network, name)
    mapping = ChannelMapping.from_dict({"version": 1, "layers": channels}, name)
    return compiled(regroup(graph, mapping, cfg), cfg)


def compiled(graph: g.Graph, cfg: Config) -> Executable:
    """The executable with every layer on the accelerator, even where the host would be faster."""
    refused = {"host": {op.name: REFUSED for op in graph.layers}}
    return compile_for(graph, cfg, refused=refused).executable


def device_scores(executable: Executable, images: np.ndarray, device: str = "model") -> np.ndarray:
    """The scores (N, ...) of images (N, C, H, W), one after the other, on a device."""
    with Loaded(executable, open_device(device, executable.cfg)) as loaded:
        return np.concatenate([loaded.run({INPUT: image[None]})[OUTPUT] for image in images])
