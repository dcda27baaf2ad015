"""float32 images to int8 on the ALU, as they lie in memory: the steps of integers.py, entry by entry of 16 values.

The bits come as accumulators. Values wait in one bank and are quantised in the other one, so that the ALU reads two
operands in one cycle; constants lie in the bank opposite to what they are combined with. A load of accumulators is
written while the ALU leaves its bank alone, so the steps that need one bank only stand behind it. The largest number
after step 2 tells whether a value was NaN.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ....hw.config import Config
from ....hw.isa import AluOp, Mem
from ....hw.rtl.latencies import issue_interval
from ....hw.units import striped
from ....runtime.buffer import Buffer
from ... import cost
from ... import graph as g
from ...graph.integer_forms import Requant
from ..direct.on_chip import OnChip, on_chip
from ..recording import Recording, store_parameters
from .integers import EXPONENT_SHIFT, NUMBERS, Steps, steps_of

_TILE = 96  # entries: enough to hide what an instruction costs, and few, as nothing hides the first load
_REGIONS = 4  # of a tile's size in the first bank: values of two tiles, amounts, the larger line
_STORED = 3  # tiles in the second bank: one is stored, slowly, as the ALU reads its bank, and the next prepared
_LEFT = 8  # accumulators of a bank for constants
_SINGLE, _DOUBLE = 20, 3  # operations per entry of one cycle, and those that multiply


def cycles(count: int, cfg: Config) -> float:
    """Estimated cycles of `count` entries: the ALU's, and the first load and the last store."""
    tile = tile_of(count, cfg)
    first = cost.transfer(striped(cfg), tile * cfg.acc_entry_bytes) + cost.transfer(cfg, tile * cfg.out_entry_bytes)
    each = _SINGLE + _DOUBLE * issue_interval(cfg, multiply=True)
    return cost.computed(each * count, (_SINGLE + _DOUBLE) * -(-count // tile)) + first + 2 * cost.round_trip()


def tile_of(count: int, cfg: Config) -> int:
    """Entries of a tile; 0 where the accumulators are too few."""
    return max(0, min(_TILE, count, (cfg.acc_depth // 2 - _LEFT) // _REGIONS))


def lower(rec: Recording, op: g.QuantizeImage, x: Buffer, flags: Buffer) -> None:
    """Append the quantisation of `x`; `flags`, an entry, become other than 0 where a value was NaN."""
    steps = steps_of(op.output.scale, op.output.zero_point)
    assert steps is not None
    count = op.output.nbytes // rec.cfg.block_out
    with on_chip(rec) as chip:
        kernel = _Kernel(rec, op, steps, chip, tile_of(count, rec.cfg))
        kernel.run(x, count)
        rec.program.store(kernel.largest, flags, 0, par=kernel.flag)


@dataclass(frozen=True)
class _Tile:
    """Entries from `first` on, with their values at `values` and what becomes of them at `whole`."""

    first: int
    count: int
    values: int
    whole: int


class _Kernel:
    """Where everything is on chip."""

    def __init__(self, rec: Recording, op: g.QuantizeImage, steps: Steps, chip: OnChip, tile: int):
        self.rec, self.op, self.tile, half = rec, op, tile, rec.cfg.acc_depth // 2
        size = rec.cfg.block_out
        ones, minus_two = (np.zeros((1, k, rec.cfg.block_in), np.int8) for k in (1, size))
        ones[..., 0], minus_two[..., 0] = 1, -2
        self.ones = chip.constant(Mem.INP, rec.constant(f"{op.name}.ones", ones))
        self.minus_two = chip.constant(Mem.WGT, rec.constant(f"{op.name}.minus_two", minus_two))
        self.par = chip.region(Mem.PAR, 3)
        self.reciprocal, self.flag = self.par + 1, self.par + 2
        flag = Requant(-NUMBERS, 1 << 30, 1, 0, 0, 127)
        reciprocal = Requant(0, *steps.reciprocal, 0, contract="single")
        for k, found in enumerate((steps.store, reciprocal, flag)):
            rec.program.load(Mem.PAR, self.par + k, store_parameters(rec, op, found), 0)
        low, self.whole = chip.banks(_REGIONS * tile + _LEFT, _STORED * tile + _LEFT, half)
        self.values, self.amounts, self.larger = low, low + 2 * tile, low + 3 * tile
        self.largest = low + _REGIONS * tile
        near, far = (NUMBERS, steps.least, steps.base), (steps.align, steps.centre, steps.corner)
        self.numbers, self.least, self.base = self._constants("near", self.largest + 1, near)
        self.align, self.centre, self.corner = self._constants("far", self.whole + _STORED * tile, far)
        self._start()

    def _constants(self, name: str, base: int, numbers: tuple[int, ...]) -> range:
        """Load an accumulator for each of `numbers`; their places."""
        rec = self.rec
        data = np.repeat(np.array(numbers, np.int64), rec.cfg.block_out).astype(np.int32)
        rec.program.load(Mem.ACC, base, rec.constant(f"{self.op.name}.{name}", data), 0, x_size=len(numbers))
        return range(base, base + len(numbers))

    def _start(self) -> None:
        """Give what tiles leave behind for the next ones its first values."""
        program = self.rec.program
        program.gemm([(1, 1, 0, 0)], self.largest, reset=True)
        self._each(AluOp.MAX, 1, self.largest, self.numbers)
        program.gemm([(self.tile, 1, 0, 0)], self.larger, reset=True)
        self._by(AluOp.MAX, self.tile, self.larger, self.corner)

    def run(self, x: Buffer, count: int) -> None:
        """Append all tiles; the values of each are loaded while the one before it is quantised."""
        program, tiles = self.rec.program, [*self._tiles(count)]
        for tile in tiles[:1]:
            program.load(Mem.ACC, tile.values, x, tile.first, x_size=tile.count)
            self._prepare(tile)
        for tile, following in zip(tiles, [*tiles[1:], None]):
            self._exponents(tile)
            if following is not None:
                program.load(Mem.ACC, following.values, x, following.first, x_size=following.count)
            program.alu(AluOp.MUL, [(tile.count, 1, 0)], tile.whole, imm=-256)
            self._by(AluOp.ADD, tile.count, tile.whole, self.centre)
            program.alu(AluOp.RESCALE, [(tile.count, 1, 0)], tile.whole, imm=self.reciprocal)
            if following is not None:
                self._prepare(following)
            self._quotients(tile)
            out = self.rec.activations[self.op.output.name]
            program.store(tile.whole, out, tile.first, x_size=tile.count, par=self.par)

    def _tiles(self, count: int) -> Iterator[_Tile]:
        for k, first in enumerate(range(0, count, self.tile)):
            values, whole = self.values + k % 2 * self.tile, self.whole + k % _STORED * self.tile
            yield _Tile(first, min(self.tile, count - first), values, whole)

    def _prepare(self, tile: _Tile) -> None:
        """-2 everywhere."""
        self.rec.program.gemm([(tile.count, 1, 0, 0)], tile.whole, self.ones, self.minus_two, overwrite=True)

    def _exponents(self, tile: _Tile) -> None:
        """Steps 1 to 4: twice the negative magnitudes, the amounts of shifts."""
        n, program = tile.count, self.rec.program
        program.gemm([(n, 1, 0, 0)], self.amounts, reset=True)
        self._each(AluOp.MUL, n, tile.whole, tile.values)
        self._by(AluOp.ADD, n, tile.whole, self.numbers)
        program.alu(AluOp.MAX, [(n, 0, 1)], self.largest, tile.whole)
        self._by(AluOp.MAX, n, tile.whole, self.least)
        self._each(AluOp.ADD, n, self.amounts, tile.whole)
        self._by(AluOp.ADD, n, self.amounts, self.align)

    def _quotients(self, tile: _Tile) -> None:
        """Steps 6 to 9: of two lines the larger one, shifted, with its sign."""
        n, program = tile.count, self.rec.program
        program.alu(AluOp.SHR, [(n, 1, 0)], self.amounts, imm=EXPONENT_SHIFT)
        self._by(AluOp.MIN, n, self.larger, self.corner)  # never less: now it is the corner
        self._each(AluOp.MAX, n, self.larger, tile.whole)
        self._each(AluOp.ADD, n, tile.whole, self.larger)
        self._by(AluOp.ADD, n, tile.whole, self.base)
        self._each(AluOp.SHR, n, tile.whole, self.amounts)
        program.alu(AluOp.MAX, [(n, 1, 0)], tile.values, imm=-1)
        program.alu(AluOp.MIN, [(n, 1, 0)], tile.values, imm=1)
        self._each(AluOp.MUL, n, tile.whole, tile.values)

    def _each(self, op: AluOp, count: int, dst: int, src: int) -> None:
        """An operation on `count` pairs of accumulators."""
        self.rec.program.alu(op, [(count, 1, 1)], dst, src)

    def _by(self, op: AluOp, count: int, dst: int, constant: int) -> None:
        """An operation on `count` accumulators and one constant."""
        self.rec.program.alu(op, [(count, 1, 0)], dst, constant)
