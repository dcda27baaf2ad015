"""Deeploy's softmax along the columns of an image, whose channels are heads: tables, and a long division.

A quotient has a bit for each power of two times the divisor that can still be subtracted: `min(v, v - d)` of unsigned
numbers does both. v is what is left, with the bits of the quotient behind it; to compare numbers as if they were
unsigned, 2**31 is subtracted from it.
"""

from __future__ import annotations

import numpy as np

from ....hw.config import Config
from ....hw.isa import AluOp, Mem
from ....hw.rtl.latencies import issue_interval, multiply_interval
from ....runtime.kernels.deeploy import exponentials
from ... import cost
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
    if op.x.shape[3] > _room(cfg):
        return f"{op.x.shape[3]} columns: at most {_room(cfg)}"
    values, bits = _table(op), _bits(op)
    if values.min() < 0 or values[-1] < 1:
        return f"exponentials from {values.min()} on: must be positive where x is the largest"
    if (values.max() * (op.levels - 1) + (1 << bits)) << bits >= _TOP or values.max() * op.x.shape[3] >= _TOP:
        return f"exponentials up to {values.max()}, {op.levels} levels: quotients do not fit 32 bits"
    return ""


def cycles(op: g.IntegerSoftmax, cfg: Config) -> float:
    """Estimated cycles of compute; loads and the store, which nothing overlaps, are waits."""
    rows, columns, bits = _rows(op, cfg), op.x.shape[3], _bits(op)
    tiles = -(-rows // _together(op, cfg))
    entries = rows * columns * (4 * bits + 12 + 2 * issue_interval(cfg, multiply=True)) + rows * 5 * bits
    waits = 3 * multiply_interval(cfg) + 20 * (bits + 2 * instructions(columns)) + 3 * cost.ROUND_TRIP
    return entries + tiles * waits


def lower(rec: Recording, op: g.IntegerSoftmax) -> None:
    """Append the softmax, some rows at a time."""
    cfg, rows, together = rec.cfg, _rows(op, rec.cfg), _together(op, rec.cfg)
    (multiplier, exponent), bits = op.multipliers, _bits(op)
    facts = {"multiplier": multiplier, "exponent": exponent, "zero_point": op.output.zero_point, "contract": "double"}
    parameters = rec.parameters(f"{op.name}.par", bias=1 << (bits - 1), **facts, low=op.low, high=op.high)
    columns, half = op.x.shape[3], cfg.acc_depth // 2
    for first in range(0, rows, together):
        count = min(together, rows - first)
        with on_chip(rec) as chip:
            par = chip.constant(Mem.PAR, parameters)
            banks = chip.banks(count * (columns + bits) + 3 * bits, 2 * count * columns, half)
            _Tile(rec, op, banks, (first, count)).record(par)


def _rows(op: g.IntegerSoftmax, cfg: Config) -> int:
    n, blocks, height = packed_shape(op.x.shape, cfg)[:3]
    return n * blocks * height


def _room(cfg: Config) -> int:
    """The most columns of a tile."""
    return cfg.acc_depth // 4 - 32


def _together(op: g.IntegerSoftmax, cfg: Config) -> int:
    """Rows of a tile."""
    return max(1, min(_rows(op, cfg), _room(cfg) // (op.x.shape[3] + _bits(op))))


def _bits(op: g.IntegerSoftmax) -> int:
    """Of a quotient."""
    return (op.levels - 1).bit_length()


def _table(op: g.IntegerSoftmax) -> np.ndarray:
    """int64 (256,): the exponentials of values that are 255 to 0 below the largest."""
    return exponentials(np.arange(-255, 1), op.quadratic, op.linear, op.constant, op.period)


class _Tile:
    """Records the softmax of (first, count) rows: `x` and the divisors in one bank, two more `copies` in the other."""

    def __init__(self, rec: Recording, op: g.IntegerSoftmax, banks: tuple[int, int], rows: tuple[int, int]):
        self.rec, self.op, self.program = rec, op, rec.program
        (self.first, self.rows), self.columns, self.bits = rows, op.x.shape[3], _bits(op)
        self.size = self.rows * self.columns
        self.x, self.divisors = banks[0], banks[0] + self.size
        self.numbers = self.divisors + self.rows * self.bits
        self.copies = banks[1], banks[1] + self.size

    def record(self, par: int) -> None:
        """Append all of it."""
        program, size, each = self.program, self.size, [(self.size, 1, 0)]
        self._sums()
        self._divisors()
        for k in range(self.bits):
            copy = self.copies[k % 2]
            at = self.divisors + self.bits - 1 - k
            by_row = [(self.rows, self.columns, self.bits), (self.columns, 1, 0)]
            program.gemm([(size, 1, 0, 0)], copy, reset=True)
            program.alu(AluOp.ADD, by_row, copy, at)
            program.alu(AluOp.ADD, [(size, 1, 1)], copy, self.x)
            program.alu(AluOp.MIN, [(size, 1, 1)], self.x, copy)
        program.alu(AluOp.ADD, each, self.x, imm=1 << (self.bits - 1))
        program.alu(AluOp.SHR, each, self.x, imm=self.bits - 32)
        program.alu(AluOp.SHR, each, self.x, imm=32 - self.bits)
        out = self.rec.activations[self.op.output.name]
        program.store(self.x, out, self.first * self.columns, x_size=size, par=par)

    def _sums(self) -> None:
        """Dividends in place of x, and the sums of the exponentials of each row in the first copy's second."""
        program, (most, other), columns = self.program, self.copies, self.columns
        values, bits = _table(self.op), self.bits
        program.gemm([(self.rows * bits, 1, 0, 0)], self.divisors, reset=True)
        x, place = self.rec.operand(self.op, 0), self.first * columns
        program.load(Mem.ACC8, most, x, place, y_size=2, x_size=self.size, x_stride=0)
        program.load(Mem.ACC8, self.x, x, place, x_size=self.size)
        names = (f"{self.op.name}.{what}" for what in ("dividends", "exponentials"))
        tables = ((values * (self.op.levels - 1)) << bits) - _TOP, values
        dividends, exponents = (lookup.loaded(self.rec, n, table) for n, table in zip(names, tables))
        folded(program, AluOp.MAX, most, self.rows, columns, columns)
        program.alu(AluOp.MUL, [(self.rows, columns, 0)], most, imm=-1)
        program.alu(AluOp.ADD, [(self.rows, columns, 0)], most, imm=127)
        for copy in (other, self.x):
            program.alu(AluOp.ADD, [(self.rows, columns, columns), (columns, 1, 0)], copy, most)
        program.alu(AluOp.LOOKUP, [(self.size, 1, 0)], other, imm=exponents)
        program.alu(AluOp.LOOKUP, [(self.size, 1, 0)], self.x, imm=dividends)
        folded(program, AluOp.ADD, other, self.rows, columns, columns)

    def _divisors(self) -> None:
        """For each bit of the quotient what is added where it is 1: less the divisor, but for the bit itself.

        A divisor that is too large for any dividend is as good as the smallest of them.
        """
        program, bits, lanes = self.program, self.bits, self.rec.cfg.block_out
        largest, power = int(_table(self.op).max()) * (self.op.levels - 1), np.arange(bits)
        rows = (largest >> power) + 1, -(1 << (power + bits)), 1 << power
        numbers = np.repeat(np.stack(rows).astype(np.int32).reshape(-1, 1, 1), lanes, 2)
        program.load(Mem.ACC, self.numbers, self.rec.constant(f"{self.op.name}.bits", numbers), 0, x_size=3 * bits)
        by_row = [(self.rows, bits, self.columns), (bits, 1, 0)]
        program.alu(AluOp.ADD, by_row, self.divisors, self.copies[1])
        for k, op in enumerate((AluOp.MIN, AluOp.MUL, AluOp.ADD)):
            program.alu(op, [(self.rows, bits, 0), (bits, 1, 1)], self.divisors, self.numbers + k * bits)
