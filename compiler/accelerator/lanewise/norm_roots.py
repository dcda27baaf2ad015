"""Integer roots of means of squares of bytes, one per row, exactly: by comparison with all squares, or from tables.

Of few rows a root is the number of squares that are not above the mean. Of several, the means become the lanes of one
entry. A table of the first 255 and one of the next ones' upper bits then give a root that is at most two too low, which
two squares decide.
"""

from __future__ import annotations

from functools import lru_cache
from math import isqrt

import numpy as np

from ....hw.config import Config
from ....hw.isa import AluOp, Mem
from ....hw.rtl.latencies import issue_interval, multiply_interval
from ....runtime.program import Program
from ..direct import lookup
from ..recording import Recording
from .folding import folded

LARGEST = 128  # root of a mean of squares of bytes
_FEW = 3  # rows whose roots are found by comparison
_UPPER = 6  # bits that the second table leaves out
_WORK = 4  # entries whose lanes are rows
_LESS = LARGEST - 2  # which the first table's roots are lower: with both comparisons a root is 128 lower


def sizes(rows: int, cfg: Config) -> tuple[int, int]:
    """Entries of `rows` rows in each bank."""
    steps = LARGEST // cfg.block_in
    return rows + (0 if rows <= _FEW else _WORK), 3 * rows + (steps * (rows + 1) if rows <= _FEW else 0)


def cycles(rows: float, cfg: Config) -> float:
    """Estimated cycles of the roots of `rows` rows, and of what is computed of them."""
    product = issue_interval(cfg, multiply=True)
    each = 4 * product + 7
    if rows <= _FEW:
        return rows * (each + 5 * LARGEST // cfg.block_in)
    return 9 * multiply_interval(cfg) + rows * (each + 4 * product + 6)


def tables(rec: Recording, name: str, rows: int) -> tuple[int, int]:
    """The numbers of the tables on chip, loaded if they are needed and not there; `name` is for their constants."""
    if rows <= _FEW:
        return 0, 0
    lower, upper = tables_of_roots()
    return lookup.loaded(rec, f"{name}.roots", lower), lookup.loaded(rec, f"{name}.upper", upper)


@lru_cache(maxsize=1)
def tables_of_roots() -> tuple[np.ndarray, np.ndarray]:
    """int64 (256,) twice: by the mean, at most 255, and by its upper bits; with 126 their sum is a root or less."""
    upper = np.array([isqrt(k << _UPPER) - 15 if k << _UPPER > 255 else 0 for k in range(256)])
    return np.array([isqrt(k) for k in range(256)]) - _LESS, upper


class Roots:
    """Records the roots r of `rows` rows, at most 16, each in all lanes of an entry.

    Afterwards entries of `factors` are 1 - r, in the bank of `first`; of `roots` r, and of `inverse` r - 128, in that
    of `second`. Both are the first of their `sizes` of accumulators.
    """

    def __init__(self, rec: Recording, name: str, first: int, second: int, rows: int):
        self.rec, self.program, self.name, self.rows = rec, rec.program, name, rows
        self.factors, self.work = first, first + rows
        self.means, self.roots, self.inverse = (second + k * rows for k in range(3))
        self.limits, self.steps = second + 3 * rows, LARGEST // rec.cfg.block_in
        self.counts = self.limits + self.steps

    def load(self) -> None:
        """Load the squares, or unit vectors."""
        lanes, program = self.rec.cfg.block_in, self.program
        if self.rows <= _FEW:
            squares = -(np.arange(1, LARGEST + 1, dtype=np.int32) ** 2)
            constant = self.rec.constant(f"{self.name}.squares", squares.reshape(self.steps, 1, lanes))
            program.load(Mem.ACC, self.limits, constant, 0, x_size=self.steps)
        else:
            self.units = self.rec.constant(f"{self.name}.units", np.eye(lanes, dtype=np.int8))
            program.load(Mem.ACC8, self.means, self.units, 0, y_size=3, x_size=self.rows, x_stride=0)

    def record(self, means: int, step: int, tables: tuple[int, int]) -> None:
        """Append the roots of `means`, `step` entries apart, in the other bank than the second."""
        program, rows = self.program, self.rows
        if rows <= _FEW:
            source, apart = self._compared(means, step), self.steps
            program.gemm([(rows, 1, 0, 0)], self.factors, reset=True)
            program.gemm([(2 * rows, 1, 0, 0)], self.roots, reset=True)
            program.alu(AluOp.ADD, [(rows, 1, apart)], self.factors, source)
            program.alu(AluOp.ADD, [(2, rows, 0), (rows, 1, apart)], self.roots, source)
        else:
            self._in_lanes(means, step, tables)
            program.load(Mem.ACC8, self.factors, self.units, 0, x_size=rows)
            program.alu(AluOp.MUL, [(2 * rows, 1, 0)], self.roots, self.work)
            program.alu(AluOp.MUL, [(rows, 1, 0)], self.factors, self.work)
            program.alu(AluOp.REDUCE, [(2 * rows, 1, 0)], self.roots, imm=0)
            program.alu(AluOp.REDUCE, [(rows, 1, 0)], self.factors, imm=0)
        program.alu(AluOp.ADD, [(rows, 1, 0)], self.roots, imm=LARGEST)
        program.alu(AluOp.MUL, [(rows, 1, 0)], self.factors, imm=-1)
        program.alu(AluOp.ADD, [(rows, 1, 0)], self.factors, imm=1 - LARGEST)

    def _compared(self, means: int, step: int) -> int:
        """The first entry of those with the roots less 128: how many squares are above the mean, times -1."""
        program, rows, steps, counts = self.program, self.rows, self.steps, self.counts
        program.gemm([(rows * steps, 1, 0, 0)], counts, reset=True)
        program.alu(AluOp.ADD, [(rows, steps, 0), (steps, 1, 1)], counts, self.limits)
        program.alu(AluOp.ADD, [(rows, steps, step), (steps, 1, 0)], counts, means)
        program.alu(AluOp.SHR, [(steps * rows, 1, 0)], counts, imm=31)
        folded(program, AluOp.ADD, counts, rows, steps, steps)
        program.alu(AluOp.REDUCE, [(rows, steps, 0)], counts, imm=0)
        return counts

    def _in_lanes(self, means: int, step: int, tables: tuple[int, int]) -> None:
        """The first entry of `work` becomes the roots less 128, row k in lane k."""
        program, mean, (low, high) = self.program, self.means, tables
        root, up, tries = (self.work + k for k in range(_WORK - 1))
        program.alu(AluOp.MUL, [(self.rows, 1, step)], mean, means)
        program.gemm([(_WORK, 1, 0, 0)], root, reset=True)
        folded(program, AluOp.ADD, mean, 1, self.rows, self.rows)
        program.alu(AluOp.ADD, [(2, 1, 0)], root, mean)
        _one(program, AluOp.SHR, up, _UPPER)
        program.alu(AluOp.ADD, [(2, 1, 0)], root, imm=-128)
        _one(program, AluOp.LOOKUP, root, low)
        _one(program, AluOp.LOOKUP, up, high)
        program.alu(AluOp.ADD, [(1, 0, 0)], root, up)
        program.alu(AluOp.ADD, [(2, 1, 0)], tries, root)
        program.alu(AluOp.ADD, [(2, 1, 0)], tries, imm=_LESS + 1)
        _one(program, AluOp.ADD, tries + 1, 1)
        program.alu(AluOp.MUL, [(2, 1, 1)], tries, tries)
        program.alu(AluOp.MUL, [(2, 1, 0)], tries, imm=-1)
        program.alu(AluOp.ADD, [(2, 1, 0)], tries, mean)
        program.alu(AluOp.SHR, [(2, 1, 0)], tries, imm=31)
        program.alu(AluOp.ADD, [(1, 0, 0)], root, tries)
        program.alu(AluOp.ADD, [(1, 0, 0)], root, tries + 1)


def _one(program: Program, op: AluOp, acc: int, imm: int) -> None:
    program.alu(op, [(1, 0, 0)], acc, imm=imm)
