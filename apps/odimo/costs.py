"""The cost of a layer: cycles by the number of channels on each side of a choice, counted by the timing model.

Each channel of a layer is on one of two sides. For choice `UNIT` they are GEMM (int8) and the ternary unit, for `TYPE`
a standard and a depthwise convolution (`ALTERNATIVES` in task.py). Splits in whole blocks of channels are compiled as
programs of their own with random weights, as cycles depend on shapes alone; between two splits cycles are interpolated
linearly. A layer alone takes more cycles than inside a network, where its loads and stores overlap its neighbours':
`in_launch` replaces the cycles of the splits by those in launches of the whole network. This module needs no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ...compiler import graph as g
from ...compiler.mapping import ChannelMapping, regroup
from ...compiler.network import compile_for, launch_cycles
from ...hw.config import Config
from ...hw.errors import UnsupportedError
from ...runtime.device import open_device
from ...runtime.executable import Executable
from ...runtime.loader import Loaded
from .integers import INPUT, OUTPUT, IntegerNetwork, IntegerNode, to_graph
from .mapping import Choice, Numbers, Sizes, allowed, by_number, channels, descend, on_gemm
from .task import TYPE, UNIT

SLOPE = 0.01
UNIT_STEPS = 4  # about the entries of a table of one side
SPLIT_STEPS = 16  # and of that of splits: most layers have fewer
REFUSED = "the cost of its channels is the accelerator's"
Costs = Mapping[str, "LayerCost"]


@dataclass(frozen=True)
class UnitTable:
    """Cycles for `counts` channels, ascending from 0; both are as long."""

    counts: tuple[int, ...]
    cycles: tuple[float, ...]

    @property
    def sloped(self) -> tuple[float, ...]:
        """The cycles and `SLOPE` of their mean slope: in a search further channels of a block cost something, where the
        table is flat because the block is computed anyway.
        """
        slope = SLOPE * self.cycles[-1] / max(1, self.counts[-1])
        return tuple(c + slope * n for n, c in zip(self.counts, self.cycles))

    def at(self, count: float) -> float:
        """Interpolated cycles, without the linear term."""
        return float(np.interp(count, self.counts, self.cycles))


@dataclass(frozen=True)
class LayerCost:
    """The cycles of a layer: `splits` by the number of channels on the second side, `tables` of each side alone."""

    tables: tuple[UnitTable, UnitTable]
    splits: UnitTable


@dataclass(frozen=True)
class Power:
    """A model of power in milliwatts, not a measurement: `active` of each side at work, `idle` of the rest."""

    active: tuple[float, ...]
    idle: float


def energy(costs: Costs, counts: Mapping[str, tuple[float, ...]], power: Power) -> float:
    """Energy of all layers in milliwatt cycles: each side while it works, and the rest as long as the layer takes."""
    found = 0.0
    for name, cost in costs.items():
        times = [table.at(n) for table, n in zip(cost.tables, counts[name])]
        found += sum(p * t for p, t in zip(power.active, times)) + power.idle * cost.splits.at(counts[name][-1])
    return found


def to_json(costs: Costs) -> dict[str, Any]:
    """The tables as JSON holds them."""

    def lists(table: UnitTable) -> list[list[float]]:
        return [list(table.counts), list(table.cycles)]

    return {name: {"tables": [*map(lists, one.tables)], "splits": lists(one.splits)} for name, one in costs.items()}


def from_json(value: Mapping[str, Any]) -> dict[str, LayerCost]:
    """The tables that `to_json` made."""
    found = {}
    for name, one in value.items():
        first, second, splits = (UnitTable(*map(tuple, table)) for table in (*one["tables"], one["splits"]))
        found[name] = LayerCost((first, second), splits)
    return found


@dataclass(frozen=True)
class LayerShape:
    """The shape of a layer, on which its cycles depend: input (C, H, W) or (C,), output channels, kernel and window."""

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
        """The shape that `to_json` made, also after JSON made lists of the tuples."""
        given: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in value.items()}
        return LayerShape(**given)

    @property
    def output(self) -> tuple[int, ...]:
        """The output's shape, (O, H, W) or (O,)."""
        moves = zip(self.inputs[1:], self.pads, self.dilations, self.kernel, self.strides)
        return self.channels, *((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, p, d, k, s in moves)


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


def placed(
    network: IntegerNetwork, numbers: Mapping[str, int], choice: str
) -> tuple[IntegerNetwork, dict[str, dict[str, list[int]]]]:
    """The network with `numbers` channels of its layers on the first side, the last ones on the second, and which unit
    has which of them.

    Types are operators, not units: there the second result is empty.
    """
    nodes = []
    for node in network.nodes:
        if node.name in numbers and node.weight is not None:
            first, weight = numbers[node.name], node.weight.copy()
            if choice == UNIT:
                weight[first:] = np.sign(weight[first:])
                node = replace(node, weight=weight)
            else:
                node = replace(node, depthwise=len(weight) - first)
        nodes.append(node)
    sizes = {node.name: len(node.weight) for node in nodes if node.weight is not None and node.name in numbers}
    units = channels(by_number(sizes, numbers)) if choice == UNIT else {}
    return replace(network, nodes=tuple(nodes)), units


def mapped(network: IntegerNetwork, units: Mapping[str, Any], name: str, cfg: Config) -> g.Graph:
    """The graph of a network whose layers' channels are on the units that `units` says."""
    return regroup(to_graph(network, name), ChannelMapping.from_dict({"version": 1, "layers": units}, name), cfg)


def compiled(graph: g.Graph, cfg: Config) -> Executable:
    """The executable with every layer on the accelerator, even where the host would be faster."""
    refused = {"host": {op.name: REFUSED for op in graph.layers}}
    return compile_for(graph, cfg, refused=refused).executable


def compile_point(cfg: Config, network: IntegerNetwork, units: Mapping[str, Any], name: str) -> Executable:
    """Compile a network whose layers are placed by channel."""
    return compiled(mapped(network, units, name, cfg), cfg)


def device_scores(executable: Executable, images: np.ndarray, device: str = "model") -> np.ndarray:
    """The scores (N, ...) of images (N, C, H, W), one after the other, on a device."""
    with Loaded(executable, open_device(device, executable.cfg)) as loaded:
        return np.concatenate([loaded.run({INPUT: image[None]})[OUTPUT] for image in images])


def layer_graph(cfg: Config, shape: LayerShape, second: int, choice: str = UNIT) -> g.Graph:
    """A network of one layer, int8 in and out, with its last `second` channels on the second side."""
    inputs, *rows = shape.inputs
    size = (shape.channels, inputs, *(shape.kernel if rows else ()))
    weight = np.random.default_rng(0).integers(-127, 128, size).astype(np.int8)
    node = IntegerNode("layer", "layer", ("input",), shape.output, 2.0**-4, -128)
    moves = replace(node, strides=shape.strides, pads=shape.pads, dilations=shape.dilations)
    bias, scales = np.zeros(shape.channels, np.int32), np.full(shape.channels, 2.0**-9, np.float32)
    network = IntegerNetwork(shape.inputs, 2.0**-6, (replace(moves, weight=weight, bias=bias, weight_scale=scales),))
    grouped = mapped(*placed(network, {"layer": shape.channels - second}, choice), "layer", cfg)
    ops = grouped.ops[1:-1]  # without quantize and dequantize
    return g.Graph("layer", (ops[0].x,), (ops[-1].output,), ops)


def layer_cycles(cfg: Config, shape: LayerShape, second: int, choice: str = UNIT) -> int:
    """Cycles of a layer with `second` channels on the second side, in the timing model."""
    return launch_cycles(compiled(layer_graph(cfg, shape, second, choice), cfg))


def anchors(channels: int, block: int, most: int) -> list[int]:
    """Numbers of channels at which a table is filled: one block, then about each `most`th in whole blocks, and all."""
    numbers = allowed(channels, block)
    steps = min(len(numbers) - 1, most)
    return sorted({numbers[1], *(numbers[k * (len(numbers) - 1) // steps] for k in range(1, steps + 1))})


def check(cfg: Config) -> None:
    """Raise `UnsupportedError` if `cfg` has no products for depthwise convolutions."""
    if "depthwise" not in cfg.extensions:
        raise UnsupportedError(
            f"types of layers: configuration {cfg.name} lacks extension depthwise; choose one that has it, as tiny or "
            "pynq_z1_plus"
        )


def layer_cost(cfg: Config, shape: LayerShape, choice: str = UNIT) -> LayerCost:
    """The tables of a layer. Where `cfg` lacks the second side, any channel on it takes as long as two of the layer.

    Raises `UnsupportedError` as `check` for types.
    """
    if choice == TYPE:
        check(cfg)
    count, block = shape.channels, cfg.block_out
    counts = anchors(count, block, UNIT_STEPS)

    def alone(second: bool) -> UnitTable:
        """The table of one side, which never falls."""
        cycles = [0]
        for n in counts:  # a depthwise convolution has as many inputs as outputs
            inputs = (n, *shape.inputs[1:]) if second and choice == TYPE else shape.inputs
            cycles.append(layer_cycles(cfg, replace(shape, inputs=inputs, channels=n), n * second, choice))
        return UnitTable((0, *counts), tuple(np.maximum.accumulate(np.array(cycles, float)).tolist()))

    first = alone(second=False)
    if not measurable(cfg, choice):
        slowest = first.cycles[-1]
        never = UnitTable(first.counts, (0.0, *(2 * slowest for _ in counts)))
        return LayerCost((first, never), UnitTable(first.counts, (slowest, *never.cycles[1:])))
    splits = sorted({count - n for n in (0, *anchors(count, block, SPLIT_STEPS))})
    cycles = [float(layer_cycles(cfg, shape, n, choice)) for n in splits]
    return LayerCost((first, alone(second=True)), UnitTable(tuple(splits), tuple(cycles)))


def measurable(cfg: Config, choice: str) -> bool:
    """Whether `cfg` has both sides of the choice."""
    return choice != UNIT or "ternary" in cfg.units


Cycles = Callable[[Mapping[str, int]], int]  # of a launch, by the numbers of channels on the first side of its layers


class Launches:
    """The cycles of a network's launch by the number of channels on each layer's first side, each measured once.

    `network` has all channels there; which of them move changes no cycles. `choice` is a key of `ALTERNATIVES`.
    """

    def __init__(self, cfg: Config, network: IntegerNetwork, choice: str = UNIT):
        self.cfg, self.network, self.choice = cfg, network, choice
        self._known: dict[tuple[tuple[str, int], ...], int] = {}

    def __call__(self, numbers: Mapping[str, int]) -> int:
        """Cycles in the timing model of the mapping with so many channels on the first side of each layer."""
        key = tuple(sorted(numbers.items()))
        if key not in self._known:
            network, units = placed(self.network, numbers, self.choice)
            self._known[key] = launch_cycles(compile_point(self.cfg, network, units, "launch"))
        return self._known[key]


def in_launch(cost: LayerCost, launches: Cycles, name: str, sizes: Sizes) -> LayerCost:
    """The cost of a layer by launches of the whole network, all other layers on their first side.

    The split with all channels there keeps the cycles of the layer alone. The tables of the sides stay as they are.
    """
    all_first, alone, counts = launches(sizes), cost.splits.at(0), cost.splits.counts
    cycles = tuple(alone + launches({**sizes, name: sizes[name] - n}) - all_first for n in counts)
    return replace(cost, splits=UnitTable(counts, cycles))


def cheapest(sizes: Sizes, costs: Costs, block: int) -> Choice:
    """The split of least cost in each layer, whatever it does to the accuracy; ties go to more int8 channels."""
    found: Choice = {}
    for name, count in sizes.items():
        _, least = min((costs[name].splits.at(count - n), -n) for n in allowed(count, block))
        found[name] = np.arange(count) >= -least
    return found


def fastest(launches: Cycles, sizes: Sizes, costs: Costs, block: int) -> Numbers:
    """The mapping of Min-Cost: from the cheapest splits of the tables to neighbours whose launch has fewer cycles.

    Two layers in a row also move at once, since a launch overlaps these. Of launches with equal cycles it is that with
    more channels on the first side.
    """
    start = on_gemm(cheapest(sizes, costs, block))
    options = {name: allowed(size, block) for name, size in sizes.items()}
    return descend(start, options, lambda numbers: (launches(numbers), -sum(numbers.values())), pairs=True)
