"""Products of two matrices that are both computed, as images whose pixels are rows (plan.py).

The zero points: `sum((x - zx) * (y - zy))` is the sum of products, that of the rows of x times -zy, that of the columns
of y times -zx, and a number for all. The array computes both sums, as products with entries of the zero point, once
for all columns or rows of a tile, and the ALU adds them; or it adds them at once where that takes no more micro-ops.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle

import numpy as np

from ....hw.config import Config
from ....hw.isa import AluOp, Mem
from ....runtime import layout
from ....runtime.buffer import Buffer
from ... import graph as g
from ...graph.integer_forms import Requant
from ..direct.on_chip import OnChip, on_chip
from ..recording import Recording, store_parameters
from .plan import Plan, Tile, plan_of
from .weights import weights_of


def lower(rec: Recording, op: g.BatchMatMul) -> None:
    """Append the product, tile by tile."""
    plan, x = plan_of(op, rec.cfg), operand(rec, op.x)
    weights = weights_of(rec, op, plan, operand(rec, op.inputs[1]))
    with on_chip(rec) as chip:
        kernel = _Kernel(rec, op, plan, chip)
        kernel.run(x, weights)


def operand(rec: Recording, t: g.Tensor) -> Buffer:
    """The packed buffer of an operand, which may be a constant."""
    if t.data is None:
        return rec.activations[t.name]
    return rec.constant(t.name, layout.pack_blocks(t.data, rec.cfg.batch, rec.cfg.block_in))


class _Kernel:
    """The places on chip of a product: two slots of rows and of weights, a tile in each bank with its sums behind it.

    The sums of a tile lie in the other bank, so that the ALU reads both operands in one cycle.
    """

    def __init__(self, rec: Recording, op: g.BatchMatMul, plan: Plan, chip: OnChip):
        self.rec, self.op, self.plan = rec, op, plan
        t, cfg = plan.tile, rec.cfg
        self.size = t.matrices * t.columns * t.rows
        whole = self.size + plan.extra(t)
        self.banks = chip.banks(whole, whole, cfg.acc_depth // 2)
        (zx, zy), zo = (t.zero_point for t in op.inputs), op.output.zero_point
        store = Requant(op.inner * zx * zy, *op.multipliers, zo)
        self.par = chip.constant(Mem.PAR, store_parameters(rec, op, store))
        weights = (1 if plan.same_y else t.matrices) * t.columns * t.inner
        self.inp, self.x_zero = self._slots(chip, Mem.INP, t.matrices * t.rows * t.inner, plan.points[0])
        self.wgt, self.y_zero = self._slots(chip, Mem.WGT, weights, plan.points[1])

    def _slots(self, chip: OnChip, mem: Mem, size: int, numbers: tuple[int, ...]) -> tuple[Iterator[int], list[int]]:
        """(two slots in turn, the entries of the `numbers` of a zero point: for whole blocks and the last in turn)."""
        entries = list(_entries(numbers, self.plan.lanes, mem, self.rec.cfg))
        base = chip.region(mem, 2 * size + len(entries))  # in one piece: two might share entries
        first = base + 2 * size
        if entries:
            buffer = self.rec.constant(f"{self.op.name}.{mem.name}", np.stack(entries))
            self.rec.program.load(mem, first, buffer, 0, x_size=len(entries))
        return cycle((base, base + size)), [*range(first, first + len(entries))]

    def run(self, x: Buffer, weights: Buffer) -> None:
        """Append all tiles, whose operands are `x` and `weights`."""
        plan, loaded = self.plan, {}
        for k, (m, n, r, tile) in enumerate(plan):
            for first in range(0, plan.inner, plan.tile.inner):
                part = Tile(tile.matrices, tile.columns, tile.rows, min(plan.tile.inner, plan.inner - first))
                rows = (0 if plan.same_x else m, r, first), "x"
                columns = (0 if plan.same_y else m, n, first), "y"
                if loaded.get("x", (None,))[0] != rows[0]:
                    loaded["x"] = rows[0], self._load_rows(x, rows[0], part)
                if loaded.get("y", (None,))[0] != columns[0]:
                    loaded["y"] = columns[0], self._load_weights(weights, columns[0], part)
                self._multiply(k % 2, loaded["x"][1], loaded["y"][1], part, first)
            self._add_sums(k % 2, tile)
            self._store(k % 2, (m, n, r), tile)

    def _load_rows(self, x: Buffer, first: tuple[int, int, int], t: Tile) -> int:
        """Load the rows of a tile; their place."""
        (m, r, block), plan, base = first, self.plan, next(self.inp)
        offset = (m * plan.inner + block) * plan.rows + r
        count = t.matrices * t.inner
        self.rec.program.load(Mem.INP, base, x, offset, y_size=count, x_size=t.rows, x_stride=plan.rows)
        return base

    def _load_weights(self, weights: Buffer, first: tuple[int, int, int], t: Tile) -> int:
        """Load the weights of a tile; their place."""
        (m, n, block), plan, base = first, self.plan, next(self.wgt)
        matrices = 1 if plan.same_y else t.matrices
        if plan.transposed:
            offset = (m * plan.inner + block) * plan.columns + n
            across, size, stride = t.inner, t.columns, plan.columns
        else:
            offset = (m * plan.columns + n) * plan.inner + block
            across, size, stride = t.columns, t.inner, plan.inner
        self.rec.program.load(Mem.WGT, base, weights, offset, y_size=matrices * across, x_size=size, x_stride=stride)
        return base

    def _multiply(self, bank: int, inp: int, wgt: int, t: Tile, first: int) -> None:
        """The products of a tile whose sums begin with block `first`, and the sums for zero points."""
        plan, gemm, (acc, rows, columns) = self.plan, self.rec.program.gemm, self._places(bank)
        down, across = (1, t.columns) if plan.transposed else (t.inner, 1)  # steps of weights: per column, per block
        each = 0 if plan.same_y else t.columns * t.inner
        loops = [
            (t.matrices, t.columns * t.rows, t.inner * t.rows, each),
            (t.columns, t.rows, 0, down),
            (t.rows, 1, 1, 0),
        ]
        for count, block in ((1, 0), (t.inner - 1, 1)):
            fresh = first + block == 0
            if count:
                inner = [(count, 0, t.rows, across)]
                gemm(inner + loops, acc, inp + block * t.rows, wgt + block * across, overwrite=fresh)
        for entries, block, count, fresh in self._zeros(self.y_zero, t, first, plan.rows_apart):
            dst, steps = (rows, (t.rows, 0)) if plan.rows_apart else (acc, (t.columns * t.rows, t.rows))
            apart = [(t.matrices, steps[0], t.inner * t.rows, 0)]
            apart += [] if plan.rows_apart else [(t.columns, steps[1], 0, 0)]
            gemm(
                [(count, 0, t.rows, 0), *apart, (t.rows, 1, 1, 0)], dst, inp + block * t.rows, entries, overwrite=fresh
            )
        for entries, block, count, fresh in self._zeros(self.x_zero, t, first, plan.columns_apart):
            place = [(t.matrices, t.columns, 0, each), (t.columns, 1, 0, down)]
            if not plan.columns_apart:
                place = [(t.matrices, t.columns * t.rows, 0, each), (t.columns, t.rows, 0, down), (t.rows, 1, 0, 0)]
            dst = columns if plan.columns_apart else acc
            gemm([(count, 0, 0, across), *place], dst, entries, wgt + block * across, overwrite=fresh)

    def _places(self, bank: int) -> tuple[int, int, int]:
        """The first accumulators of a tile, of its sums of rows and of those of columns."""
        t, other = self.plan.tile, self.banks[1 - bank] + self.size
        return self.banks[bank], other, other + t.matrices * t.rows * bool(self.plan.points[1])

    def _zeros(self, entries: list[int], t: Tile, first: int, apart: bool) -> Iterator[tuple[int, int, int, bool]]:
        """(entry of a zero point, first block of the tile, blocks, whether they replace the sums) of its products."""
        plan, masked = self.plan, self.plan.lanes < self.rec.cfg.block_in
        last = first + t.inner == plan.inner and masked
        kinds = 1 + masked
        fresh = apart and first == 0
        for k in range(0, len(entries), kinds):
            for entry, block, count in ((entries[k], 0, t.inner - last), (entries[k + masked], t.inner - 1, int(last))):
                if not count:
                    continue
                if fresh and count > 1:  # only the first block replaces what the accumulators hold
                    yield entry, block, 1, True
                    block, count, fresh = block + 1, count - 1, False
                yield entry, block, count, fresh
                fresh = False

    def _add_sums(self, bank: int, t: Tile) -> None:
        plan, program, (acc, rows, columns) = self.plan, self.rec.program, self._places(bank)
        step = t.columns * t.rows
        if plan.rows_apart:
            program.alu(AluOp.ADD, [(t.matrices, step, t.rows), (t.columns, t.rows, 0), (t.rows, 1, 1)], acc, rows)
        if plan.columns_apart:
            loops = [(t.matrices, step, t.columns), (t.columns, t.rows, 1), (t.rows, 1, 0)]
            program.alu(AluOp.ADD, loops, acc, columns)

    def _store(self, bank: int, first: tuple[int, int, int], t: Tile) -> None:
        (m, n, r), plan = first, self.plan
        offset = (m * plan.columns + n) * plan.rows + r
        out, count = self.rec.activations[self.op.output.name], t.matrices * t.columns
        self.rec.program.store(
            self.banks[bank], out, offset, y_size=count, x_size=t.rows, x_stride=plan.rows, par=self.par
        )


def _entries(numbers: tuple[int, ...], lanes: int, mem: Mem, cfg: Config) -> Iterator[np.ndarray]:
    """Entries of inputs or of weights with each number in all lanes, and in the `lanes` of the last block if fewer."""
    shape = (cfg.batch, cfg.block_in) if mem is Mem.INP else (cfg.block_out, cfg.block_in)
    for number in numbers:
        for count in (cfg.block_in, lanes)[: 1 + (lanes < cfg.block_in)]:
            entry = np.zeros(shape, np.int8)
            entry[:, :count] = number
            yield entry
