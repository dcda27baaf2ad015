"""What a layer costs by the number of its ternary channels: cycles of the kernel that both compute units share."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...hw.config import Config
from ...hw.errors import ScheduleError
from .. import graph as g
from ..accelerator.split.plan import plan_for

_BOUND = 0.8  # a unit that works for this part of the cycles bounds them


@dataclass(frozen=True)
class SplitCost:
    """Predicted cycles of a layer with `ternary` channels on that unit, and those in which each unit computes."""

    ternary: int
    cycles: float
    units: dict[str, float]

    @property
    def bound(self) -> str:
        """The unit that bounds the time, or `transfers` where both wait for the memory most of it."""
        unit = max(self.units, key=lambda name: self.units[name])
        return unit if self.units[unit] >= _BOUND * self.cycles else "transfers"


def split_cost(op: g.Divisible, ternary: int, cfg: Config) -> SplitCost:
    """The cost of `op` with `ternary` channels on unit `ternary`, whatever its weights; GEMM has whole blocks.

    Infinite where no tile fits.
    """
    assert isinstance(op, (g.QConv2d, g.QDense))
    others = len(op.weight) - ternary
    others += -others % cfg.block_out if ternary else 0
    try:
        plan = plan_for(replace(op.shape, o=others + ternary), ternary, cfg)
    except ScheduleError:
        return SplitCost(ternary, float("inf"), dict.fromkeys(cfg.units, float("inf")))
    return SplitCost(ternary, plan.cycles, plan.units)


def cycles(op: g.Divisible, ternary: int, cfg: Config) -> float:
    """Predicted cycles of `op` with `ternary` channels on that unit: the cost for `min_cost`."""
    return split_cost(op, ternary, cfg).cycles
