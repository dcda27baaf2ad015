"""Deeploy's norms, iRMSNorm and iLayerNorm, exactly: a root from tables, a quotient by a product.

With r the root of the mean of squares, which is at most 128, p an element times its weight, and b its bias, a result
is `(trunc(p / r) + b) >> s`: the largest integer not above `(p + (r - 1) * [p < 0] + b * r) / (r << s)`, a shift, then
a quotient by r. Clamped to -129..129, with 129 added, that is a product with a reciprocal of 22 bits.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ....hw.config import Config
from ....hw.isa import AluOp, Mem
from ....hw.rounding import exact_multiplier, quantize_multiplier, rescale
from ....hw.rtl.latencies import issue_interval, multiply_interval
from ....runtime.buffer import Buffer
from ... import cost
from ... import graph as g
from ..attention import root
from ..direct import lookup
from ..direct.on_chip import on_chip
from ..recording import Recording, packed_shape
from . import norm_roots as roots
from .folding import folded, instructions

_BITS = 22  # of a reciprocal
_BEYOND = 129  # the quotients that are clamped whatever they are
_WORD = 1 << 31


def refusal(op: g.IntegerNorm, cfg: Config) -> str:
    """Reason why the accelerator cannot compute the norm; empty if it can."""
    if why := root.needs(cfg):
        return why
    x, centred = op.x, len(op.inputs) > 2
    if x.dtype != "int8" or len(x.shape) != 2 or (x.zero_point and not centred):
        return f"{x.dtype} of {len(x.shape)} dimensions, zero point {x.zero_point}: only rows of int8, 0"
    count = x.shape[1]
    if max(_sizes(1, -(-count // cfg.block_in), centred, cfg)) > cfg.acc_depth // 2:
        return f"rows of {count} elements: more than fit the accumulators"
    if not _divides(count):
        return f"rows of {count} elements: means are not exact"
    weight, bias = _largest(op)
    if (255 if centred else 128) * weight + roots.LARGEST * (bias + 1) + roots.LARGEST * _BEYOND >= _WORD:
        return f"weights up to {weight}, biases up to {bias}: quotients do not fit 32 bits"
    return ""


def cycles(op: g.IntegerNorm, cfg: Config) -> float:
    """Estimated cycles: compute, loads and the store of a tile, which wait for one another, and what nothing hides."""
    (rows, blocks), centred = packed_shape(op.x.shape, cfg)[:2], len(op.inputs) > 2
    tiles, product = -(-rows // _together(rows, blocks, centred, cfg)), issue_interval(cfg, multiply=True)
    computed = 4 * product + 8 + centred * (product + 10)
    moved = cost.moved(cfg, (4 + centred) * cfg.inp_entry_bytes + centred * cfg.acc_entry_bytes)
    waits = (13 + 4 * centred) * multiply_interval(cfg)
    waits += 0 if centred else cost.round_trip()  # fitted to the timing model, as the numbers above
    waits += 4 * instructions(blocks) + cost.moved(cfg, blocks * cfg.acc_entry_bytes)
    return rows * blocks * (computed + moved) + tiles * (waits + roots.cycles(rows / tiles, cfg))


def reciprocals() -> np.ndarray:
    """int64 (256,): `x * table[r] >> 22` is `x // r` for roots r from 1 on and x from 0 to 258 * r."""
    table = np.full(256, 1)
    table[1 : roots.LARGEST + 1] = -(-(1 << _BITS) // np.arange(1, roots.LARGEST + 1))
    return table


def lower(rec: Recording, op: g.IntegerNorm) -> None:
    """Append the norm, some rows at a time."""
    cfg, (rows, blocks) = rec.cfg, packed_shape(op.x.shape, rec.cfg)[:2]
    multiplier, exponent = exact_multiplier(2.0**-_BITS)  # rounded: half a step less is rounded down
    facts = {"multiplier": multiplier, "exponent": exponent, "zero_point": op.output.zero_point, "contract": "double"}
    bias = -(_BEYOND << _BITS) - (1 << (_BITS - 1))
    parameters = rec.parameters(f"{op.name}.par", bias=bias, **facts, low=op.low, high=op.high)
    together = _together(rows, blocks, len(op.inputs) > 2, cfg)
    for first in range(0, rows, together):
        _Tile(rec, op, (first, min(together, rows - first)), parameters).record()


def _largest(op: g.IntegerNorm) -> tuple[int, int]:
    """The largest magnitudes of weights and of biases."""
    found = [int(np.abs(t.data.astype(np.int64)).max()) for t in op.inputs[1:] if t.data is not None]
    return found[0], found[1] if len(found) > 1 else 0


@lru_cache(maxsize=64)
def _divides(count: int) -> bool:
    """True if sums over `count` elements, of squares, too, are divided by it exactly."""
    if not count & (count - 1):
        return True
    if count > 1 << 13:
        return False
    at = np.arange(-256, (1 << 14) + 256) * count  # a quotient that grows with the sum is exact if it is at its steps
    found = [rescale(2 * sums - (count - 1), *quantize_multiplier(0.5 / count), "single") for sums in (at, at - 1)]
    return all(np.array_equal(q, s // count) for q, s in zip(found, (at, at - 1)))


def _sizes(rows: int, blocks: int, centred: bool, cfg: Config) -> tuple[int, int]:
    """Entries of `rows` rows in each bank."""
    own, others = roots.sizes(rows, cfg)
    return (2 + centred) * rows * blocks + own, (1 + centred) * rows * blocks + blocks + others + 1


def _together(rows: int, blocks: int, centred: bool, cfg: Config) -> int:
    """Rows of a tile: as many as fit."""
    most = (
        n for n in range(min(rows, cfg.block_in), 0, -1) if max(_sizes(n, blocks, centred, cfg)) <= cfg.acc_depth // 2
    )
    return next(most, 1)


class _Tile:
    """Records the norms of (first, count) rows, which are on chip together.

    In one bank are the `products`, the `squares` and the `sums` of elements; in the other the `signs` of the products,
    the `weights` and the `biases`, and the `mask` of the lanes of the last block.
    """

    def __init__(self, rec: Recording, op: g.IntegerNorm, rows: tuple[int, int], parameters: Buffer):
        self.rec, self.op, self.program, self.parameters = rec, op, rec.program, parameters
        self.first, self.rows = rows
        self.count, self.blocks = op.x.shape[1], -(-op.x.shape[1] // rec.cfg.block_in)
        self.size, self.centred = self.rows * self.blocks, len(op.inputs) > 2
        self.each, self.both = [(self.size, 1, 0)], [(self.size, 1, 1)]
        self.divisor: int | None = None  # the PAR entry of means, unless these are shifts

    def record(self) -> None:
        """Append all of it."""
        rec, program, size, op = self.rec, self.program, self.size, self.op
        with on_chip(rec) as chip:
            tables = roots.tables(rec, op.name, self.rows)
            number = lookup.loaded(rec, f"{op.name}.reciprocals", reciprocals())
            par = chip.region(Mem.PAR, 2)
            program.load(Mem.PAR, par, self.parameters, 0)
            if self.count & (self.count - 1):
                self.divisor = par + 1
                program.load(Mem.PAR, par + 1, self._divisor(), 0)
            first, second = chip.banks(*_sizes(self.rows, self.blocks, self.centred, rec.cfg), rec.cfg.acc_depth // 2)
            self.products, self.squares, self.sums = (first + k * size for k in range(3))
            self.signs, self.biases = second, second + size
            self.weights = second + (1 + self.centred) * size
            self.mask = self.weights + self.blocks
            found = roots.Roots(rec, op.name, first + (2 + self.centred) * size, self.mask + 1, self.rows)
            found.load()
            self._load()
            if self.centred:
                self._centre(found.factors)
            self._squares()
            self._products()
            found.record(self.squares, self.blocks, tables)
            program.alu(AluOp.LOOKUP, [(self.rows, 1, 0)], found.inverse, imm=number)
            self._quotients(found)
            out = rec.activations[op.output.name]
            program.store(self.products, out, self.first * self.blocks, x_size=size, par=par)

    def _divisor(self) -> Buffer:
        scale = dict(zip(("multiplier", "exponent"), quantize_multiplier(0.5 / self.count)))
        facts = {"bias": 0, "zero_point": 0, "low": -128, "high": 127, "contract": "single"}
        return self.rec.parameters(f"{self.op.name}.mean", **scale, **facts)

    def _load(self) -> None:
        """Load copies of the rows, the weights and the biases."""
        program, x, lanes = self.program, self.rec.operand(self.op, 0), self.rec.cfg.block_in
        copies, place = 2 + self.centred, self.first * self.blocks
        program.load(Mem.ACC8, self.signs, x, place, x_size=self.size)
        program.load(Mem.ACC8, self.products, x, place, y_size=copies, x_size=self.size, x_stride=0)
        parts = ("weights", self.weights, 1), ("biases", self.biases, self.rows)
        for (name, base, rows), t in zip(parts, self.op.inputs[1:]):
            assert t.data is not None  # both are constant
            data = np.pad(t.data, (0, -self.count % lanes)).astype(np.int32).reshape(-1, 1, lanes)
            constant = self.rec.constant(f"{self.op.name}.{name}", data)
            program.load(Mem.ACC, base, constant, 0, y_size=rows, x_size=self.blocks, x_stride=0)
        if left := self.count % lanes:
            ones = (np.arange(lanes) < left).astype(np.int8)
            program.load(Mem.ACC8, self.mask, self.rec.constant(f"{self.op.name}.mask", ones[None]), 0)

    def _divide(self, base: int) -> None:
        """Divide the first entry of each row by the number of elements; round down."""
        program, rows = self.program, [(self.rows, self.blocks, 0)]
        if self.divisor is not None:
            program.alu(AluOp.SHR, rows, base, imm=-1)
            program.alu(AluOp.ADD, rows, base, imm=1 - self.count)
            program.alu(AluOp.RESCALE, rows, base, imm=self.divisor)
        else:
            program.alu(AluOp.SHR, rows, base, imm=self.count.bit_length() - 1)

    def _masked(self, base: int) -> None:
        """Lanes behind the last element of each row become 0: there may be anything."""
        if self.count % self.rec.cfg.block_in:
            self.program.alu(AluOp.MUL, [(self.rows, self.blocks, 0)], base + self.blocks - 1, self.mask)

    def _summed(self, base: int) -> None:
        """The first entry of each row becomes the sum of its elements."""
        folded(self.program, AluOp.ADD, base, self.rows, self.blocks, self.blocks)
        self.program.alu(AluOp.REDUCE, [(self.rows, self.blocks, 0)], base, imm=0)

    def _centre(self, below: int) -> None:
        """Subtract the mean, truncated toward zero, from all copies; `below` are accumulators for a number per row."""
        program, rows, blocks, point = self.program, self.rows, self.blocks, self.op.x.zero_point
        by_row = [(rows, blocks, 0)]
        self._masked(self.sums)
        self._summed(self.sums)
        if point:
            program.alu(AluOp.ADD, by_row, self.sums, imm=-self.count * point)
        program.gemm([(rows, 1, 0, 0)], below, reset=True)
        program.alu(AluOp.ADD, [(rows, 1, blocks)], below, self.sums)
        program.alu(AluOp.SHR, [(rows, 1, 0)], below, imm=31)
        program.alu(AluOp.MUL, [(rows, 1, 0)], below, imm=1 - self.count)
        program.alu(AluOp.ADD, [(rows, blocks, 1)], self.sums, below)
        self._divide(self.sums)
        program.alu(AluOp.MUL, by_row, self.sums, imm=-1)
        if point:
            program.alu(AluOp.ADD, by_row, self.sums, imm=-point)
        for base in (self.signs, self.products, self.squares):
            program.alu(AluOp.ADD, [(rows, blocks, blocks), (blocks, 1, 0)], base, self.sums)

    def _squares(self) -> None:
        """The first square of each row becomes the mean of all, and one more."""
        self._masked(self.signs)
        self.program.alu(AluOp.MUL, self.both, self.squares, self.signs)
        self._summed(self.squares)
        self._divide(self.squares)
        self.program.alu(AluOp.ADD, [(self.rows, self.blocks, 0)], self.squares, imm=1)

    def _products(self) -> None:
        """Elements times weights, and -1 where such a product is below 0, or 0."""
        weight, loops = self.op.inputs[1].data, [(self.rows, self.blocks, 0), (self.blocks, 1, 1)]
        assert weight is not None  # weights are constant
        self.program.alu(AluOp.MUL, loops, self.products, self.weights)
        if weight.min() < 0:
            self.program.alu(AluOp.MUL, loops, self.signs, self.weights)
        self.program.alu(AluOp.SHR, self.each, self.signs, imm=31)

    def _quotients(self, found: roots.Roots) -> None:
        """The products become quotients by the roots, times `1 << 22`, with 129 added."""
        program, acc, by_row = self.program, self.products, [(self.rows, self.blocks, 1), (self.blocks, 1, 0)]
        program.alu(AluOp.MUL, by_row, self.signs, found.factors)
        if self.centred:
            program.alu(AluOp.MUL, by_row, self.biases, found.roots)
            program.alu(AluOp.ADD, self.both, self.signs, self.biases)
        program.alu(AluOp.ADD, self.both, acc, self.signs)
        program.alu(AluOp.SHR, self.each, acc, imm=self.op.shift)
        program.alu(AluOp.MUL, [(self.rows, 1, 0)], found.roots, imm=_BEYOND)
        program.alu(AluOp.MIN, by_row, acc, found.roots)
        program.alu(AluOp.ADD, by_row, acc, found.roots)
        program.alu(AluOp.MAX, self.each, acc, imm=0)
        program.alu(AluOp.MUL, by_row, acc, found.inverse)
