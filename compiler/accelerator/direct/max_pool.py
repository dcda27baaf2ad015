"""Maxima over windows on both units: GEMM copies the image to the accumulators, the ALU takes the maxima.

Products with an identity sort the pixels: those that become results are contiguous, and those that they are compared
with are in the other bank, so that the ALU reads both in one cycle. Unlike accumulator loads, loads of the input
scratchpad run ahead of the ALU.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from ....hw.config import Config
from ....hw.isa import AluOp, Mem
from ....hw.units import striped
from ... import cost
from ... import graph as g
from ...graph.integer_forms import Requant
from ..recording import Recording, store_parameters
from .on_chip import on_chip

_MOST_CLASSES = 3  # most classes of rows or columns: with more, instructions would be too short


@dataclass(frozen=True)
class Part:
    """Rows (or columns) of the image: `count(results)` of them, a stride apart, from `first` on.

    Result i is compared with rows `i + shift` for each of `shifts`; the part without shifts becomes the results.
    """

    first: int
    shifts: tuple[int, ...]

    def count(self, results: int) -> int:
        """Number of rows for `results` results."""
        return results + max(self.shifts, default=0)


def parts(kernel: int, stride: int) -> tuple[Part, ...]:
    """The parts of one dimension, that of the results first."""
    classes = [range(first, kernel, stride) for first in range(min(kernel, stride))]
    own = min(classes, key=len)[0]  # its class has no other, if possible
    others = ([tap for tap in taps if tap != own] for taps in classes)
    compared = (Part(taps[0], tuple((tap - taps[0]) // stride for tap in taps)) for taps in others if taps)
    return (Part(own, ()), *compared)


class MaxTiles:
    """The cheapest tiles that fit: `rows` x `columns` results in two slots, images in two slots.

    `cycles` is the estimate for the whole operator.
    """

    def __init__(self, op: g.MaxPool, cfg: Config):
        self.op, self.cfg, self.half = op, cfg, cfg.acc_depth // 2
        n, c, self.oy, self.ox = op.output.shape
        self.images = -(-n // cfg.batch) * -(-c // cfg.block_out)  # with one block of channels
        self.y, self.x = (parts(k, s) for k, s in zip(op.kernel, op.strides))
        fitting = [(rows, columns) for rows, columns in self._extents() if self._fits(rows, columns)]
        self.fit = bool(fitting)
        self.rows, self.columns = min(fitting, key=lambda tile: self._cycles(*tile)) if fitting else (0, 0)
        self.cycles = self._cycles(self.rows, self.columns) if fitting else math.inf

    def _extents(self) -> Iterator[tuple[int, int]]:
        rows, columns = (sorted({-(-extent // k) for k in range(1, extent + 1)}) for extent in (self.oy, self.ox))
        yield from product(rows, columns)

    def image(self, rows: int, columns: int) -> tuple[int, int]:
        """Padded rows and columns of the image for a tile of results."""
        return self.op.shape.reach(rows, columns)

    def sizes(self, rows: int, columns: int) -> dict[tuple[Part, Part], int]:
        """Accumulators of each pair of parts."""
        return {(y, x): y.count(rows) * x.count(columns) for y, x in product(self.y, self.x)}

    def in_result_bank(self, y: Part, x: Part) -> bool:
        """True if the pair is in the bank of the results: it is compared with pairs in the other."""
        return (y is self.y[0]) == (x is self.x[0])

    def _fits(self, rows: int, columns: int) -> bool:
        height, width = self.image(rows, columns)
        banks = [0, 0]
        for pair, size in self.sizes(rows, columns).items():
            banks[self.in_result_bank(*pair)] += size * (2 if pair == (self.y[0], self.x[0]) else 1)
        return 2 * height * width <= self.cfg.inp_depth and max(banks) <= self.half

    def _cycles(self, rows: int, columns: int) -> float:
        loaded = self.cfg.inp_entry_bytes * math.prod(self.image(rows, columns))
        micro_ops = sum(self.sizes(rows, columns).values())
        micro_ops += sum(rows * x.count(columns) * len(y.shifts) for y, x in product(self.y, self.x))
        micro_ops += sum(rows * columns * len(x.shifts) for x in self.x)
        tiles = self.images * -(-self.oy // rows) * -(-self.ox // columns)
        each = cost.roofline(striped(self.cfg), micro_ops, loaded) + cost.MAX_TILE
        return tiles * each + cost.moved(striped(self.cfg), loaded)

    def __iter__(self) -> Iterator[tuple[int, int, int, int]]:
        """(first row, first column, rows, columns) of each tile's results."""
        for y, x in product(range(0, self.oy, self.rows), range(0, self.ox, self.columns)):
            yield y, x, min(self.rows, self.oy - y), min(self.columns, self.ox - x)


@cost.cached(64)
def tiles_of(op: g.MaxPool, cfg: Config) -> MaxTiles | None:
    """Tiles of a maximum; None if the configuration cannot run it this way."""
    needed = {"overwrite", "requant", "pad_value"}
    if not needed <= cfg.extensions or cfg.block_in != cfg.block_out or cfg.inp_depth < cfg.acc_depth:
        return None  # micro-ops address the second operand with the bits of an input index
    if any(min(k, s) > _MOST_CLASSES for k, s in zip(op.kernel, op.strides)):
        return None
    if any(pad >= k for pad, k in zip(op.pads, 2 * op.kernel)):
        return None  # some windows hold only padding
    tiles = MaxTiles(op, cfg)
    return tiles if tiles.fit else None


def lower(rec: Recording, op: g.MaxPool, tiles: MaxTiles) -> None:
    """Append a maximum over windows, tile by tile."""
    cfg, out, results = rec.cfg, rec.activations[op.output.name], tiles.rows * tiles.columns
    pairs = tiles.sizes(tiles.rows, tiles.columns)
    beside = sum(n for pair, n in pairs.items() if tiles.in_result_bank(*pair)) + results
    identity = np.eye(cfg.block_out, cfg.block_in, dtype=np.int8)
    with on_chip(rec) as chip:
        wgt = chip.constant(Mem.WGT, rec.constant(f"{op.name}.identity", identity))
        par = chip.constant(Mem.PAR, store_parameters(rec, op, Requant(0, 1 << 30, 1, 0, op.low, op.high)))
        inp = chip.slots(Mem.INP, math.prod(tiles.image(tiles.rows, tiles.columns)))
        banks = chip.banks(sum(pairs.values()) + results - beside, beside, tiles.half)
        own, *compared = pairs
        free, fixed = [banks[0], banks[1] + 2 * results], {}
        for pair in compared:
            fixed[pair] = free[tiles.in_result_bank(*pair)]
            free[tiles.in_result_bank(*pair)] += pairs[pair]
        for k, (image, tile) in enumerate(product(range(tiles.images), tiles)):
            y, x, *extents = tile
            base, acc = inp[k % 2], banks[1] + k % 2 * results
            _load(rec, op, image, base, tile, tiles.image(*extents))
            _copy(rec, op, tiles, {own: acc, **fixed}, (base, wgt), (extents[0], extents[1]))
            _compare(rec, tiles, {own: acc, **fixed}, (extents[0], extents[1]))
            first, (rows, columns) = (image * tiles.oy + y) * tiles.ox + x, extents
            rec.program.store(acc, out, first, y_size=rows, x_size=columns, x_stride=tiles.ox, par=par)


def _load(
    rec: Recording, op: g.MaxPool, image: int, base: int, tile: tuple[int, int, int, int], size: tuple[int, int]
) -> None:
    """Load the inputs of a tile, padded with the smallest value."""
    (h, w), (y, x, *_) = op.x.shape[2:], tile
    margins, begins, counts = [], [], []
    for first, stride, before, extent, count in zip((y, x), op.strides, op.pads[:2], (h, w), size):
        begin = first * stride - before
        low, high = max(0, -begin), max(0, begin + count - extent)
        margins += [low, high]
        begins.append(begin + low)
        counts.append(count - low - high)
    offset = (image * h + begins[0]) * w + begins[1]
    pads = margins[0], margins[1], margins[2], margins[3]
    where = {"y_size": counts[0], "x_size": counts[1], "x_stride": w}
    rec.program.load(Mem.INP, base, rec.operand(op, 0), offset, **where, pads=pads, pad_value=-128 if any(pads) else 0)


def _copy(
    rec: Recording,
    op: g.MaxPool,
    tiles: MaxTiles,
    at: dict[tuple[Part, Part], int],
    bases: tuple[int, int],
    extents: tuple[int, int],
) -> None:
    """Copy the image at `bases`, (inputs, identity), to the accumulators `at` of each pair of parts."""
    (inp, wgt), (rows, columns), (sy, sx) = bases, extents, op.strides
    _, width = tiles.image(rows, columns)
    for (y, x), acc in at.items():
        wide = x.count(columns)
        loops = [(y.count(rows), wide, sy * width, 0), (wide, 1, sx, 0)]
        rec.program.gemm(loops, acc, inp + y.first * width + x.first, wgt, overwrite=True)


def _compare(rec: Recording, tiles: MaxTiles, at: dict[tuple[Part, Part], int], extents: tuple[int, int]) -> None:
    """Maxima of rows, for all columns; then of columns."""
    (rows, columns), (own_y, own_x) = extents, (tiles.y[0], tiles.x[0])
    for x, y in product(tiles.x, tiles.y):
        wide = x.count(columns)
        for shift in y.shifts:
            rec.program.alu(AluOp.MAX, [(rows * wide, 1, 1)], at[own_y, x], at[y, x] + shift * wide)
    for x in tiles.x:
        loops = [(rows, columns, x.count(columns)), (columns, 1, 1)]
        for shift in x.shifts:
            rec.program.alu(AluOp.MAX, loops, at[own_y, own_x], at[own_y, x] + shift)
