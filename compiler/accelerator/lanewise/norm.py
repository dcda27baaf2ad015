"""Deeploy's root mean square norms, exactly: a root by comparison with all squares, a quotient by a product.

The root of a mean of squares of bytes is at most 128: as many squares are not above it. A quotient by it is a product
with its reciprocal, rounded up, in enough bits for all numbers that can occur.
"""

from __future__ import annotations

from functools import lru_cache
from math import isqrt

import numpy as np

from ....hw.config import Config
from ....hw.isa import AluOp, Mem
from ....hw.rtl.latencies import issue_interval, multiply_interval
from ....runtime.buffer import Buffer
from ... import cost
from ... import graph as g
from ..attention import root
from ..direct import lookup
from ..direct.on_chip import on_chip
from ..recording import Recording, packed_shape
from .folding import folded

_LARGEST = 128  # root
_COPIES = 4  # of a row: its products with the weights, their signs twice, and the factors that undo these
_ROWS = 16  # together


def refusal(op: g.IntegerNorm, cfg: Config) -> str:
    """Reason why the accelerator cannot compute the norm; empty if it can."""
    if why := root.needs(cfg):
        return why
    if len(op.inputs) > 2:
        return "it subtracts means"
    if op.x.dtype != "int8" or op.x.zero_point or len(op.x.shape) != 2:
        return f"{op.x.dtype} of {len(op.x.shape)} dimensions, zero point {op.x.zero_point}: only rows of int8, 0"
    count = op.x.shape[1]
    if count % cfg.block_in or count & (count - 1):
        return f"rows of {count} elements: must be a power of two, in whole blocks of {cfg.block_in}"
    if max(_sizes(1, count // cfg.block_in, cfg)) > cfg.acc_depth // 2:
        return f"rows of {count} elements: more than fit the accumulators"
    if _LARGEST % cfg.block_in or reciprocals(count, _largest(op), op.shift) is None:
        return f"weights up to {_largest(op)}, shifted by {op.shift}: quotients do not fit 32 bits"
    return ""


def cycles(op: g.IntegerNorm, cfg: Config) -> float:
    """Estimated cycles of compute and of the load of the weights, which nothing overlaps."""
    rows, blocks = packed_shape(op.x.shape, cfg)[:2]
    waits = 7 * multiply_interval(cfg) + 90 + 2 * cost.round_trip()
    each = blocks * (8 + 8 * issue_interval(cfg, multiply=True)) + 4 * (_LARGEST // cfg.block_in)
    loaded = (blocks + _LARGEST // cfg.block_in) * cfg.acc_entry_bytes + rows * (_COPIES + 1) * blocks * cfg.block_in
    return -(-rows // _ROWS) * waits + rows * each + cost.moved(cfg, loaded)


@lru_cache(maxsize=64)
def reciprocals(count: int, largest: int, shift: int) -> tuple[np.ndarray, int] | None:
    """(int64 (256,), bits): `x * table[r] >> bits` is `x // r` for roots r of rows of `count` bytes; None if none are.

    x is at least -1, and at most what an element of such a row times a weight of `largest` is after `shift`.
    """
    if 128 * largest + _LARGEST >= 1 << 31:
        return None
    roots = np.arange(1, _LARGEST + 1)
    elements = np.array([min(128, isqrt(count * ((r + 1) ** 2 - 1) - 1)) for r in roots.tolist()])
    most = (elements * largest + _LARGEST) >> shift
    for bits in range(31):
        factors = -(-(1 << bits) // roots)
        wrong = factors * roots - (1 << bits)
        if (most * wrong < 1 << bits).all() and (np.maximum(most, 1) * factors < 1 << 31).all():
            return np.concatenate([factors[:1], factors, np.full(255 - _LARGEST, factors[-1])]), bits
    return None


def lower(rec: Recording, op: g.IntegerNorm) -> None:
    """Append the norm, some rows at a time."""
    cfg, (rows, blocks) = rec.cfg, packed_shape(op.x.shape, rec.cfg)[:2]
    weight = op.inputs[1].data
    assert weight is not None  # weights are constant
    facts = {"bias": 0, "multiplier": 1 << 30, "exponent": 1, "zero_point": op.output.zero_point, "contract": "double"}
    parameters = rec.parameters(f"{op.name}.par", **facts, low=op.low, high=op.high)
    half, together = cfg.acc_depth // 2, min(rows, _ROWS)
    while max(_sizes(together, blocks, cfg)) > half:
        together -= 1
    for first in range(0, rows, together):
        _Tile(rec, op, (first, min(together, rows - first)), parameters).record(weight)


def _largest(op: g.IntegerNorm) -> int:
    weight = op.inputs[1].data
    assert weight is not None  # weights are constant
    return int(np.abs(weight.astype(np.int64)).max())


def _sizes(rows: int, blocks: int, cfg: Config) -> tuple[int, int]:
    """Entries of `rows` rows in each bank."""
    steps = _LARGEST // cfg.block_in
    return (_COPIES + 1) * rows * blocks + steps, blocks + 2 * rows * steps


class _Tile:
    """Records the norms of (first, count) rows, which are on chip together."""

    def __init__(self, rec: Recording, op: g.IntegerNorm, rows: tuple[int, int], parameters: Buffer):
        self.rec, self.op, self.program, self.parameters = rec, op, rec.program, parameters
        self.first, self.rows = rows
        self.blocks, self.steps = op.x.shape[1] // rec.cfg.block_in, _LARGEST // rec.cfg.block_in
        self.size = self.rows * self.blocks

    def record(self, weight: np.ndarray) -> None:
        """Append all of it: `s` is -1 for products below 0, else 0, and `g` is -1 or 1.

        Of a product a the quotient is that of |a| or, where a is below 0, the complement of that of |a| - root.
        """
        program, size, op = self.program, self.size, self.op
        found = reciprocals(op.x.shape[1], _largest(op), op.shift)
        assert found is not None  # `refusal` said so
        (table, bits), rows, blocks = found, self.rows, self.blocks
        with on_chip(self.rec) as chip:
            number = lookup.loaded(self.rec, f"{self.op.name}.reciprocals", table)
            par = chip.constant(Mem.PAR, self.parameters)
            acc, second = chip.banks(*_sizes(rows, blocks, self.rec.cfg), self.rec.cfg.acc_depth // 2)
            squares, limits, counts = acc + _COPIES * size, acc + (_COPIES + 1) * size, second + blocks
            program.gemm([(2 * rows * self.steps, 1, 0, 0)], counts, reset=True)
            self._load((acc, squares, limits, second), weight)
            inverse, roots = self._roots(squares, limits, counts)
            program.alu(AluOp.LOOKUP, [(rows, 2 * self.steps, 0)], inverse, imm=number)
            program.alu(AluOp.ADD, [(rows, 2 * self.steps, 0)], roots, imm=_LARGEST)
            s, apart, g = (acc + k * size for k in range(1, _COPIES))
            each, both, by_row = [(size, 1, 0)], [(size, 1, 1)], [(rows, blocks, 2 * self.steps), (blocks, 1, 0)]
            program.alu(AluOp.MUL, [(_COPIES * rows, blocks, 0), (blocks, 1, 1)], acc, second)
            program.alu(AluOp.SHR, [(3 * size, 1, 0)], s, imm=31)
            program.alu(AluOp.SHR, each, g, imm=-1)
            program.alu(AluOp.ADD, each, g, imm=1)
            program.alu(AluOp.MUL, both, acc, g)
            program.alu(AluOp.MUL, by_row, apart, roots)
            program.alu(AluOp.ADD, both, acc, apart)
            program.alu(AluOp.SHR, each, acc, imm=self.op.shift)
            program.alu(AluOp.MUL, by_row, acc, inverse)
            program.alu(AluOp.SHR, each, acc, imm=bits)
            program.alu(AluOp.MUL, both, acc, g)
            program.alu(AluOp.ADD, both, acc, s)
            out = self.rec.activations[self.op.output.name]
            program.store(acc, out, self.first * blocks, x_size=size, par=par)

    def _load(self, entries: tuple[int, int, int, int], weight: np.ndarray) -> None:
        """Load the rows, to be squared first, the squares of all roots, and the weights."""
        acc, squares, limits, weights = entries
        program, size, lanes = self.program, self.size, self.rec.cfg.block_in
        x, count = self.rec.operand(self.op, 0), self.steps
        place = self.first * self.blocks
        roots = np.arange(1, _LARGEST + 1, dtype=np.int32).reshape(count, 1, lanes)
        program.load(Mem.ACC8, squares, x, place, x_size=size)
        program.load(Mem.ACC, limits, self.rec.constant(f"{self.op.name}.squares", -(roots**2)), 0, x_size=count)
        program.load(Mem.ACC8, acc, x, place, y_size=_COPIES, x_size=size, x_stride=0)
        factors = self.rec.constant(f"{self.op.name}.weights", weight.astype(np.int32).reshape(-1, 1, lanes))
        program.load(Mem.ACC, weights, factors, 0, x_size=self.blocks)

    def _roots(self, squares: int, limits: int, counts: int) -> tuple[int, int]:
        """The first entries with the root less 128 of each row, twice: how many squares are not above the mean."""
        program, rows, blocks, steps = self.program, self.rows, self.blocks, self.steps
        program.alu(AluOp.ADD, [(2 * rows, steps, 0), (steps, 1, 1)], counts, limits)
        program.alu(AluOp.MUL, [(self.size, 1, 1)], squares, squares)
        folded(program, AluOp.ADD, squares, rows, blocks, blocks)
        program.alu(AluOp.REDUCE, [(rows, blocks, 0)], squares, imm=0)
        program.alu(AluOp.SHR, [(rows, blocks, 0)], squares, imm=self.op.x.shape[1].bit_length() - 1)
        program.alu(AluOp.ADD, [(rows, blocks, 0)], squares, imm=1)
        program.alu(AluOp.ADD, [(rows, 2 * steps, blocks), (2 * steps, 1, 0)], counts, squares)
        program.alu(AluOp.SHR, [(2 * steps * rows, 1, 0)], counts, imm=31)
        folded(program, AluOp.ADD, counts, 2 * rows, steps, steps)
        program.alu(AluOp.REDUCE, [(2 * rows, steps, 0)], counts, imm=0)
        return counts, counts + steps
