"""Attention of tokens over caches: scores, their exponentials, and the means of values, in one go on chip.

Scores are products of queries, as inputs, with tiles of keys, as weights; a query is masked to the lanes of its group.
The exponentials go to DRAM and come back as inputs, for the tiles of values; meanwhile the ALU makes the reciprocals of
their sums. Lanes of scores are positions, those of results elements of values. Queries of several tokens are more
chunks; what a token does not see is masked.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....hw.config import Config
from ....hw.isa import AluOp, Mem
from ....hw.rtl.latencies import issue_interval, multiply_interval
from ....runtime.buffer import Buffer
from ....runtime.kernels.attention import LARGEST_WEIGHT, WEIGHTS, reciprocal_shifts
from ... import cost
from ... import graph as g
from ..direct import lookup
from ..direct.on_chip import OnChip, on_chip
from ..recording import Recording, scale_parameters
from . import root
from .scores import Plan, accumulators, plan_of

_LOWEST = -(1 << 15)  # and as many bits to the left the smallest int32
_UNSEEN_BITS = 20  # by which -128 is shifted left for positions that are not seen


def cycles(op: g.Attention, cfg: Config) -> float:
    """Estimated cycles of compute, which loads of keys and values may exceed."""
    plan, product = plan_of(op, cfg), issue_interval(cfg, multiply=True)
    results, sums, queries = plan.chunks * len(plan.values), plan.chunks * plan.deep, plan.chunks * len(plan.keys)
    issues = plan.tiles * (queries + results) + plan.scores * (4 + 2 * product)
    chain = root.cycles(sums, cfg) + 6 * multiply_interval(cfg) + 3 * product * results
    # what is masked, prepared, reduced, and goes through DRAM: little for one token, as much as the scores for sixteen
    through = cost.moved(cfg, (2 * queries + 3 * plan.scores) * cfg.out_entry_bytes)
    begun = queries + through + 2 * results + root.COPIES * sums
    chain += (begun + (4 + 3 * product) * plan.heads + root.COPIES * results) * (1 - 1 / plan.rows)
    loads = cost.moved(cfg, plan.tiles * (plan.wide + plan.deep) * cfg.wgt_entry_bytes)
    return (max(issues, loads) + chain + 5 * cost.round_trip()) * -(-op.tokens // plan.rows)


def lower(rec: Recording, op: g.Attention) -> None:
    """Append the attention."""
    with on_chip(rec) as chip:
        kernel = _Kernel(rec, op, chip)
        for first in range(0, op.tokens, kernel.plan.rows):
            kernel.record(first)


@dataclass(frozen=True)
class _Banks:
    """First accumulators of each part, in one bank and the other."""

    scores: int
    results: int
    means: int
    queries: int
    maxima: int
    sums: int
    seen: int
    spread: int
    masks: int
    roots: int


def _banks(chip: OnChip, plan: Plan, half: int) -> _Banks:
    first, second = chip.banks(*accumulators(plan), half)
    results, queries = plan.chunks * len(plan.values), plan.chunks * len(plan.keys)
    sizes = queries, plan.heads, plan.heads, plan.rows * plan.tiles, results, len(plan.values)
    after = np.cumsum([second, *sizes]).tolist()
    return _Banks(first, first + plan.scores, first + plan.scores + results, *after)


class _Kernel:
    """Records one attention, part by part, with the entries that it takes."""

    def __init__(self, rec: Recording, op: g.Attention, chip: OnChip):
        self.rec, self.op, self.program, self.cfg = rec, op, rec.program, rec.cfg
        self.plan = plan = plan_of(op, rec.cfg)
        self.seen = rec.constant(f"{op.name}.seen", _seen(plan.tiles, rec.cfg.block_in))
        self.table = lookup.loaded(rec, f"{op.name}.exponential", WEIGHTS)
        self.tables = root.tables(rec, op.name)
        self.par = chip.region(Mem.PAR, 2)
        for k, scale in enumerate(op.multipliers):
            source = scale_parameters(rec, op, ("scores", "means")[k], scale)
            self.program.load(Mem.PAR, self.par + k, source, 0)
        self.acc = _banks(chip, plan, rec.cfg.acc_depth // 2)
        self.masks = plan.masks()
        tiles = self.masks[:, None, :] * np.eye(rec.cfg.block_in, dtype=np.int8)
        self.diagonals = chip.kept(Mem.WGT, f"{op.name}.diagonals", tiles, len(tiles))
        self.wgt = chip.region(Mem.WGT, plan.slots * plan.slot, 0, self.diagonals)
        self.inp = chip.region(Mem.INP, plan.chunks * (plan.wide + len(plan.keys)) + plan.scores)
        self.loads = 0  # of keys and values, which take the slots in turns

    def record(self, first: int) -> None:
        """Append all parts, for the rows of the plan from `first` on."""
        plan, program, acc = self.plan, self.program, self.acc
        self._prepare(first)
        self._queries(first)
        self._scores()
        self._exponentials()
        weights = self._stored(acc.scores, plan.scores, "weights")
        loads = [self._values(first, count) for first, count in [*plan.value_loads()][: plan.slots]]
        base = self.inp + plan.chunks * (plan.wide + len(plan.keys))
        self._sums()  # before the load, which stops the ALU until the weights are in DRAM
        program.load(Mem.INP, base, weights, 0, x_size=plan.scores)
        inverse = self._reciprocals()
        self._means(base, loads)
        results, size = len(plan.values), plan.chunks * plan.deep
        program.alu(AluOp.MUL, [(plan.chunks, results, 0), (results, 1, 1)], acc.results, acc.masks)
        self._by_block(AluOp.ADD, acc.means, acc.results)
        program.alu(AluOp.MUL, [(size, 1, 1)], acc.means, inverse)
        out = self.rec.activations[self.op.output.name]
        program.store(acc.means, out, first * self.op.chunks * plan.deep, x_size=size, par=self.par + 1)

    def _prepare(self, first: int) -> None:
        """What does not depend on the queries: accumulators without products, masks, and which positions are seen."""
        plan, program, acc = self.plan, self.program, self.acc
        count, results = plan.heads, plan.chunks * len(plan.values)
        masks = self.rec.constant(f"{self.op.name}.lanes", np.stack([part.mask for part in plan.values]))
        program.load(Mem.ACC8, acc.spread, masks, 0, y_size=plan.chunks, x_size=len(plan.values), x_stride=0)
        program.load(Mem.ACC8, acc.masks, masks, 0, x_size=len(plan.values))
        block, row = self.cfg.block_in, 2 * plan.tiles - 1
        at = self.rec.symbol(self.op.inputs[3], step=1, block=block // self.op.tokens, within=row)
        program.load(
            Mem.ACC8, acc.seen, self.seen, first * row, y_size=plan.rows, x_size=plan.tiles, x_stride=row, at=at
        )
        program.gemm([(results + plan.chunks * plan.deep, 1, 0, 0)], acc.results, reset=True)
        program.gemm([(2 * count, 1, 0, 0)], acc.maxima, reset=True)
        program.gemm([(root.COPIES * plan.chunks * plan.deep, 1, 0, 0)], acc.roots, reset=True)
        program.alu(AluOp.ADD, [(count, 1, 0)], acc.maxima, imm=_LOWEST)
        program.alu(AluOp.SHR, [(count, 1, 0)], acc.maxima, imm=-16)
        program.alu(AluOp.SHR, [(plan.rows * plan.tiles, 1, 0)], acc.seen, imm=-_UNSEEN_BITS)

    def _queries(self, row: int) -> None:
        """The queries in the input scratchpad, masked to each part of the keys."""
        plan, program = self.plan, self.program
        size = plan.chunks * plan.wide
        program.load(Mem.INP, self.inp, self.rec.operand(self.op, 0), row * self.op.chunks * plan.wide, x_size=size)
        number = [int((self.masks == part.mask).all(1).argmax()) for part in plan.keys]
        count, first = len(plan.keys), (self.acc.queries, self.inp, self.diagonals)
        parts = [(first[0] + k, first[1] + p.block, first[2] + number[k]) for k, p in enumerate(plan.keys)]
        program.gemm_uops(np.array(parts), [(plan.chunks, count, plan.wide, 0)], overwrite=True)
        self.keys = [self._keys(first, blocks) for first, blocks in [*plan.key_loads()][: plan.slots]]
        masked = self._stored(self.acc.queries, plan.chunks * count, "queries")
        program.load(Mem.INP, self.inp + plan.chunks * plan.wide, masked, 0, x_size=plan.chunks * count)

    def _stored(self, acc: int, count: int, what: str) -> Buffer:
        """A buffer with the low bytes of `count` accumulators."""
        out = self.rec.buffer(f"{self.op.name}.{what}", (count, 1, self.cfg.block_out), kind="temp")
        self.program.store(acc, out, 0, x_size=count)
        return out

    def _slot(self) -> int:
        """The weight entries of the next keys or values."""
        self.loads += 1
        return self.wgt + (self.loads - 1) % self.plan.slots * self.plan.slot

    def _keys(self, first: int, blocks: int) -> int:
        """Load `blocks` blocks of keys from `first` on; where they are."""
        base, positions = self._slot(), self.op.inputs[1].shape[2] // self.cfg.block_in
        self.program.load(
            Mem.WGT, base, self.rec.operand(self.op, 1), first * positions, y_size=blocks, x_size=self.plan.tiles,
            x_stride=positions,
        )  # fmt: skip
        return base

    def _values(self, first: int, tiles: int) -> int:
        """Load the values of `tiles` tiles from `first` on; where they are."""
        base, deep = self._slot(), self.plan.deep
        self.program.load(Mem.WGT, base, self.rec.operand(self.op, 2), first * deep, x_size=tiles * deep)
        return base

    def _scores(self) -> None:
        """Products of queries with keys."""
        plan, begun = self.plan, set[int]()
        queries, count = self.inp + plan.chunks * plan.wide, len(plan.keys)
        loops = [(plan.chunks, plan.groups * plan.tiles, count, 0), (plan.tiles, 1, 0, 1)]
        for number, (first, blocks) in enumerate(plan.key_loads()):
            base = self.keys[number] if number < len(self.keys) else self._keys(first, blocks)
            new, more = [], []
            for k, part in enumerate(plan.keys):
                if first <= part.block < first + blocks:
                    acc, wgt = self.acc.scores + part.group * plan.tiles, base + (part.block - first) * plan.tiles
                    (more if part.group in begun else new).append((acc, queries + k, wgt))
                    begun.add(part.group)
            for uops, overwrite in ((new, True), (more, False)):
                if uops:
                    self.program.gemm_uops(np.array(uops), loops, overwrite=overwrite)

    def _exponentials(self) -> None:
        """Weights of the scores, relative to the largest of each query."""
        plan, program, acc = self.plan, self.program, self.acc
        heads, tiles, each = plan.heads, plan.tiles, [(plan.scores, 1, 0)]
        program.alu(AluOp.RESCALE, each, acc.scores, imm=self.par)
        last = np.array([(acc.scores + k, acc.seen + tiles - 1 - k) for k in range(tiles)])
        own = heads // plan.rows
        program.alu_uops(AluOp.ADD, last, [(plan.rows, own * tiles, tiles), (own, tiles, 0)])
        program.alu(AluOp.MAX, [(heads, 1, tiles), (tiles, 0, 1)], acc.maxima, acc.scores)
        program.alu(AluOp.REDUCE, [(heads, 1, 0)], acc.maxima, imm=1)
        program.alu(AluOp.MUL, [(heads, 1, 0)], acc.maxima, imm=-1)
        program.alu(AluOp.ADD, [(heads, 1, 0)], acc.maxima, imm=LARGEST_WEIGHT)
        program.alu(AluOp.ADD, [(heads, tiles, 1), (tiles, 1, 0)], acc.scores, acc.maxima)
        program.alu(AluOp.LOOKUP, each, acc.scores, imm=self.table)

    def _sums(self) -> None:
        """The sum of the weights of each query, in the lanes of its results: `root.COPIES` copies."""
        plan, program, acc = self.plan, self.program, self.acc
        heads, results, size = plan.heads, len(plan.values), plan.chunks * plan.deep
        left, *_ = reciprocal_shifts(self.op.inputs[1].shape[2])
        program.alu(AluOp.ADD, [(heads, 1, plan.tiles), (plan.tiles, 0, 1)], acc.sums, acc.scores)
        program.alu(AluOp.REDUCE, [(heads, 1, 0)], acc.sums, imm=0)
        spread = [(acc.spread + k, acc.sums + part.group) for k, part in enumerate(plan.values)]
        program.alu_uops(AluOp.MUL, np.array(spread), [(plan.chunks, results, plan.groups)])
        if left:
            program.alu(AluOp.SHR, [(plan.chunks * results, 1, 0)], acc.spread, imm=-left)
        for k in range(root.COPIES):
            self._by_block(AluOp.ADD, acc.roots + k * size, acc.spread)

    def _reciprocals(self) -> int:
        """One over the sum of the weights for each lane of the results; the first accumulator."""
        size, (_, down, right) = self.plan.chunks * self.plan.deep, reciprocal_shifts(self.op.inputs[1].shape[2])
        inverse = root.inverse_root(self.rec, self.tables, self.acc.roots, size)
        if down:
            self.program.alu(AluOp.SHR, [(size, 1, 0)], inverse, imm=down)
        self.program.alu(AluOp.MUL, [(size, 1, 1)], inverse, inverse)
        if right:
            self.program.alu(AluOp.SHR, [(size, 1, 0)], inverse, imm=right)
        return inverse

    def _by_block(self, op: AluOp, dst: int, src: int) -> None:
        """`op` of an entry per block of values with those of its parts."""
        plan = self.plan
        pairs = [(dst + part.block, src + k) for k, part in enumerate(plan.values)]
        self.program.alu_uops(op, np.array(pairs), [(plan.chunks, plan.deep, len(plan.values))])

    def _means(self, weights: int, loaded: list[int]) -> None:
        """Products of the weights, from input entry `weights` on, with the values."""
        plan = self.plan
        for number, (first, tiles) in enumerate(plan.value_loads()):
            base = loaded[number] if number < len(loaded) else self._values(first, tiles)
            uops = [
                (self.acc.results + k, weights + part.group * plan.tiles + first, base + part.block)
                for k, part in enumerate(plan.values)
            ]
            loops = [(plan.chunks, len(plan.values), plan.groups * plan.tiles, 0), (tiles, 0, 1, plan.deep)]
            self.program.gemm_uops(np.array(uops), loops)


def _seen(tiles: int, block: int) -> np.ndarray:
    """int8 (block, 2 * tiles - 1, block): for each lane of a position its tile between -128 and 0, tiles backwards."""
    found = np.zeros((block, 2 * tiles - 1, block), np.int8)
    found[:, : tiles - 1] = -128
    found[:, tiles - 1][np.arange(block)[:, None] < np.arange(block)] = -128
    return found
