"""Cost terms that have gradients: the cycles and the energy of a network whose channels are shared between units.

The maximum of eq. 3 is smooth: a sum of the units' times, weighted by their softmax at a temperature of a tenth of
their mean. The temperature follows the layer's times, so that the term means the same in layers of 100 and of 100,000
cycles; the weights carry no gradient, so that the faster unit is not rewarded for being slower.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..tables import SHARED, Costs, LayerCost, Power, UnitTable
from .backend import torch

SHARPNESS = 0.1  # temperature of the maximum, as a share of the mean time


def interpolated(table: UnitTable, count: Any, linear: bool = True) -> Any:
    """Cycles of a scalar tensor `count`, with the slope of the table's piece as the gradient.

    With `linear` the table's linear term is in both.
    """
    values = table.sloped if linear else table.cycles
    counts, cycles = torch.tensor(table.counts, dtype=count.dtype), torch.tensor(values, dtype=count.dtype)
    k = torch.searchsorted(counts, count.detach()).clamp(1, len(counts) - 1)
    slope = (cycles[k] - cycles[k - 1]) / (counts[k] - counts[k - 1])
    return cycles[k - 1] + slope * (count - counts[k - 1])


def smooth_maximum(times: Any) -> Any:
    """About the largest of the times (units,), with a gradient for each that is near it."""
    held = times.detach()
    weights = torch.softmax(held / (SHARPNESS * held.mean()).clamp(min=1e-9), 0)
    return (weights * times).sum()


def layer_times(cost: LayerCost, counts: Any) -> Any:
    """(units,): cycles of each unit for `counts` (units,) channels."""
    return torch.stack([interpolated(table, count) for table, count in zip(cost.tables, counts)])


def together(cost: LayerCost, times: Any, counts: Any) -> Any:
    """The cycles of a layer from those of its units for `counts` channels."""
    if cost.splits is not None:
        return interpolated(cost.splits, counts[-1], linear=False)
    whole = times.sum() if cost.combine == SHARED else smooth_maximum(times)
    return whole + interpolated(cost.excess, counts[-1], linear=False)


def latency(costs: Costs, counts: Mapping[str, Any]) -> Any:
    """Cycles of all layers; `counts` by layer are tensors (units,)."""
    layers = [(cost, counts[name]) for name, cost in costs.items()]
    return torch.stack([together(cost, layer_times(cost, each), each) for cost, each in layers]).sum()


def value(cost: LayerCost, counts: Sequence[float]) -> float:
    """The cycles of one layer by its term, for so many channels on each unit."""
    return float(latency({"": cost}, {"": torch.tensor(counts, dtype=torch.float64)}))


def energy(costs: Costs, counts: Mapping[str, Any], power: Power) -> Any:
    """Energy of all layers in milliwatt cycles, by a model of power."""
    active, found = torch.tensor(power.active), []
    for name, cost in costs.items():
        times = layer_times(cost, counts[name])
        found.append((active * times).sum() + power.idle * together(cost, times, counts[name]))
    return torch.stack(found).sum()
