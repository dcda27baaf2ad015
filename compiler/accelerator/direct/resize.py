"""Bilinear resizes whose weights are quarters, eighths or the like: products with multiples of an identity.

A pixel is the sum of up to four neighbours, each times a small integer; the store divides. Pixels with equal weights
and neighbours at equal distances form a grid: one or two instructions. Those of aligned corners
have ten bits per axis, twenty per product: no int8 weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from ....hw.config import Config
from ....hw.isa import Mem
from ....hw.units import striped
from ....runtime.kernels.resize import ONE, integer_positions, real_positions
from ... import cost
from ... import graph as g
from ...graph.integer_forms import mean_store
from ..recording import Recording, store_parameters
from .on_chip import on_chip


@dataclass(frozen=True)
class Run:
    """Outputs `first + t * axis.period`, t below `count`: each the sum of inputs `place + t * axis.step` times `weight`
    for each (place, weight) of `taps`."""

    first: int
    count: int
    taps: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Axis:
    """One dimension of a resize: its runs, whose weights add up to `denominator`, a power of two."""

    period: int
    step: int
    denominator: int
    runs: tuple[Run, ...]

    @staticmethod
    def of(op: g.ResizeBilinear, k: int) -> Axis | None:
        """Dimension `k` of the image: 0 for rows, 1 for columns; None where weights have no common denominator."""
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
        return Axis(period, step, ONE // unit, tuple(_runs(taps, period, step)))

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


class Plan:
    """A resize by grids, in tiles of `rows` rows of the output; `fit` is False where it is none, or nothing fits."""

    def __init__(self, op: g.ResizeBilinear, cfg: Config):
        n, c, self.h, self.w = op.x.shape
        self.images, (self.oy, self.ox) = -(-n // cfg.batch) * -(-c // cfg.block_in), op.output.shape[2:]
        self.fit, self.rows, self.cycles = False, 0, math.inf
        y, x = (Axis.of(op, k) for k in (0, 1))
        if y is None or x is None:
            return
        self.y, self.x, self.denominator = y, x, y.denominator * x.denominator
        self.weights = sorted({a * b for a, b in product(_weights(y), _weights(x))})
        if self.weights[-1] > 127 or self.weights[0] < -128 or 2 * len(self.weights) > cfg.wgt_depth:
            return
        most = min(self.oy, cfg.acc_depth // 2 // self.ox)
        sizes = sorted({-(-self.oy // k) for k in range(1, self.oy + 1)}, reverse=True)
        fitting = (rows for rows in sizes if rows <= most and 2 * self.inputs(rows) <= cfg.inp_depth)
        self.rows = next(fitting, 0)
        self.fit = self.rows > 0
        self.cycles = self._cycles(cfg) if self.fit else math.inf

    def inputs(self, rows: int) -> int:
        """Most entries that a tile of so many rows loads."""
        tops = range(0, self.oy, rows)
        return self.w * max(self.y.window(first, min(rows, self.oy - first))[1] for first in tops)

    def _cycles(self, cfg: Config) -> float:
        tiles, outputs = -(-self.oy // self.rows), self.oy * self.ox
        products = math.prod(sum(run.count * len(run.taps) for run in axis.runs) for axis in (self.y, self.x))
        loops = sum(len([*self.y.within(k, self.rows)]) for k in range(0, self.oy, self.rows)) * len(self.x.runs)
        loads = cost.transfer(striped(cfg), tiles * self.inputs(self.rows) * cfg.inp_entry_bytes, tiles)
        stores = cost.transfer(cfg, outputs * cfg.out_entry_bytes, tiles)
        first = (loads + stores) / tiles
        return self.images * max(cost.computed(products, 2 * loops), loads, stores) + first


def _weights(axis: Axis) -> set[int]:
    return {weight for run in axis.runs for _, weight in run.taps}


@cost.cached(64)
def plan_of(op: g.ResizeBilinear, cfg: Config) -> Plan | None:
    """The tiles of a resize; None where `cfg` cannot compute it."""
    if not {"overwrite", "requant"} <= cfg.extensions or cfg.block_in != cfg.block_out:
        return None
    plan = Plan(op, cfg)
    return plan if plan.fit else None


def refusal(op: g.ResizeBilinear, cfg: Config) -> str:
    """Reason why the accelerator cannot compute the resize; empty if it can."""
    if plan_of(op, cfg) is not None:
        return ""
    return "its weights are no int8 multiples of a power of two, or its rows do not fit"


def lower(rec: Recording, op: g.ResizeBilinear) -> None:
    """Append a resize, tile by tile."""
    cfg, plan, out = rec.cfg, plan_of(op, rec.cfg), rec.activations[op.output.name]
    assert plan is not None  # `refusal` said so
    identity = np.eye(cfg.block_out, cfg.block_in, dtype=np.int8)
    multiples = np.stack([identity * weight for weight in plan.weights]).astype(np.int8)
    store, size = mean_store(plan.denominator, ties_up=op.offset is not None), plan.rows * plan.ox
    with on_chip(rec) as chip:
        wgt = chip.constant(Mem.WGT, rec.constant(f"{op.name}.multiples", multiples), len(plan.weights))
        par = chip.constant(Mem.PAR, store_parameters(rec, op, store))
        inp, acc = chip.slots(Mem.INP, plan.inputs(plan.rows)), chip.banks(size, size, cfg.acc_depth // 2)
        tiles = product(range(plan.images), range(0, plan.oy, plan.rows))
        for k, (image, first) in enumerate(tiles):
            rows = min(plan.rows, plan.oy - first)
            low, count = plan.y.window(first, rows)
            where = (image * plan.h + low) * plan.w
            rec.program.load(Mem.INP, inp[k % 2], rec.operand(op, 0), where, x_size=count * plan.w)
            for down, across in product(plan.y.within(first, rows), plan.x.runs):
                _products(rec, plan, (acc[k % 2], inp[k % 2] - low * plan.w, wgt), (down, across))
            rec.program.store(acc[k % 2], out, (image * plan.oy + first) * plan.ox, x_size=rows * plan.ox, par=par)


def _products(rec: Recording, plan: Plan, bases: tuple[int, int, int], runs: tuple[Run, Run]) -> None:
    """The products of one grid: the first neighbour replaces what the accumulators hold."""
    (acc, inp, wgt), (down, across) = bases, runs
    loops = [(down.count, plan.y.period * plan.ox, plan.y.step * plan.w, 0)]
    loops += [(across.count, plan.x.period, plan.x.step, 0)]
    uops = [
        (acc + down.first * plan.ox + across.first, inp + y * plan.w + x, wgt + plan.weights.index(a * b))
        for (y, a), (x, b) in product(down.taps, across.taps)
    ]
    rec.program.gemm_uops(np.array(uops[:1]), loops, overwrite=True)
    if uops[1:]:
        rec.program.gemm_uops(np.array(uops[1:]), loops)
