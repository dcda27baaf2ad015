"""Deeploy's softmax along the columns of an image, whose channels are heads: tables, and exact quotients by a sum.

With t = levels * 2**k // sum, where no exponential e reaches 2**k, `e * t >> k` is the quotient or one less; what is
left then says which. t is the result of a long division, with a bit for each power of two times the sum that can
still be subtracted: `min(v, v - d)` of unsigned numbers does both. v is what is left, with the bits of t behind it; to
compare numbers as if they were unsigned, 2**31 is subtracted from it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....hw.config import Config
from ....hw.isa import AluOp, Mem
from ....hw.rtl.latencies import issue_interval, multiply_interval
from ....runtime.kernels.deeploy import exponentials
from ... import graph as g
from ..attention import root
from ..direct import lookup
from ..direct.on_chip import on_chip
from ..recording import Recording, packed_shape
from .folding import folded, instructions

_TOP = 1 << 31


def refusal(op: g.IntegerSoftmax, cfg: Config) -> str:
    """Reason why the accelerator cannot compute it; empty if it can."""
    if why := root.needs(cfg):
        return why
    if op.x.dtype != "int8" or len(op.x.shape) != 4:
        return f"{op.x.dtype} of {len(op.x.shape)} dimensions: only images of int8"
    values = _table(op)
    if values.min() < 0 or values[-1] < 1:
        return f"exponentials from {values.min()} on: must be positive where x is the largest"
    numbers = _Numbers(op)
    if (numbers.dividend + (1 << numbers.bits)) << numbers.bits >= _TOP or values.max() * op.x.shape[3] >= _TOP:
        return f"exponentials up to {values.max()}, {op.levels} levels: quotients do not fit 32 bits"
    if _together(op, cfg) == 0:
        return f"{op.x.shape[3]} columns: more than fit the accumulators"
    return ""


def cycles(op: g.IntegerSoftmax, cfg: Config) -> float:
    """Estimated cycles of compute; loads and the store, which nothing overlaps, are waits."""
    rows, columns, bits = _rows(op, cfg), op.x.shape[3], _Numbers(op).bits
    tiles = -(-rows // _together(op, cfg))
    product = issue_interval(cfg, multiply=True)
    entries = rows * columns * (16 + 6 * product) + rows * 6 * bits
    waits = 8 * multiply_interval(cfg) + 32 * bits + 28 * instructions(columns) + 450
    return entries + tiles * waits


def lower(rec: Recording, op: g.IntegerSoftmax) -> None:
    """Append the softmax, some rows at a time."""
    cfg, rows, together = rec.cfg, _rows(op, rec.cfg), _together(op, rec.cfg)
    multiplier, exponent = op.multipliers
    facts = {"multiplier": multiplier, "exponent": exponent, "zero_point": op.output.zero_point, "contract": "double"}
    parameters = rec.parameters(f"{op.name}.par", bias=1, **facts, low=op.low, high=op.high)
    for first in range(0, rows, together):
        count = min(together, rows - first)
        with on_chip(rec) as chip:
            par = chip.constant(Mem.PAR, parameters)
            banks = chip.banks(*_sizes(count, op), cfg.acc_depth // 2)
            _Tile(rec, op, banks, (first, count)).record(par)


def _rows(op: g.IntegerSoftmax, cfg: Config) -> int:
    n, blocks, height = packed_shape(op.x.shape, cfg)[:3]
    return n * blocks * height


def _sizes(rows: int, op: g.IntegerSoftmax) -> tuple[int, int]:
    """Entries of so many rows in each bank."""
    values, bits = 2 * rows * op.x.shape[3], _Numbers(op).bits
    return values + rows, values + rows * (bits + 1) + 3 * bits


def _together(op: g.IntegerSoftmax, cfg: Config) -> int:
    """Rows of a tile: as many as fit."""
    found = range(1, _rows(op, cfg) + 1)
    return max((rows for rows in found if max(_sizes(rows, op)) <= cfg.acc_depth // 2), default=0)


def _table(op: g.IntegerSoftmax) -> np.ndarray:
    """int64 (256,): the exponentials of values that are 255 to 0 below the largest."""
    return exponentials(np.arange(-255, 1), op.quadratic, op.linear, op.constant, op.period)


@dataclass(frozen=True)
class _Numbers:
    """`shift` is k; `dividend`, by a sum of exponentials, is t, which has `bits` bits."""

    shift: int
    dividend: int
    bits: int

    def __init__(self, op: g.IntegerSoftmax):
        values = _table(op)
        shift = int(values.max()).bit_length()
        dividend = (op.levels - 1) << shift
        for name, value in (("shift", shift), ("dividend", dividend)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "bits", max(1, (dividend // max(1, int(values[-1]))).bit_length()))


class _Tile:
    """Records the softmax of (first, count) rows.

    In one bank are `left`, the dividends and what is left of them, `sums`, and `factor`, t of each row; in the other
    the `quotients`, `most`, the `divisors` of each bit of t, `less`, the sums times -1, and `bits`, constants.
    """

    def __init__(self, rec: Recording, op: g.IntegerSoftmax, banks: tuple[int, int], rows: tuple[int, int]):
        self.rec, self.op, self.program, self.numbers = rec, op, rec.program, _Numbers(op)
        (self.first, self.rows), self.columns = rows, op.x.shape[3]
        self.size, bits = self.rows * self.columns, self.numbers.bits
        self.left, self.sums, self.factor = banks[0], banks[0] + self.size, banks[0] + 2 * self.size
        self.quotients, self.most, self.divisors = banks[1], banks[1] + self.size, banks[1] + 2 * self.size
        self.less = self.divisors + self.rows * bits
        self.bits = self.less + self.rows

    def record(self, par: int) -> None:
        """Append all of it."""
        program, size, each, both = self.program, self.size, [(self.size, 1, 0)], [(self.size, 1, 1)]
        by_row = [(self.rows, self.columns, 1), (self.columns, 1, 0)]
        self._exponentials()
        self._factor()
        program.alu(AluOp.MUL, each, self.left, imm=self.op.levels - 1)
        program.gemm([(size, 1, 0, 0)], self.sums, reset=True)
        program.alu(AluOp.MUL, by_row, self.quotients, self.factor)
        program.alu(AluOp.SHR, each, self.quotients, imm=self.numbers.shift)
        program.alu(AluOp.ADD, both, self.sums, self.quotients)
        program.alu(AluOp.MUL, by_row, self.sums, self.less)
        program.alu(AluOp.ADD, by_row, self.left, self.less)
        program.alu(AluOp.ADD, both, self.left, self.sums)
        program.alu(AluOp.SHR, each, self.left, imm=31)
        program.alu(AluOp.ADD, both, self.quotients, self.left)  # one too low, which the store adds
        out = self.rec.activations[self.op.output.name]
        program.store(self.quotients, out, self.first * self.columns, x_size=size, par=par)

    def _exponentials(self) -> None:
        """Exponentials three times, and minus their sums."""
        program, columns, values = self.program, self.columns, _table(self.op)
        x, place, each = self.rec.operand(self.op, 0), self.first * columns, [(self.size, 1, 0)]
        for twice in (self.quotients, self.left):
            program.load(Mem.ACC8, twice, x, place, y_size=2, x_size=self.size, x_stride=0)
        program.gemm([(self.rows * (self.numbers.bits + 1), 1, 0, 0)], self.divisors, reset=True)
        table = lookup.loaded(self.rec, f"{self.op.name}.exponentials", values)
        folded(program, AluOp.MAX, self.most, self.rows, columns, columns)
        program.alu(AluOp.MUL, [(self.rows, columns, 0)], self.most, imm=-1)
        program.alu(AluOp.ADD, [(self.rows, columns, 0)], self.most, imm=127)
        for here in (self.sums, self.quotients, self.left):
            program.alu(AluOp.ADD, [(self.rows, columns, columns), (columns, 1, 0)], here, self.most)
            program.alu(AluOp.LOOKUP, each, here, imm=table)
        folded(program, AluOp.ADD, self.sums, self.rows, columns, columns)
        program.alu(AluOp.ADD, [(self.rows, 1, columns)], self.less, self.sums)
        program.alu(AluOp.MUL, [(self.rows, 1, 0)], self.less, imm=-1)

    def _factor(self) -> None:
        """The factor of each row. A divisor that is too large for the dividend is as good as the smallest of them.

        For each bit is added what is right where it is 1: minus the divisor, but for the bit itself.
        """
        program, bits, lanes, rows = self.program, self.numbers.bits, self.rec.cfg.block_out, self.rows
        dividend, power = self.numbers.dividend, np.arange(bits)
        facts = (dividend >> power) + 1, -(1 << (power + bits)), 1 << power
        constants = np.concatenate([*facts, [(dividend << bits) - _TOP]]).astype(np.int32)
        buffer = self.rec.constant(f"{self.op.name}.bits", np.repeat(constants.reshape(-1, 1, 1), lanes, 2))
        program.load(Mem.ACC, self.bits, buffer, 0, x_size=3 * bits)
        program.load(Mem.ACC, self.factor, buffer, 3 * bits, y_size=rows, x_size=1, x_stride=0)
        program.alu(AluOp.ADD, [(rows, bits, self.columns), (bits, 1, 0)], self.divisors, self.sums)
        for k, op in enumerate((AluOp.MIN, AluOp.MUL, AluOp.ADD)):
            program.alu(op, [(rows, bits, 0), (bits, 1, 1)], self.divisors, self.bits + k * bits)
        for k in reversed(range(bits)):
            program.alu(AluOp.ADD, [(rows, bits, 1)], self.divisors + k, self.factor)
            program.alu(AluOp.MIN, [(rows, 1, bits)], self.factor, self.divisors + k)
        program.alu(AluOp.ADD, [(rows, 1, 0)], self.factor, imm=1 << (bits - 1))
        program.alu(AluOp.SHR, [(rows, 1, 0)], self.factor, imm=bits - 32)
        program.alu(AluOp.SHR, [(rows, 1, 0)], self.factor, imm=32 - bits)
        program.alu(AluOp.ADD, [(rows, 1, 0)], self.factor, imm=1 << (bits - 1))
