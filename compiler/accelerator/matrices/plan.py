"""Tiles of a product of two computed matrices, and what must be done to its second operand before.

Matrices are images whose pixels are rows: in blocks of channels, the 16 entries of 16 rows that follow one another are
an entry of weights. So the second operand, `transposed`, is read as weights where it lies. Otherwise the array
transposes it. Rows that are no multiple of a block, and columns that are none, are copied with zeros behind them first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from ....hw.config import Config
from ....hw.units import striped
from ... import cost
from ... import graph as g
from ...limits import limits

_PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
_HALF = 64  # the largest part of a zero point: two of them are 128, which is no int8
CONSTANTS = 4  # entries of inputs and of weights that hold zero points


@dataclass(frozen=True)
class Tile:
    """Extents of a tile: matrices, blocks of columns, rows, blocks of the sums."""

    matrices: int
    columns: int
    rows: int
    inner: int


class Plan:
    """The tiles of a product of `matrices`, (rows, 16 * inner) by (16 * inner, 16 * columns).

    `copied` says whether the second operand is copied before it is read. `cycles` is the estimate of all.
    """

    def __init__(self, op: g.BatchMatMul, cfg: Config):
        x, y = (t.shape for t in op.inputs)
        block = cfg.block_in
        self.matrices, self.rows = op.output.shape[0], x[3]
        self.same_x, self.same_y = (t[0] < self.matrices for t in (x, y))  # one operand for all matrices
        self.inner, self.columns = -(-x[1] // block), -(-op.output.shape[1] // block)
        self.lanes = x[1] % block or block  # of the last block of the sums
        self.transposed = op.transposed
        self.copied = bool(y[3] % block or (op.transposed and self.lanes < block))
        self.points = tuple(digits(t.zero_point) for t in op.inputs)
        self.cfg = cfg
        self.entries = y[0] * self.inner * self.columns  # of the weights
        tiles = [(self._cycles(tile), k, tile) for k, tile in enumerate(self._tiles())]
        self.cycles, _, self.tile = min(tiles)
        self.cycles += self._before()

    @property
    def rows_apart(self) -> bool:
        """True where sums of the rows of x, for the zero point of y, are added to those of the products."""
        t = self.tile
        return bool(self.points[1]) and t.columns * self.inner > self.inner + t.columns

    @property
    def columns_apart(self) -> bool:
        """True where sums of the columns of y, for the zero point of x, are added to those of the products."""
        return bool(self.points[0]) and min(self.inner, self.tile.rows) > 1

    def extra(self, tile: Tile) -> int:
        """Accumulators of a tile for sums of rows and of columns."""
        return tile.matrices * (tile.rows * bool(self.points[1]) + tile.columns * bool(self.points[0]))

    def _tiles(self) -> Iterator[Tile]:
        """The tiles that fit, or one that does not; several matrices are together only as wholes."""
        cfg = self.cfg
        sizes = [sorted({-(-n // k) for k in _PARTS} | {1}) for n in (self.columns, self.rows, self.inner)]
        found = 0
        for columns, rows, inner in product(*sizes):
            whole = (columns, rows, inner) == (self.columns, self.rows, self.inner) and not self.same_x
            for matrices in sorted({-(-self.matrices // k) for k in _PARTS}) if whole else (1,):
                tile = Tile(matrices, columns, rows, inner)
                weights = (1 if self.same_y else matrices) * columns * inner
                fits = (
                    2 * matrices * rows * inner + CONSTANTS <= cfg.inp_depth
                    and 2 * weights + CONSTANTS <= cfg.wgt_depth
                )
                if fits and matrices * columns * rows + self.extra(tile) <= cfg.acc_depth // 2:
                    found += 1
                    yield tile
        if not found:
            yield Tile(1, 1, 1, 1)

    def _cycles(self, t: Tile) -> float:
        """Estimated cycles of the products: of each tile, its longest part; of the first and the last, all."""
        cfg, port = self.cfg, striped(self.cfg)
        groups, across = -(-self.matrices // t.matrices), -(-self.columns // t.columns)
        down, deep = -(-self.rows // t.rows), -(-self.inner // t.inner)
        steps = groups * across * down * deep
        x, y = (bool(each) for each in self.points)
        loaded = steps if deep > 1 or (across > 1 and down > 1) else groups * down
        weights = steps if deep > 1 else groups * across
        if self.same_y and deep == across == 1:
            weights = 1
        read = loaded * t.matrices * t.rows * t.inner * cfg.inp_entry_bytes
        read += weights * (1 if self.same_y else t.matrices) * t.columns * t.inner * cfg.wgt_entry_bytes
        load = cost.transfer(port, read, loaded + weights, loaded * t.matrices * t.inner)
        written = self.matrices * self.columns * self.rows
        store = cost.transfer(cfg, written * cfg.out_entry_bytes, steps // deep, self.matrices * self.columns * down)
        products = self.matrices * self.columns * self.rows * self.inner
        sums = across * self.matrices * self.rows * self.inner * len(self.points[1])
        sums += down * self.matrices * self.columns * self.inner * len(self.points[0])
        compute = cost.computed(products + sums + (x + y) * written, steps * (2 + 2 * x + 2 * y))
        return max(load, store, compute) + (load + store) / steps + cost.latency()

    def _before(self) -> float:
        """Estimated cycles of what is done to the second operand before."""
        cfg, nbytes = self.cfg, self.entries * self.cfg.wgt_entry_bytes
        passes = self.copied + (not self.transposed)
        return passes * (cost.transfer(cfg, nbytes, self.entries // 16 + 1) + cost.round_trip() + cost.kernel())

    def __iter__(self) -> Iterator[tuple[int, int, int, Tile]]:
        """(first matrix, first block of columns, first row, extents with all of the sums) of each tile."""
        t = self.tile
        firsts = (
            range(0, n, k) for n, k in ((self.matrices, t.matrices), (self.columns, t.columns), (self.rows, t.rows))
        )
        for m, n, r in product(*firsts):
            sizes = min(t.matrices, self.matrices - m), min(t.columns, self.columns - n), min(t.rows, self.rows - r)
            yield m, n, r, Tile(*sizes, self.inner)


def digits(zero_point: int) -> tuple[int, ...]:
    """int8 numbers whose sum is `-zero_point`; none for 0."""
    if zero_point == -2 * _HALF:
        return _HALF, _HALF
    return (-zero_point,) if zero_point else ()


def refusal(op: g.BatchMatMul, cfg: Config) -> str:
    """Reason why the accelerator cannot compute the product; empty if it can."""
    if cfg.batch > 1 or cfg.block_in != cfg.block_out or "overwrite" not in cfg.extensions:
        return "it needs batch 1, blocks of one size and the extension overwrite"
    if not op.images:
        return f"operands of shapes {op.inputs[0].shape} and {op.inputs[1].shape} are no images"
    most, rows = limits(cfg, "STOREQ")["x_stride"], max(t.shape[3] for t in op.inputs)
    return f"{rows} rows: at most {most}" if rows > most else ""


def cycles(op: g.BatchMatMul, cfg: Config) -> float:
    """Estimated cycles of the product, with a program's start and end."""
    return plan_of(op, cfg).cycles + cost.OPERATOR


@cost.cached(128)
def plan_of(op: g.BatchMatMul, cfg: Config) -> Plan:
    """The plan of a product of images."""
    return Plan(op, cfg)
