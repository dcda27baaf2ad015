"""Leaky ReLU without a table: the larger of two lines, or the smaller one where the slope below zero is the steeper.

Where both slopes are multiples of one unit, the lines are products with multiples of an identity, and the store scales
the result: that is tried for all 256 values. Else the ALU rescales both lines as the function's definition does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ....hw.config import Config
from ....hw.isa import AluOp, Mem
from ....hw.rounding import quantize_multiplier, rescale
from ....hw.units import striped
from ... import cost
from ... import graph as g
from ...graph.integer_forms import Requant
from ..recording import Recording, entries, scale_parameters, store_parameters
from .on_chip import on_chip

_TILE = 200  # entries: enough to hide what an instruction costs, and few enough for a short start and end
_VALUES = np.arange(-128, 128)
_MOST = 127  # of a weight
_UNIT = (1 << 30, 1)  # of RESCALE that changes nothing


@dataclass(frozen=True)
class Lines:
    """`store(max(above * x, below * x + offset))`, or min where the line below the zero point is the steeper one.

    With `scales`, (multiplier, exponent) above and below, `offset` is added to both lines, which are then rescaled.
    """

    above: int
    below: int
    offset: int
    store: Requant
    scales: tuple[tuple[int, int], tuple[int, int]] | None
    larger: bool

    def apply(self, x: np.ndarray) -> np.ndarray:
        """int8 values of int8 `x`."""
        x = x.astype(np.int64)
        lines = [self.above * x, self.below * x + self.offset]
        if self.scales is not None:
            lines = [rescale(x + self.offset, *scale) for scale in self.scales]
        return self.store.apply(np.maximum(*lines) if self.larger else np.minimum(*lines))

    @property
    def passes(self) -> int:
        """Cycles per entry in which the array or the ALU work: products, sums, MAX, and two for each RESCALE."""
        return 3 + (self.offset != 0) if self.scales is None else 7 + 2 * (self.offset != 0)


def lines_of(op: g.LeakyRelu) -> Lines:
    """The two lines of a rectifier, whose slopes are not negative: the cheaper form that is exact."""
    return _found(op.table.tobytes(), op.x.zero_point, op.output.zero_point, op.slopes, op.multipliers)


@lru_cache(maxsize=256)
def _found(
    table: bytes,
    zero: int,
    target: int,
    slopes: tuple[float, float],
    scales: tuple[tuple[int, int], tuple[int, int]],
) -> Lines:
    wanted = np.frombuffer(table, np.int8)
    exact = (each for each in _products(wanted, zero, target, slopes) if np.array_equal(each.apply(_VALUES), wanted))
    rescaled = Lines(1, 1, -zero, Requant(0, *_UNIT, target), scales, slopes[1] <= slopes[0])
    return next(exact, rescaled)


def _products(wanted: np.ndarray, zero: int, target: int, slopes: tuple[float, float]) -> Iterator[Lines]:
    """Lines of multiples of one unit that are exact above the zero point."""
    right = _VALUES >= zero
    for above in range(_MOST, 0, -1) if slopes[0] > 0 else ():
        for contract in ("double", "single"):
            store = Requant(-above * zero, *quantize_multiplier(slopes[0] / above), target, contract=contract)
            if not np.array_equal(store.apply(above * _VALUES[right]), wanted[right]):
                continue
            near = round(slopes[1] / slopes[0] * above)
            for below in (near, near - 1, near + 1):
                if 0 <= below <= _MOST:
                    yield Lines(above, below, (above - below) * zero, store, None, below <= above)


def cycles(count: int, lines: Lines, cfg: Config) -> float:
    """Estimated cycles of `count` entries."""
    tiles = -(-count // _TILE)
    loads = cost.transfer(striped(cfg), count * cfg.inp_entry_bytes, tiles)
    stores = cost.transfer(cfg, count * cfg.out_entry_bytes, tiles)
    return max(cost.computed(lines.passes * count, 4 * tiles), loads, stores) + (loads + stores) / tiles


def lower(rec: Recording, op: g.LeakyRelu) -> None:
    """Append a rectifier with a slope below the zero point, tile by tile."""
    cfg, program, lines = rec.cfg, rec.program, lines_of(op)
    total, half = entries(rec, op.output), cfg.acc_depth // 2
    tile = min(_TILE, total, cfg.inp_depth // 2, half // 2)
    identity = np.eye(cfg.block_out, cfg.block_in, dtype=np.int8)
    multiples = np.stack([identity * lines.above, identity * lines.below]).astype(np.int8)
    with on_chip(rec) as chip:
        wgt = chip.constant(Mem.WGT, rec.constant(f"{op.name}.multiples", multiples), 2)
        scales = [scale_parameters(rec, op, str(k), scale) for k, scale in enumerate(lines.scales or ())]
        par = chip.region(Mem.PAR, 1 + len(scales))
        for k, buffer in enumerate((store_parameters(rec, op, lines.store), *scales)):
            program.load(Mem.PAR, par + k, buffer, 0)
        inp, accs = chip.slots(Mem.INP, tile), chip.banks(2 * tile, 2 * tile, half)
        for k, first in enumerate(range(0, total, tile)):
            count = min(tile, total - first)
            own, other = accs[k % 2], accs[1 - k % 2] + tile  # in two banks, so that the ALU reads both in one cycle
            program.load(Mem.INP, inp[k % 2], rec.operand(op, 0), first, x_size=count)
            for number, acc in enumerate((own, other)):
                program.gemm([(count, 1, 1, 0)], acc, inp[k % 2], wgt + number, overwrite=True)
                if lines.offset and (scales or number):
                    program.alu(AluOp.ADD, [(count, 1, 0)], acc, imm=lines.offset)
                if scales:
                    program.alu(AluOp.RESCALE, [(count, 1, 0)], acc, imm=par + 1 + number)
            program.alu(AluOp.MAX if lines.larger else AluOp.MIN, [(count, 1, 1)], own, other)
            program.store(own, rec.activations[op.output.name], first, x_size=count, par=par)
