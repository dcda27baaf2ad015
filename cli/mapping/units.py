"""The time of each compute unit on every layer of a network that units can share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...compiler.graph import Graph
    from ...compiler.mapping import ChannelMapping
    from ...hw.config import Config

# keys of a row -> the column's name
COLUMNS = {
    "layer": "layer",
    "channels": "channels",
    "capable": "may be ternary",
    "ternary": "ternary",
    "gemm_cycles": "gemm cycles",
    "ternary_cycles": "ternary cycles",
    "cycles": "cycles",
    "bound": "bound by",
    "gemm_alone": "all on gemm",
    "ternary_alone": "all on ternary",
    "cheapest": "best ternary",
    "cheapest_cycles": "best cycles",
}


def unit_rows(graph: Graph, cfg: Config, mapping: ChannelMapping | None = None) -> list[dict[str, Any]]:
    """A row for each layer that units can share, none where `cfg` has GEMM alone.

    `capable` counts the channels whose weights are ternary, `ternary` those that `mapping` gives to that unit. Cycles
    are predicted for the kernel that both units share: those in which each unit computes, those of the layer, and those
    of the layer with all of its channels on one unit, whatever its weights; None where nothing fits the scratchpads.
    `cheapest` is the number of ternary channels that would be, whatever the weights.
    """
    from ...compiler.graph import Divisible
    from ...compiler.graph.regroup import capable
    from ...compiler.mapping import TERNARY, Costs, cheapest, refusal

    if TERNARY not in cfg.units:
        return []
    rows, costs = [], Costs(graph, cfg)
    for op in graph.layers:
        if not isinstance(op, Divisible) or refusal(op):
            continue
        count, split = len(op.weight), {} if mapping is None else mapping.layers.get(op.name, {})
        ternary = len(split.get(TERNARY, ()))
        best = cheapest(op, count, cfg, costs, costs.least)
        found, *others = (costs.split(op, k) for k in (ternary, 0, count, best))
        cycles = [*found.units.values(), found.cycles]
        row = [op.name, count, int(capable(op, graph.contract).sum()), ternary, *map(_whole, cycles), found.bound]
        first, second, last = (_whole(each.cycles) for each in others)
        rows.append(dict(zip(COLUMNS, [*row, first, second, best, last])))
    return rows


def _whole(cycles: float) -> int | None:
    return round(cycles) if cycles < float("inf") else None
