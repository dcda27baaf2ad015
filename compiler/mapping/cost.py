"""What a layer costs by the number of its ternary channels: cycles of the kernel that both compute units share."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...hw.config import Config
from ...hw.errors import Unfit
from ...hw.isa import Op, known_isa
from ...runtime.launch import Launch
from .. import graph as g
from ..accelerator.first_images import brought, cheapest_layout
from ..kernels import language
from ..kernels.conv import folded_conv
from ..kernels.fold import may_fold
from ..kernels.two_units import Layer, divided

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


class Costs:
    """The cost of the layers of `graph` on `cfg`, a function of layer and number of ternary channels for `min_cost`.

    Weights do not matter. GEMM has whole blocks of channels. A first layer may read an image that the host lays out for
    it, as those of few channels do.
    """

    def __init__(self, graph: g.Graph, cfg: Config):
        self.cfg, self._given = cfg, brought(graph)

    def __call__(self, op: g.Divisible, ternary: int) -> float:
        """Predicted cycles; infinite where no tile fits."""
        return self.split(op, ternary).cycles

    def split(self, op: g.Divisible, ternary: int) -> SplitCost:
        """Predicted cycles, also of each unit; infinite where no tile fits."""
        layer = _layer(op, ternary, self.cfg)
        first = layer if isinstance(layer, g.QConv2d) and op.x.name in self._given else None
        if first is not None and not ternary and (fold := cheapest_layout(first, self.cfg, nhwc=False)) is not None:
            products = Layer.of(first.shape, 0, fold, self.cfg).products
            total = language.cycles(folded_conv, first, self.cfg, fold)
            return SplitCost(0, total, {"gemm": float(products), "ternary": 0.0})
        fold = None if first is None else cheapest_layout(first, self.cfg, nhwc=False)
        try:
            found = language.cycles(divided, layer, self.cfg, fold)
        except Unfit:
            return SplitCost(ternary, float("inf"), dict.fromkeys(self.cfg.units, float("inf")))
        return SplitCost(ternary, found, _issued(language.launch(divided, layer, self.cfg, fold)))

    def least(self, op: g.Divisible, ternary: int) -> float:
        """Cycles that `split` has at least: those in which a unit computes; 0 for images that may be laid out."""
        layer = _layer(op, ternary, self.cfg)
        if isinstance(layer, g.QConv2d) and op.x.name in self._given and may_fold(layer, self.cfg):
            return 0.0
        return float(Layer.of(layer.shape, ternary, None, self.cfg).products)


def _issued(launch: Launch) -> dict[str, float]:
    """Cycles in which each unit that computes products issues a micro-op."""
    found = {"gemm": 0.0, "ternary": 0.0}
    for fields in known_isa(launch.cfg).decode(launch.insn):
        if "wgt_out" in fields:
            name = "ternary" if fields["op"] == Op.TERNARY else "gemm"
            found[name] += (fields["uop_end"] - fields["uop_bgn"]) * fields["iter_out"] * fields["iter_in"]
    return found


def _layer(op: g.Divisible, ternary: int, cfg: Config) -> g.Divisible:
    """`op` with `ternary` channels on that unit and whole blocks of others, all of whose weights are 0."""
    others = len(op.weight) - ternary
    count = others + (-others % cfg.block_out if ternary else 0) + ternary
    y = replace(op.output, shape=(op.output.shape[0], count, *op.output.shape[2:]))
    weight, scale = np.zeros((count, *op.weight.shape[1:]), np.int8), np.ones(count, np.float32)
    return replace(op, output=y, weight=weight, weight_scale=scale, bias=np.zeros(count, np.int32), ternary=ternary)
