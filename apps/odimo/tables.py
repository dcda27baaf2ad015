"""Cycles of a layer by how many of its channels each unit has: tables, filled by the timing model or by formulas.

A layer with channels on both units takes as long as the slower unit, since both work at the same time, and an excess
for what they share: loads, banks, post-processing. Two types of layer on one unit take the sum of their times, less
what one program saves. The excess is a table, too, so that at its entries a cost is what the timing model has for that
split. Between the entries of a table the cycles are interpolated, so that a search that moves channels one by one sees
a slope everywhere; `SLOPE` of the mean slope is added where a table is flat, as where further channels fill a block
that is computed anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

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
