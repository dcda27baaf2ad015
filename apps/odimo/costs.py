"""Cycles of a layer by how many of its channels each unit has, from the timing model."""

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
from .task import UNIT

SLOPE = 0.01
OVERLAP = "overlap"  # the units work at the same time: the slower one counts
SHARED = "shared"  # one queue for both: their times add up
Costs = Mapping[str, "LayerCost"]


@dataclass(frozen=True)
class UnitTable:
    """Cycles of one unit for `counts` channels, ascending from 0; both are as long. Power in milliwatts, a model's."""

    counts: tuple[int, ...]
    cycles: tuple[float, ...]

    @property
    def sloped(self) -> tuple[float, ...]:
        """The cycles with the linear term."""
        slope = SLOPE * self.cycles[-1] / max(1, self.counts[-1])
        return tuple(c + slope * n for n, c in zip(self.counts, self.cycles))

    def at(self, count: float) -> float:
        """Interpolated cycles, without the linear term."""
        return float(np.interp(count, self.counts, self.cycles))


NO_EXCESS = UnitTable((0, 1), (0.0, 0.0))


@dataclass(frozen=True)
class LayerCost:
    """The tables of a layer, one per unit in the order of `mapping.UNITS`, and how the units' times combine.

    `excess` are the cycles beyond the slower unit's, or the sum, by the number of channels on the last unit.
    `splits`, where it is there, has the cycles themselves by that number, for whole blocks: between two of them there
    is no program, and the maximum of interpolated times would have a least value there that none reaches.
    """

    tables: tuple[UnitTable, ...]
    combine: str = OVERLAP
    excess: UnitTable = NO_EXCESS
    splits: UnitTable | None = None

    def hard(self, *counts: float) -> float:
        """Cycles for so many channels on each unit, which need not be whole."""
        if self.splits is not None:
            return self.splits.at(counts[-1])
        times = [table.at(n) for table, n in zip(self.tables, counts)]
        return (sum(times) if self.combine == SHARED else max(times)) + self.excess.at(counts[-1])


@dataclass(frozen=True)
class Power:
    """A model of power in milliwatts, not a measurement: of each unit at work, and of all the rest the whole time."""

    active: tuple[float, ...]
    idle: float


def total(costs: Costs, counts: Mapping[str, tuple[float, ...]]) -> float:
    """Cycles of all layers, one after the other, by the numbers of channels on each unit."""
    return sum(cost.hard(*counts[name]) for name, cost in costs.items())


def energy(costs: Costs, counts: Mapping[str, tuple[float, ...]], power: Power) -> float:
    """Energy of all layers in milliwatt cycles: each unit while it works, and the rest as long as the layer takes."""
    found = 0.0
    for name, cost in costs.items():
        times = [table.at(n) for table, n in zip(cost.tables, counts[name])]
        whole = cost.hard(*counts[name])
        found += sum(p * t for p, t in zip(power.active, times)) + power.idle * whole
    return found


def sampled(cycles: Callable[[int], float], counts: list[int]) -> UnitTable:
    """A table of `cycles(count)` at `counts`, which never falls; no channels take no cycles."""
    known = sorted({0, *counts})
    values = [0.0 if n == 0 else float(cycles(n)) for n in known]
    return UnitTable(tuple(known), tuple(np.maximum.accumulate(values).tolist()))


def to_json(costs: Costs) -> dict[str, Any]:
    """The tables as JSON holds them."""
    return {
        name: {"combine": cost.combine, "tables": [_lists(t) for t in cost.tables], "excess": _lists(cost.excess)}
        | ({} if cost.splits is None else {"splits": _lists(cost.splits)})
        for name, cost in costs.items()
    }


def from_json(value: Mapping[str, Any]) -> dict[str, LayerCost]:
    """What `to_json` made."""
    return {
        name: LayerCost(
            tuple(map(_table, one["tables"])),
            one["combine"],
            _table(one["excess"]),
            _table(one["splits"]) if "splits" in one else None,
        )
        for name, one in value.items()
    }


def _lists(table: UnitTable) -> list[list[float]]:
    return [list(table.counts), list(table.cycles)]


def _table(value: list[list[Any]]) -> UnitTable:
    counts, cycles = value
    return UnitTable(tuple(counts), tuple(cycles))


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


def measurable(cfg: Config, choice: str) -> bool:
    """Whether `cfg` has both sides of the choice."""
    return choice != UNIT or "ternary" in cfg.units


def placed(
    network: IntegerNetwork, numbers: Mapping[str, int], choice: str
) -> tuple[IntegerNetwork, dict[str, dict[str, list[int]]]]:
    """The network with the last channels of its layers on the second side, and which unit has which of them.

    Types are operators, not units: there the second result is empty.
    """
    nodes = tuple(_placed(node, numbers[node.name], choice) if node.name in numbers else node for node in network.nodes)
    sizes = {node.name: len(node.weight) for node in nodes if node.weight is not None and node.name in numbers}
    units = channels(by_number(sizes, numbers)) if choice == UNIT else {}
    return replace(network, nodes=nodes), units


def _placed(node: IntegerNode, first: int, choice: str) -> IntegerNode:
    assert node.weight is not None
    if choice != UNIT:
        return replace(node, depthwise=len(node.weight) - first)
    weight = node.weight.copy()
    weight[first:] = np.sign(weight[first:])
    return replace(node, weight=weight)


def in_launch(cost: LayerCost, launches: Cycles, name: str, sizes: Sizes) -> LayerCost:
    """The tables of a layer with what its splits change in the launch, all other layers on their first side.

    The split with all channels there keeps the cycles of the layer alone. The units' own tables stay as they are.
    """
    size, whole = sizes[name], launches(sizes)
    known = cost.excess if cost.splits is None else cost.splits
    alone = cost.hard(size, 0)
    cycles = [alone + launches({**sizes, name: size - n}) - whole for n in known.counts]
    if cost.splits is not None:
        return replace(cost, splits=UnitTable(known.counts, tuple(cycles)))
    apart = replace(cost, excess=UnitTable(known.counts, (0.0,) * len(known.counts)))
    excess = (c - apart.hard(size - n, n) for n, c in zip(known.counts, cycles))
    return replace(cost, excess=UnitTable(known.counts, tuple(excess)))


def cheapest(sizes: Sizes, costs: Costs, block: int) -> Choice:
    """The split of least cost in each layer, whatever it does to the accuracy; ties go to more int8 channels."""
    found: Choice = {}
    for name, count in sizes.items():
        _, least = min((costs[name].hard(n, count - n), -n) for n in allowed(count, block))
        found[name] = np.arange(count) >= -least
    return found


def fastest(launches: Cycles, sizes: Sizes, tables: Costs, block: int) -> Numbers:
    """The mapping of Min-Cost: from the cheapest splits of the tables to neighbours whose launch has fewer cycles.

    Two layers in a row also move at once, since a launch overlaps these. Of launches with equal cycles it is that with
    more channels on the first side.
    """
    start = on_gemm(cheapest(sizes, tables, block))
    options = {name: allowed(size, block) for name, size in sizes.items()}
    return descend(start, options, lambda numbers: (launches(numbers), -sum(numbers.values())), pairs=True)
