"""Softmax along channels, pixel by pixel: TensorFlow Lite's integers (runtime/softmax.py), bit by bit.

Rows, the pixels, come into lanes: 16 rows of 16 channels are an entry of weights, which times each unit vector is one
channel of all rows. So the largest value and the sum are operations on entries, and a group of 16 rows shares an entry
of parameters, the reciprocals of their sums (reciprocal.py). The quotients leave by a requantising store, and turn
again. Of a batch of groups come first all sums, in tiles that take turns in both banks, then all reciprocals, those of
one bank while those of the other wait for DRAM, then all quotients; those of a tile turn while the next are computed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle

import numpy as np

from ....hw.config import Config
from ....hw.isa import AluOp, Mem
from ....hw.rtl.latencies import issue_interval, multiply_interval
from ....runtime.buffer import Buffer
from ....runtime.softmax import exponentials
from ... import cost
from ... import graph as g
from ..direct import lookup
from ..direct.on_chip import KEPT, OnChip, on_chip
from ..matrices.weights import in_whole_blocks
from ..recording import Recording, place
from . import reciprocal, scales

_TABLES = 3
_OFFSET = 127  # that brings differences of 0 to -255 into the range of a table
_STATS = 2  # accumulators per group that lie in the other bank: the largest value, the sum
_SLOTS = 6  # tiles of weights on chip: some are loaded while others are read
_TILE = 384  # accumulators: enough to hide what an instruction costs
_TOGETHER = 18  # groups of a bank whose reciprocals are computed together, where there are as many


@dataclass(frozen=True)
class Plan:
    """`images` of `rows` rows of `channels`, `lanes` rows in a group, `most` groups in a tile and `half` in a bank.

    A tile of quotients turns `blocks_at_once` blocks of a group at a time, in one of `places` after the other.
    """

    images: int
    rows: int
    channels: int
    lanes: int
    most: int
    half: int
    blocks_at_once: int
    places: int

    @property
    def blocks(self) -> int:
        """Blocks of channels."""
        return -(-self.channels // self.lanes)

    @property
    def in_image(self) -> int:
        """Groups of rows of an image."""
        return -(-self.rows // self.lanes)

    @property
    def groups(self) -> int:
        """Groups of rows."""
        return self.images * self.in_image

    @property
    def whole(self) -> int:
        """Channels with those that fill the last block."""
        return self.blocks * self.lanes

    @property
    def batches(self) -> list[list[range]]:
        """The groups of each tile of each batch; tiles are in the banks in turn."""
        size = max(1, min(self.most, -(-self.groups // 2) if self.groups * self.whole > _TILE else self.groups))
        tiles = [range(k, min(self.groups, k + size)) for k in range(0, self.groups, size)]
        together = 2 * max(1, self.half // size)
        return [tiles[k : k + together] for k in range(0, len(tiles), together)]


def plan_of(op: g.Softmax, cfg: Config) -> Plan:
    """The plan of `op`; `most` is 0 where nothing fits."""
    n, channels, *size = op.x.shape
    lanes, blocks = cfg.block_in, -(-channels // cfg.block_in)
    room = (cfg.par_entries - 1) // 2
    bank = cfg.acc_depth // 2 - reciprocal.NUMBERS
    half = min(_TOGETHER, room, bank // (reciprocal.accumulators(1, cfg) + _STATS))
    free = bank - _STATS * half
    weights = (cfg.wgt_depth - scales.matrices(cfg)) // (_SLOTS * blocks)
    most = min(half, max(1, _TILE // (blocks * lanes)), (free - lanes) // (blocks * lanes), weights)
    rest = max(0, free - most * blocks * lanes) // lanes
    at_once = max(1, min(blocks, rest))
    return Plan(n, math.prod(size), channels, lanes, max(0, most), half, at_once, rest // at_once)


def refusal(op: g.Softmax, cfg: Config) -> str:
    """Reason why the accelerator cannot compute it; empty if it can."""
    missing = sorted({"acc8", "lookup", "overwrite", "requant", "rescale"} - cfg.extensions)
    if missing:
        return f"it needs the extension{'s' * (len(missing) > 1)} {', '.join(missing)}"
    if cfg.tables < _TABLES:
        return f"it needs {_TABLES} tables; {cfg.name} has {cfg.tables}"
    if cfg.batch != 1 or cfg.block_in != cfg.block_out or cfg.par_entry_bytes % cfg.out_entry_bytes:
        return f"batch {cfg.batch}, blocks {cfg.block_in} and {cfg.block_out}: it needs batch 1 and equal blocks"
    if op.axis != 1 or len(op.x.shape) != 4:
        return f"along axis {op.axis} of {len(op.x.shape)} dimensions: only along the channels of images"
    if op.x.shape[1] << reciprocal.LEAST_BITS - 1 >= reciprocal.LARGEST or not plan_of(op, cfg).most:
        return f"rows of {op.x.shape[1]} elements do not fit"
    return ""


def cycles(op: g.Softmax, cfg: Config) -> float:
    """Estimated cycles: of each entry, those of the ALU and the array; the reciprocals, which wait for DRAM."""
    plan = plan_of(op, cfg)
    wait = multiply_interval(cfg) + cost.INSTRUCTION
    entry = 7 + 2 * issue_interval(cfg, multiply=True)
    made = scales.entries(cfg) * (scales.WORD + 1) + 3 * wait
    chain = (reciprocal.STEPS + 1) * (4 * cost.round_trip() + 6 * wait) + 10 * wait
    tables = _TABLES * cfg.table_entries * cfg.par_entry_bytes
    fixed = cost.moved(cfg, max(tables, scales.matrices(cfg) * cfg.wgt_entry_bytes)) + 8 * cost.latency()
    each = plan.whole * entry + (reciprocal.STEPS + 1) * made
    return fixed + len(plan.batches) * chain + plan.groups * each


def lower(rec: Recording, op: g.Softmax) -> None:
    """Append the softmax, batch by batch."""
    plan, x = plan_of(op, rec.cfg), rec.operand(op, 0)
    if plan.rows % plan.lanes or place(x)[1] % rec.cfg.wgt_entry_bytes:
        x = in_whole_blocks(rec, op.name, op.x, x)
    with on_chip(rec) as chip:
        kernel = _Kernel(rec, op, plan, chip, x)
        kernel.run(chip)


def take_turns(parts: Sequence[Iterator[None]]) -> None:
    """Run the parts, each until it waits, in turn."""
    waiting = list(parts)
    while waiting:
        waiting = [part for part in waiting if next(part, waiting) is None]


@dataclass(frozen=True)
class _Half:
    """What of the groups whose tiles are in one bank is where: tiles at `acc`, what turns at `turned`; in the other
    bank the largest values and the `sums`; what is for the parameters."""

    acc: int
    turned: int
    largest: int
    sums: int
    inp: int
    par: int
    dram_planes: Buffer
    dram_words: Buffer


@dataclass(frozen=True)
class _Tile:
    """Groups `groups`, the first of which is number `first` of those in its bank, `half`."""

    groups: range
    first: int
    half: _Half

    @property
    def count(self) -> int:
        """How many groups."""
        return len(self.groups)


class _Kernel:
    """The places on chip of what is in each bank, and the constants."""

    def __init__(self, rec: Recording, op: g.Softmax, plan: Plan, chip: OnChip, x: Buffer):
        self.rec, self.op, self.plan, self.x = rec, op, plan, x
        cfg, entry = rec.cfg, (rec.cfg.batch, rec.cfg.block_in)
        units = np.eye(cfg.block_in, dtype=np.int8)[:, None]
        self.units = chip.kept(Mem.INP, f"{op.name}.units", units, cfg.block_in)
        bank, count = cfg.acc_depth // 2, min(plan.half, plan.groups)
        acc, stats = chip.banks(bank, bank, bank), bank - _STATS * count
        self.numbers = acc[0] + stats - reciprocal.NUMBERS
        self.size = size = plan.most * plan.blocks
        self.wgt = chip.region(Mem.WGT, _SLOTS * size, 0, cfg.wgt_depth - scales.matrices(cfg))
        self.slot = 0
        inp = chip.region(Mem.INP, 2 * count * scales.PLANES, 0, cfg.inp_depth - cfg.inp_depth // KEPT)
        self.par = chip.region(Mem.PAR, 2 * count + 1)
        self.slope = self.par + 2 * count
        self.halves = [
            _Half(
                acc[k],
                acc[k] + plan.most * plan.whole,
                acc[1 - k] + stats,
                acc[1 - k] + stats + count,
                inp + k * count * scales.PLANES,
                self.par + k * count,
                rec.buffer(f"{op.name}.planes", (scales.PLANES * count, *entry), kind="temp"),
                rec.buffer(f"{op.name}.words", (scales.entries(cfg) * count, *entry), kind="temp"),
            )
            for k in (0, 1)
        ]
        self.turned = rec.buffer(f"{op.name}.turned", (plan.groups * plan.whole, *entry), kind="temp")

    def run(self, chip: OnChip) -> None:
        """Append all batches."""
        constants = None
        for batch in self.plan.batches:
            tiles, counts = [], [0, 0]
            for k, groups in enumerate(batch):
                tiles.append(_Tile(groups, counts[k % 2], self.halves[k % 2]))
                counts[k % 2] += len(groups)
            scores = self._load(tiles[0])  # before constants, which are read later
            constants = constants or self._constants(chip)
            for k, tile in enumerate(tiles):
                following = self._load(tiles[k + 1]) if k + 1 < len(tiles) else scores
                self._sums(tile, scores)
                scores = following
            take_turns([self._reciprocals(*pair, constants) for pair in zip(self.halves, counts) if pair[1]])
            for half, count in zip(self.halves, counts):
                if count:  # stores read a bank while the ALU reads the other one alone
                    self.rec.program.gemm([(count, 1, 0, 0)], self._beside(half), reset=True)
                    self.rec.program.alu(AluOp.ADD, [(count, 1, 1)], self._beside(half), half.largest)
            self._quotients(tiles)

    def _constants(self, chip: OnChip) -> reciprocal.Constants:
        """Load tables, parameters and matrices."""
        rec, name = self.rec, self.op.name
        known, summands = exponentials(*self.op.multipliers)
        self.summand = lookup.loaded(rec, f"{name}.summand", summands[::-1])
        self.exponential = lookup.loaded(rec, f"{name}.exp", np.maximum(known, 0)[::-1])
        made = scales.on_chip_scales(rec, chip, -128, -128, 127)
        return reciprocal.constants(rec, name, made, self.slope, self.numbers)

    def _next(self) -> int:
        """The next slot of weights."""
        self.slot = (self.slot + 1) % _SLOTS
        return self.wgt + self.slot * self.size

    def _load(self, tile: _Tile) -> int:
        """Load the scores of a tile, block after block for each group; their place."""
        plan, wgt = self.plan, self._next()
        for k, group in enumerate(tile.groups):
            image, row = divmod(group, plan.in_image)
            first = image * plan.blocks * plan.in_image + row
            base = wgt + k * plan.blocks
            self.rec.program.load(Mem.WGT, base, self.x, first, y_size=plan.blocks, x_size=1, x_stride=plan.in_image)
        return wgt

    def _sums(self, tile: _Tile, wgt: int) -> None:
        """The largest value of each row, and the sum of exponentials."""
        program, plan, acc = self.rec.program, self.plan, tile.half.acc
        largest, sums = tile.half.largest + tile.first, tile.half.sums + tile.first
        each, over = [(tile.count, 1, 0)], [(plan.channels, 0, 1), (tile.count, 1, plan.whole)]
        program.gemm([(tile.count, 1, 0, plan.blocks)], largest, self.units, wgt, overwrite=True)
        program.gemm([(tile.count, 1, 0, 0)], sums, reset=True)
        self._turn(acc, wgt, tile.count)
        program.alu(AluOp.MAX, over, largest, acc)
        program.alu(AluOp.MUL, each, largest, imm=-1)
        program.alu(AluOp.ADD, each, largest, imm=_OFFSET)
        self._exponentials(tile, largest, self.summand)
        program.alu(AluOp.ADD, over, sums, acc)

    def _turn(self, acc: int, wgt: int, count: int) -> None:
        """An accumulator for each channel of each group, whose lanes are rows."""
        plan = self.plan
        full, rest = divmod(plan.channels, plan.lanes)
        for first, blocks, each in ((0, full, plan.lanes), (full, 1, rest)):
            if blocks * each:
                loops = [(count, plan.whole, 0, plan.blocks), (blocks, plan.lanes, 0, 1), (each, 1, 1, 0)]
                base = acc + first * plan.lanes
                self.rec.program.gemm(loops, base, self.units, wgt + first, overwrite=True)

    def _beside(self, half: _Half) -> int:
        """Where the largest values are beside the tiles: where the sums of the other bank were."""
        return next(other.sums for other in self.halves if other is not half)

    def _exponentials(self, tile: _Tile, largest: int, table: int) -> None:
        """Replace values by those of a table at their difference from the largest of their row."""
        program, acc, whole, channels = self.rec.program, tile.half.acc, self.plan.whole, self.plan.channels
        program.alu(AluOp.ADD, [(tile.count, whole, 1), (channels, 1, 0)], acc, largest)
        program.alu(AluOp.LOOKUP, [(tile.count, whole, 0), (channels, 1, 0)], acc, imm=table)

    def _reciprocals(self, half: _Half, count: int, found: reciprocal.Constants) -> Iterator[None]:
        """Make the parameters of the groups of a bank, where its tiles were."""
        first = reciprocal.accumulators(count, self.rec.cfg) - scales.accumulators(count, self.rec.cfg)
        planes = half.acc + first
        words = planes + scales.PLANES * count
        at = scales.Places(count, planes, words, half.inp, half.par, half.dram_planes, half.dram_words)
        return reciprocal.inverse(self.rec, found, at, half.sums, half.acc)

    def _quotients(self, tiles: Sequence[_Tile]) -> None:
        """Divide and store, tile by tile: a tile is loaded again behind the next one, and turned behind that."""
        scores, turned = self._load(tiles[0]), list[int]()
        for k in range(len(tiles) + 2):
            if k < len(tiles):
                following = self._load(tiles[k + 1]) if k + 1 < len(tiles) else scores
                self._divide(tiles[k], scores)
                scores = following
            if 1 <= k <= len(tiles):
                turned.append(self._load_turned(tiles[k - 1]))
            if k >= 2:
                self._store(tiles[k - 2], turned[k - 2])

    def _divide(self, tile: _Tile, wgt: int) -> None:
        """The quotients of a tile, whose lanes are rows, to DRAM."""
        program, plan, acc, par = self.rec.program, self.plan, tile.half.acc, tile.half.par + tile.first
        self._turn(acc, wgt, tile.count)
        self._exponentials(tile, self._beside(tile.half) + tile.first, self.exponential)
        if behind := plan.whole - plan.channels:
            program.gemm([(tile.count, plan.whole, 0, 0), (behind, 1, 0, 0)], acc + plan.channels, reset=True)
        first = tile.groups[0] * plan.whole
        program.store(acc, self.turned, first, y_size=tile.count, x_size=plan.whole, par=par, par_step=1)

    def _load_turned(self, tile: _Tile) -> int:
        """Load the quotients of a tile as weights; their place."""
        wgt, blocks = self._next(), self.plan.blocks
        self.rec.program.load(Mem.WGT, wgt, self.turned, tile.groups[0] * blocks, x_size=tile.count * blocks)
        return wgt

    def _store(self, tile: _Tile, wgt: int) -> None:
        """Turn the quotients of a tile, and store them as rows of channels."""
        plan, program, out = self.plan, self.rec.program, self.rec.activations[self.op.output.name]
        places = cycle(range(plan.places))
        for k, group in enumerate(tile.groups):
            image, row = divmod(group, plan.in_image)
            size = min(plan.lanes, plan.rows - row * plan.lanes)
            for block in range(0, plan.blocks, plan.blocks_at_once):
                count, entry = min(plan.blocks_at_once, plan.blocks - block), wgt + k * plan.blocks + block
                acc = tile.half.turned + next(places) * plan.blocks_at_once * plan.lanes
                program.gemm([(count, size, 0, 1), (size, 1, 1, 0)], acc, self.units, entry, overwrite=True)
                first = (image * plan.blocks + block) * plan.rows + row * plan.lanes
                program.store(acc, out, first, y_size=count, x_size=size, x_stride=plan.rows)
