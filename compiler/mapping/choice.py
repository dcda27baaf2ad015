"""Mappings by the cost of layers; compiler/network.py has the one with the least predicted time of a network."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ...hw.config import Config
from .. import graph as g
from .check import GEMM, TERNARY, refusal
from .file import ChannelMapping
from .ternary import capable
from .ties import Ties, ties

Cost = Callable[[g.Divisible, int], float]  # (layer, how many of its channels are ternary) -> cycles


def candidates(count: int, able: int, block: int) -> list[int]:
    """The numbers of ternary channels worth a look, of `count` channels of which `able` can be ternary.

    Those that leave GEMM whole blocks of `block` channels, and none or all that can be.
    """
    whole = [count - first for first in range(0, count, block)]
    return sorted({0, able, *(found for found in whole if found <= able)})


def cheapest(op: g.Divisible, able: int, cfg: Config, cost: Cost, least: Cost) -> int:
    """The number of ternary channels, up to `able`, with the least `cost`; of equal ones the lowest.

    Only those are looked at whose cost is not too high by `least`, which says what it is at least.
    """
    best = (math.inf, able)
    numbers = candidates(len(op.weight), able, cfg.block_out)
    for bound, ternary in sorted((least(op, ternary), ternary) for ternary in numbers):
        if bound > best[0]:
            break
        best = min(best, (cost(op, ternary), ternary))
    return best[1]


def by_layer(graph: g.Graph, cfg: Config, cost: Cost, least: Cost) -> ChannelMapping:
    """The mapping whose layers take the fewest cycles by `cost`; of equal ones that with more channels on GEMM.

    `least` is what the cost of a layer is at least, as of `Costs.least`.

    Ternary are a layer's last channels of those whose weights are ternary (compiler/mapping/ternary.py, for the
    graph's rounding contract), in every layer that shares its order and has any. The mapping names the layers that have
    some. Every layer's number is the best there is.
    """
    if TERNARY not in cfg.units:
        return ChannelMapping({})
    found = {}
    for op, channels in ternary_channels_of(graph):
        best = cheapest(op, len(channels), cfg, cost, least)
        found[op.name] = split(len(op.weight), channels[len(channels) - best :])
    return ChannelMapping(found)


def split(count: int, ternary: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """The entry of a layer of `count` channels in a mapping."""
    chosen = set(ternary)
    return {GEMM: tuple(c for c in range(count) if c not in chosen), TERNARY: tuple(sorted(chosen))}


def ternary_channels_of(graph: g.Graph) -> list[tuple[g.Divisible, list[int]]]:
    """Each layer that can be split with the channels that unit `ternary` may compute, in order, the same for all layers
    that share one order.
    """
    layers = [op for op in graph.of(g.Divisible) if not refusal(op)]
    able = {op.name: capable(op, graph.contract) for op in layers}
    tied: Ties = ties(graph)
    common: dict[str, np.ndarray] = {}
    for op in layers:
        if able[op.name].any():
            root = tied.root(op.output.name)
            common[root] = common.get(root, True) & able[op.name]
    found = [(op, common[tied.root(op.output.name)]) for op in layers if able[op.name].any()]
    return [(op, np.flatnonzero(channels).tolist()) for op, channels in found if channels.any()]
