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

from ...hw.config import Config
from ...hw.isa import Mem
from ...runtime.softmax import exponentials
from .. import graph as g
from . import reciprocal, scales
from .language import Array, Kernel, Tile, Unfit
from .on_chip import KEPT
from .whole_blocks import in_whole_blocks

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
    def batches(self) -> list[list[slice]]:
        """The groups of each tile of each batch; tiles are in the banks in turn."""
        size = max(1, min(self.most, -(-self.groups // 2) if self.groups * self.whole > _TILE else self.groups))
        tiles = [slice(n, min(self.groups, n + size)) for n in range(0, self.groups, size)]
        together = 2 * max(1, self.half // size)
        return [tiles[n : n + together] for n in range(0, len(tiles), together)]


def plan_of(op: g.Softmax, cfg: Config) -> Plan:
    """The plan of `op`; `most` is 0 where nothing fits."""
    n, channels, *size = op.x.shape
    lanes, blocks = cfg.block_in, -(-channels // cfg.block_in)
    room = (cfg.par_entries - 1) // 2
    bank = cfg.acc_depth // 2 - reciprocal.NUMBERS
    each = sum(math.prod(extents.values()) for extents in reciprocal.accumulators(1, cfg))
    half = min(_TOGETHER, room, bank // (each + _STATS))
    free = bank - _STATS * half
    weights = (cfg.wgt_depth - scales.matrices(cfg)) // (_SLOTS * blocks)
    most = min(half, max(1, _TILE // (blocks * lanes)), (free - lanes) // (blocks * lanes), weights)
    rest = max(0, free - most * blocks * lanes) // lanes
    at_once = max(1, min(blocks, rest))
    return Plan(n, math.prod(size), channels, lanes, max(0, most), half, at_once, rest // at_once)


@dataclass(frozen=True)
class _Bank:
    """What belongs to the groups whose tiles are in one bank of accumulators, `free`.

    The largest values and the sums of each group are in the other bank; `beside` is for the former in this one. The
    `inputs`, `planes`, `words` are for parameters `par` that are made of the sums.
    """

    free: Tile
    largest: Tile
    sums: Tile
    beside: Tile
    inputs: Tile
    par: Tile
    planes: Array
    words: Array


@dataclass(frozen=True)
class _Tile:
    """Groups of rows, and which they are of those in their bank."""

    groups: slice
    own: slice
    bank: _Bank

    @property
    def count(self) -> int:
        """How many groups."""
        return self.groups.stop - self.groups.start


def softmax(k: Kernel, op: g.Softmax) -> None:
    """Batch by batch."""
    k.need("acc8", "lookup", "overwrite", "requant", "rescale", batch=1)
    if op.axis != 1 or len(op.x.shape) != 4:
        raise Unfit(f"along axis {op.axis} of {len(op.x.shape)} dimensions: only along the channels of images")
    plan = plan_of(op, k.cfg)
    large = op.x.shape[1] << reciprocal.LEAST_BITS - 1 >= reciprocal.LARGEST
    if large or not plan.most or k.cfg.par_entry_bytes % k.cfg.out_entry_bytes:
        raise Unfit(f"rows of {op.x.shape[1]} elements do not fit")
    x = k.input(0)
    if plan.rows % plan.lanes or x.address[1] % k.cfg.wgt_entry_bytes:
        x = in_whole_blocks(k, 0)
    _Softmax(k, plan, k.array(x.buffer, image=plan.images, block=plan.blocks, group=plan.in_image)).record(op)


class _Softmax:
    """Records the softmax of rows `x` (image, block, group), each group of a block an entry of weights."""

    def __init__(self, k: Kernel, plan: Plan, x: Array):
        self.k, self.plan, self.x, lanes = k, plan, x, plan.lanes
        self.units = k.constant(Mem.INP, "units", np.eye(lanes, dtype=np.int8)[:, None], kept=True, lane=lanes)
        count = min(plan.half, plan.groups)
        group, free = {"group": count}, {"entry": k.bank - _STATS * count - reciprocal.NUMBERS}
        first, second = (
            k.tiles(Mem.ACC, free, {"number": reciprocal.NUMBERS}, group, group, low=low, high=low + k.bank)
            for low in (0, k.bank)
        )
        self.numbers = first[1]
        size, high = plan.most * plan.blocks, k.cfg.wgt_depth - scales.matrices(k.cfg)
        self.weights = k.slots(size, Mem.WGT, _SLOTS, high=high)
        high = k.cfg.inp_depth - k.cfg.inp_depth // KEPT
        inputs = k.tile(Mem.INP, high=high, bank=2, entry=count * scales.PLANES)
        par, slope = k.tiles(Mem.PAR, {"bank": 2} | group, {"par": 1})
        self.slope = slope[0]
        self.banks = [
            _Bank(
                own[0], other[2], other[3], own[3], inputs[n], par[n],
                k.temporary("planes", entry=scales.PLANES * count),
                k.temporary("words", entry=scales.entries(k.cfg) * count),
            )
            for n, (own, other) in enumerate(((first, second), (second, first)))
        ]  # fmt: skip
        self.turned = k.temporary("turned", group=plan.groups, channel=plan.whole)

    def record(self, op: g.Softmax) -> None:
        """All batches."""
        constants = None
        for batch in self.plan.batches:
            tiles, counts = [], [0, 0]
            for n, groups in enumerate(batch):
                first, counts[n % 2] = counts[n % 2], counts[n % 2] + groups.stop - groups.start
                tiles.append(_Tile(groups, slice(first, counts[n % 2]), self.banks[n % 2]))
            scores = self._load(tiles[0])  # before constants, which are read later
            constants = constants or self._constants(op)
            for n, tile in enumerate(tiles):
                following = self._load(tiles[n + 1]) if n + 1 < len(tiles) else scores
                self._sum(tile, scores)
                scores = following
            take_turns([self._reciprocals(*pair, constants) for pair in zip(self.banks, counts) if pair[1]])
            for bank, count in zip(self.banks, counts):
                if count:  # stores read a bank while the ALU reads the other one alone
                    bank.beside[:count] = 0
                    bank.beside[:count].add(bank.largest[:count])
            self._quotients(tiles)

    def _constants(self, op: g.Softmax) -> reciprocal.Constants:
        """Load tables, parameters and matrices."""
        known, summands = exponentials(*op.multipliers)
        self.summand = self.k.table("summand", summands[::-1])
        self.exponential = self.k.table("exp", np.maximum(known, 0)[::-1])
        made = scales.byte_matrices(self.k, -128, -128, 127)
        return reciprocal.load_constants(self.k, made, self.slope, self.numbers)

    def _load(self, tile: _Tile) -> Tile:
        """Load the scores of a tile, block after block for each group."""
        weights = self.weights.next(group=tile.count, block=self.plan.blocks)
        for n, group in enumerate(range(tile.groups.start, tile.groups.stop)):
            image, row = divmod(group, self.plan.in_image)
            self.k.load(weights[n], self.x[image, :, row])
        return weights

    def _turn(self, tile: _Tile, weights: Tile) -> Tile:
        """The scores of a tile in accumulators (group, channel), whose lanes are rows."""
        full, rest = divmod(self.plan.channels, self.plan.lanes)
        (y,) = tile.bank.free.pieces({"group": tile.count, "channel": self.plan.whole})
        if full:
            blocks = y[:, : full * self.plan.lanes].split("channel", block=full, lane=self.plan.lanes)
            blocks[...] = self.units @ weights[:, :full]
        if rest:
            last = y[:, full * self.plan.lanes : self.plan.channels].named(channel="lane")
            last[...] = self.units[:rest] @ weights[:, full]
        return y

    def _sum(self, tile: _Tile, weights: Tile) -> None:
        """The largest value of each row, and the sum of exponentials."""
        largest, sums = tile.bank.largest[tile.own], tile.bank.sums[tile.own]
        largest[...] = self.units[0] @ weights[:, 0]
        sums[...] = 0
        values = self._turn(tile, weights)[:, : self.plan.channels]
        largest.maximum(values, over="channel group")
        largest *= -1
        largest += _OFFSET
        values += largest
        values.lookup(self.summand)
        sums.add(values, over="channel group")

    def _reciprocals(self, bank: _Bank, count: int, found: reciprocal.Constants) -> Iterator[None]:
        """Make the parameters of the groups of a bank, where its tiles were."""
        arrays, planes, words = bank.free.pieces(*reciprocal.accumulators(count, self.k.cfg))
        (inputs,) = bank.inputs.pieces(planes.shape)
        dram = self.k.array(bank.planes.buffer, **planes.shape), self.k.array(bank.words.buffer, **words.shape)
        at = scales.Places(planes, words, inputs, bank.par[:count], *dram)
        return reciprocal.inverse(self.k, found, at, bank.sums[:count], arrays)

    def _quotients(self, tiles: Sequence[_Tile]) -> None:
        """Divide and store, tile by tile: a tile is loaded again behind the next one, and turned behind that."""
        scores, turned = self._load(tiles[0]), list[Tile]()
        as_weights = self.k.array(self.turned.buffer, group=self.plan.groups, block=self.plan.blocks)
        for n in range(len(tiles) + 2):
            if n < len(tiles):
                following = self._load(tiles[n + 1]) if n + 1 < len(tiles) else scores
                self._divide(tiles[n], scores)
                scores = following
            if 1 <= n <= len(tiles):
                turned.append(self.weights.load(as_weights[tiles[n - 1].groups]))
            if n >= 2:
                self._store(tiles[n - 2], turned[n - 2])

    def _divide(self, tile: _Tile, weights: Tile) -> None:
        """The quotients of a tile, whose lanes are rows, to DRAM."""
        y, channels = self._turn(tile, weights), self.plan.channels
        values = y[:, :channels]
        values += tile.bank.beside[tile.own]
        values.lookup(self.exponential)
        if channels < self.plan.whole:
            y[:, channels:] = 0
        self.k.store(self.turned[tile.groups], y, tile.bank.par[tile.own])

    def _store(self, tile: _Tile, weights: Tile) -> None:
        """Turn the quotients of a tile, and store them as rows of channels."""
        plan, each = self.plan, self.plan.blocks_at_once * self.plan.lanes
        out = self.k.array(self.k.output.buffer, image=plan.images, block=plan.blocks, row=plan.rows)
        _, turned = tile.bank.free.pieces({"entry": plan.most * plan.whole}, {"place": plan.places, "entry": each})
        places = cycle(turned[n] for n in range(plan.places))
        for n, group in enumerate(range(tile.groups.start, tile.groups.stop)):
            image, row = divmod(group, plan.in_image)
            rows = slice(row * plan.lanes, min((row + 1) * plan.lanes, plan.rows))
            for first in range(0, plan.blocks, plan.blocks_at_once):
                blocks = slice(first, min(first + plan.blocks_at_once, plan.blocks))
                target = out[image, blocks, rows]
                (y,) = next(places).pieces(target.shape)
                y[...] = self.units[: y.shape["row"]].named(lane="row") @ weights[n, blocks]
                self.k.store(target, y)


def take_turns(parts: Sequence[Iterator[None]]) -> None:
    """Run the parts, each until it waits, in turn."""
    waiting = list(parts)
    while waiting:
        waiting = [part for part in waiting if next(part, waiting) is None]
