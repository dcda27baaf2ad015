"""What a layer costs by the number of its ternary channels: cycles of the kernel that both compute units share."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...hw.config import Config
from ...hw.errors import ScheduleError
from .. import cost
from .. import graph as g
from ..accelerator.direct.fold import FoldTiles, cheapest
from ..accelerator.split.plan import plan_for

_BOUND = 0.8  # a unit that works for this part of the cycles bounds them
_BROUGHT = (g.Quantize, g.Recode, g.Transpose, g.Reshape, g.Pad)  # how the host brings an image to the first layer


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


class Costs:
    """The cost of the layers of `graph` on `cfg`, a function of layer and number of ternary channels for `min_cost`.

    Weights do not matter. GEMM has whole blocks of channels. A first layer on GEMM alone may read an image that the
    host lays out for it, as those of few channels do.
    """

    def __init__(self, graph: g.Graph, cfg: Config):
        self.cfg = cfg
        self._given = {t.name for t in graph.inputs}
        for op in graph.ops:
            if isinstance(op, _BROUGHT) and op.x.name in self._given:
                self._given.add(op.output.name)

    def __call__(self, op: g.Divisible, ternary: int) -> float:
        """Predicted cycles; infinite where no tile fits."""
        return self.split(op, ternary).cycles

    def split(self, op: g.Divisible, ternary: int) -> SplitCost:
        """Predicted cycles, also of each unit; infinite where no tile fits."""
        assert isinstance(op, (g.QConv2d, g.QDense))
        cfg, others = self.cfg, len(op.weight) - ternary
        others += -others % cfg.block_out if ternary else 0
        if not ternary and isinstance(op, g.QConv2d) and op.x.name in self._given:
            fold = cheapest(op, cfg, nhwc=False)
            if fold is not None:
                tiles, (oy, ox) = FoldTiles(op.shape, fold, cfg), op.shape.output
                products = tiles.blocks * oy * sum(fold.columns(phase, ox) for phase, *_ in fold.terms)
                total = tiles.cycles(cfg) + 2 * cost.ROUND_TRIP
                return SplitCost(0, total, {"gemm": float(products), "ternary": 0.0})
        try:
            plan = plan_for(replace(op.shape, o=others + ternary), ternary, cfg)
        except ScheduleError:
            return SplitCost(ternary, float("inf"), dict.fromkeys(cfg.units, float("inf")))
        return SplitCost(ternary, plan.cycles, plan.units)
