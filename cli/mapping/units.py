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
}


def unit_rows(graph: Graph, cfg: Config, mapping: ChannelMapping | None = None) -> list[dict[str, Any]]:
    """A row for each layer that units can share, none where `cfg` has GEMM alone.

    `capable` counts the channels whose weights are ternary, `ternary` those that `mapping` gives to that unit. Cycles
    are predicted for the kernel that both units share: those in which each unit computes, those of the layer, and those
    of the layer with all of its channels on one unit, whatever its weights; None where nothing fits the scratchpads.
    """
    from ...compiler.graph import Divisible
    from ...compiler.mapping.check import TERNARY, refusal
    from ...compiler.mapping.cost import Costs
    from ...compiler.mapping.ternary import capable

    if TERNARY not in cfg.units:
        return []
    rows, costs = [], Costs(graph, cfg)
    for op in graph.layers:
        if not isinstance(op, Divisible) or refusal(op):
            continue
        count, split = len(op.weight), {} if mapping is None else mapping.layers.get(op.name, {})
        ternary = len(split.get(TERNARY, ()))
        found, *alone = (costs.split(op, k) for k in (ternary, 0, count))
        cycles = [*found.units.values(), found.cycles]
        row = [op.name, count, int(capable(op).sum()), ternary, *map(_whole, cycles), found.bound]
        rows.append(dict(zip(COLUMNS, [*row, *(_whole(each.cycles) for each in alone)])))
    return rows


def _whole(cycles: float) -> int | None:
    return round(cycles) if cycles < float("inf") else None
