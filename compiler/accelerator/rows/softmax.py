"""Softmax along channels, pixel by pixel: TensorFlow Lite's integers (runtime/softmax.py), bit by bit.

Rows, the pixels, come into lanes: 16 rows of 16 channels are an entry of weights, which times each unit vector is one
channel of all rows. So the largest value and the sum are operations on entries, and 16 rows share an entry of
parameters, the reciprocals of their sums (reciprocal.py). The quotients leave by a requantising store, and turn again.
Two tiles, one in each bank, take turns: one waits for DRAM where the other computes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ....hw.config import Config
from ....hw.isa import AluOp, Mem
from ....hw.rtl.latencies import issue_interval, multiply_interval
from ....runtime.buffer import Buffer
from ....runtime.softmax import exponentials
from ... import cost
from ... import graph as g
from ..direct import lookup
from ..direct.on_chip import OnChip, on_chip
from ..matrices.weights import in_whole_blocks
from ..recording import Recording, place
from . import reciprocal, scales

_TABLES = 3
_OFFSET = 127  # that brings differences of 0 to -255 into the range of a table
_STATS = 2  # accumulators per group of rows that lie in the other bank: the largest value, the sum
_ALONE = 128  # entries that one tile holds, because two would wait for one another


@dataclass(frozen=True)
class Plan:
    """`groups` of `lanes` rows in each of `images`, of `channels`, `most` groups in a tile."""

    images: int
    rows: int
    channels: int
    lanes: int
    most: int

    @property
    def blocks(self) -> int:
        """Blocks of channels."""
        return -(-self.channels // self.lanes)

    @property
    def in_image(self) -> int:
        """Groups of rows of an image."""
        return -(-self.rows // self.lanes)

    @property
    def whole(self) -> int:
        """Channels with those that fill the last block."""
        return self.blocks * self.lanes

    @property
    def tiles(self) -> list[range]:
        """The groups of each tile, an even number of tiles of equal size but where one suffices."""
        groups = self.images * self.in_image
        parts = -(-groups // self.most)
        if groups > 1 and groups * self.whole > _ALONE:
            parts += parts % 2
        size = -(-groups // parts)
        return [range(first, min(groups, first + size)) for first in range(0, groups, size)]


def plan_of(op: g.Softmax, cfg: Config) -> Plan:
    """The plan of `op`; `most` is 0 where nothing fits."""
    n, channels, *size = op.x.shape
    lanes, blocks = cfg.block_in, -(-channels // cfg.block_in)
    half = cfg.acc_depth // 2 - reciprocal.NUMBERS
    room = min(
        half // (max(blocks * lanes, reciprocal.accumulators(1, cfg)) + _STATS),
        (cfg.wgt_depth // 2 - (scales.PLANES + 1) * scales.entries(cfg)) // blocks,
        (cfg.par_entries - 1) // 2,
    )
    return Plan(n, math.prod(size), channels, lanes, max(0, room))


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
    """Estimated cycles: of each entry, twelve of the ALU and the array; of each tile, its reciprocals."""
    plan = plan_of(op, cfg)
    groups, tiles, wait = plan.images * plan.in_image, len(plan.tiles), multiply_interval(cfg) + cost.INSTRUCTION
    entry = 7 + 2 * issue_interval(cfg, multiply=True)
    words = scales.entries(cfg)
    made = words * (scales.WORD + 1) + cost.moved(cfg, 2 * cfg.par_entry_bytes) + 2 * wait
    chain = (reciprocal.STEPS + 1) * (4 * cost.ROUND_TRIP + 6 * wait) + 10 * wait
    alone = chain * (1 if tiles == 1 else tiles / 2)
    fixed = (
        cost.moved(cfg, 3 * cfg.table_entries * cfg.par_entry_bytes + cfg.wgt_entry_bytes * 6 * words)
        + 8 * cost.LATENCY
    )
    return fixed + alone + groups * (plan.whole * entry + (reciprocal.STEPS + 1) * made)


def lower(rec: Recording, op: g.Softmax) -> None:
    """Append the softmax, tile by tile."""
    plan, x = plan_of(op, rec.cfg), rec.operand(op, 0)
    if plan.rows % plan.lanes or place(x)[1] % rec.cfg.wgt_entry_bytes:
        x = in_whole_blocks(rec, op.name, op.x, x)
    with on_chip(rec) as chip:
        kernel = _Kernel(rec, op, plan, chip, x)
        take_turns([kernel.tiles(bank) for bank in (0, 1)])


def take_turns(parts: Sequence[Iterator[None]]) -> None:
    """Run the parts, each until it waits, in turn."""
    waiting = list(parts)
    while waiting:
        waiting = [part for part in waiting if next(part, waiting) is None]


@dataclass(frozen=True)
class _Places:
    """Where a tile is on chip: scores or what makes parameters at `acc`, the largest values at `largest`, the sums
    behind them, weights from `wgt` on, and what is for the parameters."""

    acc: int
    largest: int
    wgt: int
    inp: int
    par: int
    dram_planes: Buffer
    dram_words: Buffer


class _Kernel:
    """The places of two tiles, and the constants."""

    def __init__(self, rec: Recording, op: g.Softmax, plan: Plan, chip: OnChip, x: Buffer):
        self.rec, self.op, self.plan, self.x = rec, op, plan, x
        cfg, entry = rec.cfg, (rec.cfg.batch, rec.cfg.block_in)
        units = np.eye(cfg.block_in, dtype=np.int8)[:, None]
        self.units = chip.kept(Mem.INP, f"{op.name}.units", units, cfg.block_in)
        made = scales.on_chip_scales(rec, chip, -128, -128, 127)
        self.size = size = max(len(tile) for tile in plan.tiles)
        tile, half = size * max(plan.whole, reciprocal.accumulators(1, cfg)), cfg.acc_depth // 2
        acc = chip.banks(tile + _STATS * size, tile + _STATS * size + reciprocal.NUMBERS, half)
        wgt = chip.region(Mem.WGT, 2 * size * plan.blocks)
        par, inp = chip.region(Mem.PAR, 2 * size + 1), chip.region(Mem.INP, 2 * size * scales.PLANES)
        self.places = [
            _Places(
                acc[k],
                acc[1 - k] + tile,
                wgt + k * size * plan.blocks,
                inp + k * size * scales.PLANES,
                par + k * size,
                rec.buffer(f"{op.name}.planes", (scales.PLANES * size, *entry), kind="temp"),
                rec.buffer(f"{op.name}.words", (scales.entries(cfg) * size, *entry), kind="temp"),
            )
            for k in (0, 1)
        ]
        known, summands = exponentials(*op.multipliers)
        self.exponential = lookup.loaded(rec, f"{op.name}.exp", np.maximum(known, 0)[::-1])
        self.summand = lookup.loaded(rec, f"{op.name}.summand", summands[::-1])
        numbers = acc[1] + tile + _STATS * size
        self.constants = reciprocal.constants(rec, op.name, made, par + 2 * size, numbers)
        groups = plan.images * plan.in_image
        self.turned = rec.buffer(f"{op.name}.turned", (groups * plan.whole, *entry), kind="temp")

    def tiles(self, bank: int) -> Iterator[None]:
        """Compute every other tile, in `bank`; yields where it waits for DRAM."""
        at = self.places[bank]
        for tile in self.plan.tiles[bank::2]:
            yield from self._tile(tile, at)

    def _tile(self, tile: range, at: _Places) -> Iterator[None]:
        program, count, whole, channels = self.rec.program, len(tile), self.plan.whole, self.plan.channels
        sums = at.largest + self.size
        self._load(tile, at.wgt)
        yield
        self._turn(at.acc, at.wgt, count)
        program.gemm([(count, 1, 0, self.plan.blocks)], at.largest, self.units, at.wgt, overwrite=True)
        program.gemm([(count, 1, 0, 0)], sums, reset=True)
        over = [(channels, 0, 1), (count, 1, whole)]
        program.alu(AluOp.MAX, over, at.largest, at.acc)
        program.alu(AluOp.MUL, [(count, 1, 0)], at.largest, imm=-1)
        program.alu(AluOp.ADD, [(count, 1, 0)], at.largest, imm=_OFFSET)
        self._exponentials(at, count, self.summand)
        program.alu(AluOp.ADD, over, sums, at.acc)
        words = at.acc + (reciprocal.accumulators(count, self.rec.cfg) - count * scales.entries(self.rec.cfg))
        planes = words - count * scales.PLANES
        made = scales.Places(count, planes, words, at.inp, at.par, at.dram_planes, at.dram_words)
        yield from reciprocal.inverse(self.rec, self.constants, made, sums, at.acc)
        self._turn(at.acc, at.wgt, count)
        self._exponentials(at, count, self.exponential)
        if channels < whole:
            program.gemm([(count, whole, 0, 0), (whole - channels, 1, 0, 0)], at.acc + channels, reset=True)
        program.store(at.acc, self.turned, tile[0] * whole, y_size=count, x_size=whole, par=at.par, par_step=1)
        program.load(Mem.WGT, at.wgt, self.turned, tile[0] * self.plan.blocks, x_size=count * self.plan.blocks)
        yield
        self._store(tile, at)

    def _load(self, tile: range, wgt: int) -> None:
        """Load the scores of a tile, block after block for each group."""
        plan = self.plan
        for k, group in enumerate(tile):
            image, row = divmod(group, plan.in_image)
            first = image * plan.blocks * plan.in_image + row
            base = wgt + k * plan.blocks
            self.rec.program.load(Mem.WGT, base, self.x, first, y_size=plan.blocks, x_size=1, x_stride=plan.in_image)

    def _turn(self, acc: int, wgt: int, count: int) -> None:
        """An accumulator for each channel of each group, whose lanes are rows."""
        plan = self.plan
        full, rest = divmod(plan.channels, plan.lanes)
        for first, blocks, each in ((0, full, plan.lanes), (full, 1, rest)):
            if blocks * each:
                loops = [(count, plan.whole, 0, plan.blocks), (blocks, plan.lanes, 0, 1), (each, 1, 1, 0)]
                place = acc + first * plan.lanes
                self.rec.program.gemm(loops, place, self.units, wgt + first, overwrite=True)

    def _exponentials(self, at: _Places, count: int, table: int) -> None:
        """Replace values by those of a table at their difference from the largest of their row."""
        whole, channels = self.plan.whole, self.plan.channels
        self.rec.program.alu(AluOp.ADD, [(count, whole, 1), (channels, 1, 0)], at.acc, at.largest)
        self.rec.program.alu(AluOp.LOOKUP, [(count, whole, 0), (channels, 1, 0)], at.acc, imm=table)

    def _store(self, tile: range, at: _Places) -> None:
        """Turn the quotients of a tile, and store them as rows of channels."""
        plan, program, out = self.plan, self.rec.program, self.rec.activations[self.op.output.name]
        for k, group in enumerate(tile):
            image, row = divmod(group, plan.in_image)
            size = min(plan.lanes, plan.rows - row * plan.lanes)
            acc, wgt = at.acc + k * plan.whole, at.wgt + k * plan.blocks
            program.gemm([(plan.blocks, size, 0, 1), (size, 1, 1, 0)], acc, self.units, wgt, overwrite=True)
            first = image * plan.blocks * plan.rows + row * plan.lanes
            program.store(acc, out, first, y_size=plan.blocks, x_size=size, x_stride=plan.rows)
