"""Layers of two units whose images have few channels: rows and columns of the window are folded into one block.

The layout of the image and its terms are those of compiler/kernels/fold.py; both units read it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from ....hw.config import Config
from ....hw.errors import ScheduleError
from ....hw.isa import Mem
from ....runtime.buffer import Buffer
from ... import cost
from ... import graph as g
from ...conv_shape import ConvShape
from ...kernels.fold import Fold, FoldTiles, fold_in_place, fold_weights, folds, least, may_fold
from ...kernels.folded_conv import strips
from ...kernels.language import Kernel as Language
from ...kernels.language import Slots
from ..direct.on_chip import OnChip, on_chip
from ..recording import Recording
from .kernel import Area, Kernel, Step, Unit
from .plan import Division, Plan, plan_for

_TRIED = 12  # folds whose tiles are searched: those with the fewest products


@dataclass(frozen=True)
class FoldedDivision(Division):
    """A layer on the entries of `fold`: one block of the input, of which the terms are the taps.

    If it is `phased`, unit `ternary` computes all phases of its blocks at once, each in a plane of its accumulators: an
    entry of weights has those of every phase, and an accumulator stands for a group of columns.
    """

    fold: Fold
    geometry: FoldTiles
    phased: bool = False

    @staticmethod
    def folded(shape: ConvShape, ternary: int, fold: Fold, cfg: Config) -> FoldedDivision:
        """The division of a layer whose last `ternary` output channels are ternary."""
        plain = Division.of(shape, ternary, cfg)
        return FoldedDivision(
            shape, plain.images, 1, plain.gemm, plain.ternary, plain.groups, fold, FoldTiles(shape, fold, cfg)
        )

    def may_phase(self, cfg: Config) -> bool:
        """True if there is a plane for each phase, phases have equal numbers of columns, and GEMM has not more to do.

        Phases are stored one by one, and their outputs each as a row of its own: stores of GEMM would wait for them.
        """
        phases = self.fold.phases
        planes = phases > 1 and 0 < self.ternary * phases <= cfg.ternary_blocks
        return planes and self.gemm <= self.groups and self.shape.output[1] % phases == 0

    @property
    def at_once(self) -> int:
        """Outputs of a row that a micro-op of unit `ternary` makes, each in a plane of its own."""
        return self.fold.phases if self.phased else 1

    @property
    def places(self) -> list[tuple[int, int]]:
        """(strip within the window, entry from the first of its group) of what outputs of any phase read."""
        return sorted({(strip, entry) for _, strip, entry in self.fold.terms})

    @property
    def group_taps(self) -> int:
        """As `taps`, of ternary weights for one group."""
        return len(self.places) if self.phased else self.taps

    def group_products(self) -> int:
        """Micro-ops that compute all groups."""
        if not self.phased:
            return super().group_products()
        return self.images * math.prod(self.shape.output) // self.fold.phases * len(self.places)

    @property
    def taps(self) -> int:
        """Entries of weights of an output block."""
        return len(self.fold.terms)

    def products(self, blocks: int) -> int:
        """Micro-ops that compute `blocks` output blocks, or groups of them."""
        oy, ox = self.shape.output
        return self.images * blocks * oy * sum(self.fold.columns(phase, ox) for phase, *_ in self.fold.terms)

    def height(self, rows: Any) -> Any:
        """Strips that `rows` of the output read."""
        return self.geometry.strips(rows)

    def width(self, columns: Any) -> Any:
        """Entries of a strip that `columns` of the output read."""
        return self.geometry.width(columns)

    def sizes(self, axis: int) -> list[int]:
        """Sizes of tiles along an axis of the output: columns are whole groups of phases."""
        extent, step = self.shape.output[axis], 1 if axis == 0 else self.fold.phases
        count = -(-extent // step)
        return sorted({min(-(-count // k) * step, extent) for k in range(1, count + 1)})


@cost.cached(256)
def folded_plan(shape: ConvShape, ternary: int, fold: Fold, cfg: Config) -> Plan:
    """The cheapest plan of a layer on the entries of `fold`. Raises `ScheduleError` if no tile fits."""
    work = FoldedDivision.folded(shape, ternary, fold, cfg)
    plan = Plan(work, cfg)
    if not work.may_phase(cfg):
        return plan
    return min(plan, Plan(replace(work, phased=True), cfg), key=lambda plan: plan.cycles)


def cheapest(op: g.QConv2d, cfg: Config, *, nhwc: bool) -> Fold | None:
    """As `kernels.fold.cheapest`, for a layer of two units."""
    if not may_fold(op, cfg):
        return None
    return _cheapest_of_shape(op.shape, op.ternary, cfg, fold_in_place(op, cfg) if nhwc else None)


@cost.cached(64)
def _cheapest_of_shape(shape: ConvShape, ternary: int, cfg: Config, in_place: Fold | None) -> Fold | None:
    def cycles(fold: Fold | None) -> float:
        try:
            return (plan_for(shape, ternary, cfg) if fold is None else folded_plan(shape, ternary, fold, cfg)).cycles
        except ScheduleError:
            return math.inf

    def products(fold: Fold) -> int:
        return sum(fold.columns(phase, shape.output[1]) for phase, *_ in fold.terms)

    return least(shape, cfg, sorted(folds(shape, cfg), key=products)[:_TRIED], in_place, cycles)


def lower(rec: Recording, op: g.QConv2d, fold: Fold, image: Buffer) -> None:
    """Append the convolution of the laid out `image`."""
    plan = folded_plan(op.shape, op.ternary, fold, rec.cfg)
    tiles = fold_weights(op, fold, rec.cfg)  # output blocks, terms, channels of a block, lanes
    weight = tiles.transpose(0, 2, 3, 1).reshape(-1, rec.cfg.block_in, 1, len(fold.terms))
    with on_chip(rec) as chip:
        _FoldedKernel(rec, op, plan, chip, (image, weight)).run()


class _FoldedKernel(Kernel):
    """The kernel with strips of the laid out image as its input, and terms as taps."""

    @property
    def division(self) -> FoldedDivision:
        """The layer."""
        assert isinstance(self.work, FoldedDivision)
        return self.work

    def _ternary(self, chip: OnChip, weight: np.ndarray) -> Iterator[Unit]:
        division = self.division
        if division.phased and len(weight):
            places = division.places
            phases = np.zeros((division.fold.phases, *weight.shape[:3], len(places)), np.int8)
            for k, (phase, *place) in enumerate(division.fold.terms):
                phases[phase, ..., places.index((place[0], place[1]))] = weight[..., k]
            weight = phases.reshape(-1, *phases.shape[2:])
        yield from super()._ternary(chip, weight)

    def load_input(self, base: int, area: Area, chunk: range) -> None:
        """Load the strips of a tile to `base`."""
        op = self.op
        assert isinstance(op, g.QConv2d)
        k = Language(self.rec, op, OnChip(self.rec))
        image = k.folded[area.image]
        Slots(k, Mem.INP, (base,), self.plane).load(strips(op, self.division.geometry, image, area[1:]))

    def multiply(self, unit: Unit, places: tuple[int, int, int], work: tuple[int, range], area: Area) -> None:
        """The products of a unit: phases with equal numbers of columns share an instruction."""
        (acc, inp, wgt), division, (sy, _) = places, self.division, self.shape.strides
        fold, width = division.fold, division.width(area.columns)
        apart = fold.rows * self.shape.dilations[0] // fold.step * width  # entries between strips of a window
        down = sy // fold.step * width
        if self._phased(unit):
            columns = area.columns // fold.phases
            uops = np.array([(acc, inp + strip * apart + e, wgt + k) for k, (strip, e) in enumerate(division.places)])
            loops = [(area.rows, columns, down, 0), (columns, 1, len(fold.offsets), 0)]
            unit.record(uops[:1], loops, overwrite=True)
            if len(uops) > 1:
                unit.record(uops[1:], loops)
            return
        terms = np.array(fold.terms)
        new = np.diff(terms[:, 0], prepend=-1) > 0  # the first term of its phase
        columns = np.array([fold.columns(phase, area.columns) for phase in terms[:, 0]])
        for many in sorted({*columns.tolist()} - {0}):
            loops = [
                (len(unit.groups(work[0])), self.tile.area, 0, len(terms)),
                (area.rows, area.columns, down, 0),
                (many, fold.phases, len(fold.offsets), 0),
            ]
            for chosen, overwrite in ((new, True), (~new, False)):
                (k,) = np.nonzero(chosen & (columns == many))
                phase, strip, entry = terms[k].T
                if len(k):
                    uops = np.stack([acc + phase, inp + strip * apart + entry, wgt + k], axis=1)
                    unit.record(uops, loops, overwrite=overwrite)

    def store(self, unit: Unit, step: Step, par: dict[int, int]) -> None:
        """Store the blocks of a unit; phase by phase where these are in planes."""
        if not self._phased(unit):
            super().store(unit, step, par)
            return
        division, area, (oy, ox) = self.division, step.area, self.shape.output
        phases, columns = division.fold.phases, area.columns // division.fold.phases
        rows, count = (1, area.rows * columns) if area.columns == ox else (area.rows, columns)
        for k, (block, phase, row) in enumerate(product(unit.blocks, range(phases), range(rows))):
            plane = phase * division.ternary + k // (phases * rows)
            acc = unit.banks[step.bank] + plane * unit.apart + row * columns
            first = (area.image * (division.gemm + division.ternary) + block) * oy * ox
            first += (area.y + row) * ox + area.x + phase
            self.rec.program.store(acc, self.out, first, y_size=count, x_size=1, x_stride=phases, par=par[block])

    def _phased(self, unit: Unit) -> bool:
        return self.division.phased and unit.mem == Mem.TWGT
