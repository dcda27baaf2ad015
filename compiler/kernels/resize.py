"""Bilinear resizes whose weights are quarters, eighths or the like: products with multiples of an identity.

A pixel is the sum of up to four neighbours, each times a small integer; the store divides. Pixels with equal weights
and neighbours at equal distances form a grid: one or two instructions. The weights of aligned corners have ten bits per
axis, twenty per product: they are no int8. Four stages of a schedule, one per phase, would be stored apart, pixel by
pixel.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from ...runtime.kernels.resize import ONE, integer_positions, real_positions
from .. import graph as g
from ..graph.integer_forms import mean_store
from .language import Kernel, Unfit, equal_parts, every


@dataclass(frozen=True)
class Run:
    """Outputs `first + t * axis.period`, t below `count`: each the sum of inputs `place + t * axis.step` times `weight`
    for each (place, weight) of `taps`."""

    first: int
    count: int
    taps: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Interpolation:
    """One axis of a resize: its runs, whose weights add up to `denominator`, a power of two."""

    period: int
    step: int
    denominator: int
    runs: tuple[Run, ...]

    @staticmethod
    def of(op: g.ResizeBilinear, k: int) -> Interpolation | None:
        """Axis `k` of the image: 0 for rows, 1 for columns; None where weights have no common denominator."""
        size, out = op.x.shape[2 + k], op.output.shape[2 + k]
        positions = integer_positions if op.offset is None else real_positions
        low, high, upper = positions(size, out, op.align_corners, op.half_pixel_centers)
        upper = np.asarray(upper, np.float64) * (1 if op.offset is None else ONE)
        if (upper % 1).any():
            return None
        weights = [
            {int(a): ONE} if a == b else {int(a): ONE - int(u), int(b): int(u)} for a, b, u in zip(low, high, upper)
        ]
        taps = [tuple((place, w) for place, w in found.items() if w) for found in weights]
        unit = math.gcd(ONE, *(w for found in taps for _, w in found))
        taps = [tuple((place, w // unit) for place, w in found) for found in taps]
        common = math.gcd(size, out)
        period, step = out // common, size // common
        return Interpolation(period, step, ONE // unit, tuple(_runs(taps, period, step)))

    @property
    def weights(self) -> set[int]:
        """The different weights of all runs."""
        return {weight for run in self.runs for _, weight in run.taps}

    def within(self, first: int, count: int) -> Iterator[Run]:
        """The runs of outputs `first` to `first + count`, counted from `first`; their places are those of the input."""
        for run in self.runs:
            skipped = max(0, -(-(first - run.first) // self.period))
            begin = run.first + skipped * self.period
            left = min(run.count - skipped, -(-(first + count - begin) // self.period))
            if left > 0:
                taps = tuple((place + skipped * self.step, weight) for place, weight in run.taps)
                yield Run(begin - first, left, taps)

    def window(self, first: int, count: int) -> tuple[int, int]:
        """(first input, number of inputs) that these outputs read."""
        runs = [*self.within(first, count)]
        low = min(place for run in runs for place, _ in run.taps)
        return low, max(place + (run.count - 1) * self.step for run in runs for place, _ in run.taps) + 1 - low


def _runs(taps: list[tuple[tuple[int, int], ...]], period: int, step: int) -> Iterator[Run]:
    for residue in range(period):
        run = None
        for first in range(residue, len(taps), period):
            if run is not None and taps[first] == tuple((place + run.count * step, w) for place, w in run.taps):
                run = Run(run.first, run.count + 1, run.taps)
                continue
            if run is not None:
                yield run
            run = Run(first, 1, taps[first])
        if run is not None:
            yield run


def resize_bilinear(k: Kernel, op: g.ResizeBilinear) -> None:
    """A resize, in tiles of whole rows of the output."""
    k.need("overwrite")
    down, across = (Interpolation.of(op, axis) for axis in (0, 1))
    if down is None or across is None:
        raise Unfit("its weights are no int8 multiples of a power of two")
    weights = sorted({a * b for a, b in product(down.weights, across.weights)})
    if weights[-1] > 127 or weights[0] < -128:
        raise Unfit("its weights are no int8 multiples of a power of two")
    x, out = k.input(0).merged("image", "n", "b"), k.output.merged("image", "n", "b")
    (images, _, width), (_, height, columns) = x.shape.values(), out.shape.values()

    def inputs(rows: int) -> int:
        tops = range(0, height, rows)
        return width * max(down.window(top, min(rows, height - top))[1] for top in tops)

    sizes = (rows for rows in equal_parts(height) if rows * columns <= k.bank and inputs(rows) <= k.slot)
    if not (rows := next(sizes, 0)):
        raise Unfit(f"a row of {width} pixels, or the one of {columns} that it becomes, does not fit")
    identity = np.eye(k.cfg.block_out, k.cfg.block_in, dtype=np.int8)
    multiples = k.matrices("multiples", np.stack([identity * weight for weight in weights]))
    par = k.parameters(mean_store(down.denominator * across.denominator, ties_up=op.offset is not None))
    xs, ys = k.slots(inputs(rows)), k.banks(rows * columns)
    for image, top in product(range(images), range(0, height, rows)):
        count = min(rows, height - top)
        low, read = down.window(top, count)
        tile, y = xs.load(x[image, low : low + read]), ys.next(h=count, w=columns)
        for v, u in product(down.within(top, count), across.runs):
            grid = y[every(v.first, v.count, down.period), every(u.first, u.count, across.period)]
            with k.together():  # the first neighbour replaces what the accumulators hold
                for number, ((row, a), (column, b)) in enumerate(product(v.taps, u.taps)):
                    near = tile[every(row - low, v.count, down.step), every(column, u.count, across.step)]
                    value = (near @ multiples[weights.index(a * b)]).over("h w")
                    k.multiply(grid, value, overwrite=number == 0)
        k.store(out[image, top : top + count], y, par)
