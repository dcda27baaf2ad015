"""Softmax along channels, pixel by pixel: TensorFlow Lite's integers (runtime/hostops/fixed_point.py), bit by bit.

Rows, the pixels, come into lanes: 16 rows of 16 channels are an entry of weights, which times each unit vector is one
channel of all rows. So the largest value and the sum are operations on entries, and a group of 16 rows shares an entry
of parameters, the reciprocals of their sums (reciprocal.py). The quotients leave by a requantising store, and turn
again. Of a batch of groups come first all sums, tile by tile, then all reciprocals, those of one half while those of
the other one wait for DRAM, then all quotients, in tiles that take turns in both banks; those of a tile turn while the
next ones are computed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import cycle

import numpy as np

from ...hw.isa import Mem
from ...runtime.hostops.fixed_point import exponentials
from .. import graph as g
from . import reciprocal
from .language import Kernel, Tile, Unfit, cuts
from .whole_blocks import in_whole_blocks

_OFFSET = 127  # that brings differences of 0 to -255 into the range of a table
_SLOTS = 6  # tiles of weights on chip: some are loaded while others are read
_TILE = 384  # accumulators: enough to hide what an instruction costs
_TOGETHER = 18  # groups of half a batch, where there are as many


def softmax(k: Kernel, op: g.Softmax) -> None:
    """Batch by batch."""
    k.need("acc8", "lookup", "overwrite", "requant", "rescale", batch=1)
    if op.axis != 1 or len(op.x.shape) != 4:
        raise Unfit(f"along axis {op.axis} of {len(op.x.shape)} dimensions: only along the channels of images")
    if op.x.shape[1] << reciprocal.LEAST_BITS - 1 >= reciprocal.LARGEST:
        raise Unfit(f"rows of {op.x.shape[1]} elements: sums have more than {reciprocal.MOST_BITS} bits")
    _Softmax(k, op).record()


class _Softmax:
    """Records the softmax of rows `x` (image, block, group), each group of a block an entry of weights."""

    def __init__(self, k: Kernel, op: g.Softmax):
        self.k, (images, self.channels, *size), self.lanes = k, op.x.shape, k.cfg.block_in
        lanes, rows = self.lanes, math.prod(size)
        blocks, in_image = -(-self.channels // lanes), -(-rows // lanes)
        self.groups, whole = images * in_image, blocks * lanes
        x = k.input(0)
        if rows % lanes or x.address[1] % k.cfg.wgt_entry_bytes:
            x = in_whole_blocks(k, 0)
        self.x = k.array(x.buffer, image=images, block=blocks, group=in_image)
        self.out = k.array(k.output.buffer, image=images, block=blocks, row=rows)
        self.quotients = k.temporary("turned", group=self.groups, channel=whole)
        self.again = k.array(self.quotients.buffer, group=self.groups, block=blocks)  # as weights
        self.units = k.constant(Mem.INP, "units", np.eye(lanes, dtype=np.int8)[:, None], kept=True, lane=lanes)
        known, summands = exponentials(*op.multipliers)
        self.summand = k.table("summand", summands[::-1])
        self.exponential = k.table("exp", np.maximum(known, 0)[::-1])

        most, room = k.bank - reciprocal.NUMBERS, reciprocal.accumulators(1, k.cfg)
        half = min(_TOGETHER, (k.cfg.par_entries - 1) // 2, most // (room + 4), (most - whole - lanes) // 4)
        batches = -(-self.groups // (2 * max(1, half)))
        half = min(half, -(-self.groups // (2 * batches)))  # of all batches alike
        free, high = most - 4 * half, k.cfg.wgt_depth - reciprocal.PLANES * reciprocal.entries(k.cfg)
        self.batch = 2 * half
        self.size = min(half, max(1, _TILE // whole), (free - lanes) // whole, high // (_SLOTS * blocks))
        if self.size < 1:
            raise Unfit(f"rows of {self.channels} elements do not fit")

        group, entry = {"group": self.batch}, {"entry": free}
        self.weights = k.slots(self.size * blocks, Mem.WGT, _SLOTS, high=high)
        first, self.numbers, beside = k.tiles(Mem.ACC, entry, {"number": reciprocal.NUMBERS}, group, high=k.bank)
        second, largest, self.sums = k.tiles(Mem.ACC, entry, group, group, low=k.bank)
        self.banks, self.largest = (first, second), (beside, largest)
        self.par, self.slope = k.tiles(Mem.PAR, group, {"par": 1})

    def record(self) -> None:
        """All batches."""
        reciprocals = list[reciprocal.Reciprocals]()
        for first in range(0, self.groups, self.batch):
            count = min(self.batch, self.groups - first)
            tiles = cuts(count, self.size)
            self.sums[...] = 0
            for tile, scores in self._loaded(first, tiles):
                self._sum(tile, scores)
            reciprocals = reciprocals or self._reciprocals()  # their constants behind scores, which are read first
            take_turns([half.inverse(sums) for half, sums in zip(reciprocals, self.sums.parts(self.batch // 2))])
            beside, largest = (tile[:count] for tile in self.largest)
            beside[...] = 0
            beside += largest
            self._quotients(first, tiles)

    def _reciprocals(self) -> list[reciprocal.Reciprocals]:
        """Load constants; what makes the parameters of each half of a batch."""
        constants = reciprocal.load_constants(self.k, self.slope[0], self.numbers)
        parts = zip(self.par.parts(self.batch // 2), self.banks)
        return [reciprocal.Reciprocals(self.k, constants, par, bank) for par, bank in parts]

    def _loaded(self, first: int, tiles: Sequence[slice]) -> Iterator[tuple[slice, Tile]]:
        """Each tile of the batch from group `first` on with its scores, those of the next one loaded ahead."""
        scores = (self._load(range(first + tile.start, first + tile.stop)) for tile in tiles)
        following = next(scores)
        for tile in tiles:
            loaded, following = following, next(scores, following)
            yield tile, loaded

    def _load(self, groups: range) -> Tile:
        """The scores of groups, block after block for each of them."""
        weights = self.weights.next(group=len(groups), block=self.x.shape["block"])
        for n, group in enumerate(groups):
            image, row = divmod(group, self.x.shape["group"])
            self.k.load(weights[n], self.x[image, :, row])
        return weights

    def _turn(self, bank: Tile, weights: Tile) -> Tile:
        """The scores of a tile in accumulators (group, channel), whose lanes are rows."""
        blocks = weights.shape | {"lane": self.lanes}
        (y,) = bank.pieces(blocks)
        y[...] = self.units @ weights
        return y.merged("channel", "block", "lane")

    def _sum(self, tile: slice, weights: Tile) -> None:
        """The largest value of each row, times -1 and with the offset, and the sum of exponentials."""
        largest = self.largest[1][tile]
        largest[...] = self.units[0] @ weights[:, 0]
        values = self._turn(self.banks[0], weights)[:, : self.channels]
        largest.maximum(values, over="channel group")
        largest *= -1
        largest += _OFFSET
        values += largest
        values.lookup(self.summand)
        self.sums[tile].add(values, over="channel group")

    def _quotients(self, first: int, tiles: Sequence[slice]) -> None:
        """Divide and store, tile by tile: a tile is loaded again behind the next one, and turned behind that."""
        quotients, again = (a[first : first + tiles[-1].stop] for a in (self.quotients, self.again))
        turned, loaded = list[Tile](), self._loaded(first, tiles)
        for n in range(len(tiles) + 2):
            if n < len(tiles):
                tile, scores = next(loaded)
                self.k.store(quotients[tile], self._divide(tile, scores, n % 2), self.par[tile])
            if 1 <= n <= len(tiles):
                turned.append(self.weights.load(again[tiles[n - 1]]))
            if n >= 2:
                self._store(first + tiles[n - 2].start, self.banks[n % 2], turned[n - 2])

    def _divide(self, tile: slice, weights: Tile, bank: int) -> Tile:
        """The quotients of a tile, whose lanes are rows."""
        y = self._turn(self.banks[bank], weights)
        values = y[:, : self.channels]
        values += self.largest[bank][tile]
        values.lookup(self.exponential)
        return y

    def _store(self, first: int, bank: Tile, weights: Tile) -> None:
        """Turn quotients of groups from `first` on, as many blocks at a time as fit behind a tile."""
        lanes, blocks, rows = self.lanes, self.out.shape["block"], self.out.shape["row"]
        rest = bank[self.size * blocks * lanes :]
        at_once = min(blocks, rest.size // lanes)
        places = cycle(rest.parts(at_once * lanes)[: rest.size // (at_once * lanes)])
        for n, group in enumerate(range(first, first + weights.shape["group"])):
            image, row = divmod(group, self.x.shape["group"])
            for part in cuts(blocks, at_once):
                target = self.out[image, part, row * lanes : min((row + 1) * lanes, rows)]
                (y,) = next(places).pieces(target.shape)
                y[...] = self.units[: y.shape["row"]].named(lane="row") @ weights[n, part]
                self.k.store(target, y)


def take_turns(parts: Sequence[Iterator[None]]) -> None:
    """Run the parts, each until it waits, in turn."""
    waiting = list(parts)
    while waiting:
        waiting = [part for part in waiting if next(part, waiting) is None]
