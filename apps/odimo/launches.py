"""Cycles of whole launches: of a mapping, of what one layer's split changes there, and the fastest mapping.

A layer measured as a program of its own begins and ends alone. In a network its first loads pass beside the layer
before, and its last results beside the layer behind, so that splits whose cycles are close rank otherwise. What a
search pays for is the launch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from ...compiler.network import launch_cycles
from ...hw.config import Config
from .alternatives import UNIT
from .integers import IntegerNetwork, IntegerNode
from .mapping import Numbers, Sizes, allowed, by_number, channels, cheapest, descend, on_gemm
from .measure import compile_point
from .tables import Costs, LayerCost, UnitTable

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


def fastest(launches: Cycles, sizes: Sizes, tables: Costs, block: int) -> Numbers:
    """The mapping of Min-Cost: from the cheapest splits of the tables to neighbours whose launch has fewer cycles.

    Two layers in a row also move at once, since a launch overlaps these. Of launches with equal cycles it is that with
    more channels on the first side.
    """
    start = on_gemm(cheapest(sizes, tables, block))
    options = {name: allowed(size, block) for name, size in sizes.items()}
    return descend(start, options, lambda numbers: (launches(numbers), -sum(numbers.values())), pairs=True)
