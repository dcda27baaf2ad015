"""Layers of two units whose images have few channels: rows and columns of the window are folded into one block.

The layout of the image and its terms are those of compiler/accelerator/direct/fold.py; both units read it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....hw.config import Config
from ....hw.errors import ScheduleError
from ....runtime.buffer import Buffer
from ... import cost
from ... import graph as g
from ...conv_shape import ConvShape
from ..direct.fold import Fold, FoldTiles, fold_in_place, fold_weights, folds, least, may_fold
from ..direct.folded_conv import load_strips
from ..direct.on_chip import on_chip
from ..recording import Recording
from .kernel import Area, Kernel, Unit
from .plan import Division, Plan, plan_for

_TRIED = 12  # folds whose tiles are searched: those with the fewest products


@dataclass(frozen=True)
class FoldedDivision(Division):
    """A layer on the entries of `fold`: one block of the input, of which the terms are the taps."""

    fold: Fold
    geometry: FoldTiles

    @staticmethod
    def folded(shape: ConvShape, ternary: int, fold: Fold, cfg: Config) -> FoldedDivision:
        """The division of a layer whose last `ternary` output channels are ternary."""
        plain = Division.of(shape, ternary, cfg)
        return FoldedDivision(
            shape, plain.images, 1, plain.gemm, plain.ternary, plain.groups, fold, FoldTiles(shape, fold, cfg)
        )

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
    """The plan of a layer on the entries of `fold`. Raises `ScheduleError` if no tile fits."""
    return Plan(FoldedDivision.folded(shape, ternary, fold, cfg), cfg)


def cheapest(op: g.QConv2d, cfg: Config, *, nhwc: bool) -> Fold | None:
    """As `direct.fold.cheapest`, for a layer of two units."""
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

    def load_input(self, base: int, area: Area, chunk: range) -> None:
        """Load the strips of a tile to `base`."""
        work, op = self.work, self.op
        assert isinstance(work, FoldedDivision) and isinstance(op, g.QConv2d)
        load_strips(self.rec.program, op, work.geometry, (base, self.x), (area.image, area[1:]))

    def multiply(self, unit: Unit, places: tuple[int, int, int], work: tuple[int, range], area: Area) -> None:
        """The products of a unit: phases with equal numbers of columns share an instruction."""
        (acc, inp, wgt), division, (sy, _) = places, self.work, self.shape.strides
        assert isinstance(division, FoldedDivision)
        fold, width = division.fold, division.width(area.columns)
        apart = fold.rows * self.shape.dilations[0] // fold.step * width  # entries between strips of a window
        terms = np.array(fold.terms)
        new = np.diff(terms[:, 0], prepend=-1) > 0  # the first term of its phase
        columns = np.array([fold.columns(phase, area.columns) for phase in terms[:, 0]])
        for many in sorted({*columns.tolist()} - {0}):
            loops = [
                (len(unit.groups(work[0])), self.tile.area, 0, len(terms)),
                (area.rows, area.columns, sy // fold.step * width, 0),
                (many, fold.phases, len(fold.offsets), 0),
            ]
            for chosen, overwrite in ((new, True), (~new, False)):
                (k,) = np.nonzero(chosen & (columns == many))
                phase, strip, entry = terms[k].T
                if len(k):
                    uops = np.stack([acc + phase, inp + strip * apart + entry, wgt + k], axis=1)
                    unit.record(uops, loops, overwrite=overwrite)
