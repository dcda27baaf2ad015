"""Softmax along channels as TensorFlow Lite computes it (runtime/hostops/fixed_point.py), and Deeploy's, along columns.

For the former, rows (pixels) come into lanes: 16 rows of 16 channels are an entry of weights, which times each unit
vector is one channel of all rows, so that the largest value and the sum are operations on entries. The reciprocals of
the sums of a group of 16 rows share an entry of parameters; quotients leave by a requantising store, and turn again.

The product of two computed values is a RESCALE by parameters (PAR) that are made of one of them: it multiplies to 31
bits, and rounds as `high_product` does. The bytes of these parameters are planes, entries of accumulators whose lanes
are channels. They go through DRAM to the inputs; products with 0 and 1 order them as an entry of parameters has them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import NamedTuple

import numpy as np

from ...hw.config import PAR_BYTES, Config
from ...hw.isa import PAR, Mem
from ...hw.rounding import CONTRACTS
from ...runtime.hostops import fixed_point as kernel
from ...runtime.hostops.deeploy import exponentials as integer_exponentials
from ...runtime.hostops.fixed_point import exponentials, numerators
from .. import graph as g
from ..graph.integer_forms import Requant
from .language import Array, Extents, Kernel, Tile, Unfit, cuts, refuse
from .matmul import in_whole_blocks

_OFFSET = 127  # that brings differences of 0 to -255 into the range of a table
_SLOTS = 6  # tiles of weights on chip: some are loaded while others are read
_TILE = 384  # accumulators: enough to hide what an instruction costs
_TOGETHER = 18  # groups of half a batch, where there are as many


def softmax(k: Kernel, op: g.Softmax) -> None:
    """TensorFlow Lite's softmax along the channels of images.

    In each batch of groups come first all sums, tile by tile, then all reciprocals, of one half while the other half
    waits for DRAM, then all quotients, in tiles that take turns in both banks.
    """
    k.need("acc8", "lookup", "overwrite", "requant", "rescale", batch=1)
    if op.axis != 1 or len(op.x.shape) != 4:
        raise Unfit(f"along axis {op.axis} of {len(op.x.shape)} dimensions: only along the channels of images")
    if op.x.shape[1] << LEAST_BITS - 1 >= LARGEST:
        raise Unfit(f"rows of {op.x.shape[1]} elements: sums have more than {MOST_BITS} bits")
    _Softmax(k, op).record()


class _Softmax:
    """Records the softmax of `x` (image, block, group): each group of rows of a block is an entry of weights."""

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
        known, fraction = numerators(*op.multipliers, op.steps)
        _, summands = exponentials(*op.multipliers)
        self.form = fraction, op.output.zero_point
        self.summand = k.table("summand", summands[::-1])
        self.exponential = k.table("exp", np.maximum(known, 0)[::-1])

        most, room = k.bank - NUMBERS, reciprocal_accumulators(1, k.cfg)
        half = min(_TOGETHER, (k.cfg.par_entries - 1) // 2, most // (room + 4), (most - whole - lanes) // 4)
        batches = -(-self.groups // (2 * max(1, half)))
        half = min(half, -(-self.groups // (2 * batches)))  # of all batches alike
        free, high = most - 4 * half, k.cfg.wgt_depth - PLANES * parameter_entries(k.cfg)
        self.batch = 2 * half
        self.size = min(half, max(1, _TILE // whole), (free - lanes) // whole, high // (_SLOTS * blocks))
        refuse(self.size < 1, f"rows of {self.channels} elements do not fit")

        group, entry = {"group": self.batch}, {"entry": free}
        self.weights = k.slots(self.size * blocks, Mem.WGT, _SLOTS, high=high)
        first, self.numbers, beside = k.tiles(Mem.ACC, entry, {"number": NUMBERS}, group, high=k.bank)
        second, largest, self.sums = k.tiles(Mem.ACC, entry, group, group, low=k.bank)
        self.banks, self.largest = (first, second), (beside, largest)
        self.par, self.slope = k.tiles(Mem.PAR, group, {"par": 1})

    def record(self) -> None:
        """Record batch by batch."""
        reciprocals = list[Reciprocals]()
        for first in range(0, self.groups, self.batch):
            count = min(self.batch, self.groups - first)
            tiles = cuts(count, self.size)
            self.sums[...] = 0
            for tile, scores in self._loaded(first, tiles):
                self._sum(tile, scores)
            if not reciprocals:  # their constants are loaded behind scores, which are read first
                constants = load_constants(self.k, self.slope[0], self.numbers, *self.form)
                pars = self.par.parts(self.batch // 2)
                reciprocals = [Reciprocals(self.k, constants, par, bank) for par, bank in zip(pars, self.banks)]
            waiting = [half.inverse(sums) for half, sums in zip(reciprocals, self.sums.parts(self.batch // 2))]
            while waiting:  # each runs until it waits for DRAM
                waiting = [half for half in waiting if next(half, waiting) is None]
            beside, largest = (tile[:count] for tile in self.largest)
            beside[...] = 0
            beside += largest
            self._quotients(first, tiles)

    def _loaded(self, first: int, tiles: Sequence[slice]) -> Iterator[tuple[slice, Tile]]:
        """Each tile of the batch from group `first` on with its scores; the next scores are loaded ahead."""
        scores = (self._load(range(first + tile.start, first + tile.stop)) for tile in tiles)
        following = next(scores)
        for tile in tiles:
            loaded, following = following, next(scores, following)
            yield tile, loaded

    def _load(self, groups: range) -> Tile:
        weights = self.weights.next(group=len(groups), block=self.x.shape["block"])
        for n, group in enumerate(groups):
            image, row = divmod(group, self.x.shape["group"])
            self.k.load(weights[n], self.x[image, :, row])
        return weights

    def _turn(self, bank: Tile, weights: Tile) -> Tile:
        """The scores of a tile, turned, in accumulators (group, channel) whose lanes are rows."""
        blocks = weights.shape | {"lane": self.lanes}
        (y,) = bank.pieces(blocks)
        y[...] = self.units @ weights
        return y.merged("channel", "block", "lane")

    def _sum(self, tile: slice, weights: Tile) -> None:
        """Compute the largest value of each row, times -1 and with the offset, and the sum of exponentials."""
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
        """Divide and store each tile; load it again when the next one is divided, and turn it after that."""
        quotients, again = (a[first : first + tiles[-1].stop] for a in (self.quotients, self.again))
        turned, loaded = list[Tile](), self._loaded(first, tiles)
        for n in range(len(tiles) + 2):
            if n < len(tiles):
                tile, scores = next(loaded)
                y = self._turn(self.banks[n % 2], scores)
                values = y[:, : self.channels]
                values += self.largest[n % 2][tile]
                values.lookup(self.exponential)
                self.k.store(quotients[tile], y, self.par[tile])
            if 1 <= n <= len(tiles):
                turned.append(self.weights.load(again[tiles[n - 1]]))
            if n >= 2:
                self._store(first + tiles[n - 2].start, self.banks[n % 2], turned[n - 2])

    def _store(self, first: int, bank: Tile, weights: Tile) -> None:
        """Turn and store the quotients of groups from `first` on, as many blocks at a time as fit behind a tile."""
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


WORD = 4  # bytes of a multiplier with the lowest bit of its exponent, and the first of them
PLANES = WORD + 1  # with the byte that has the rest of the exponent
LEAST_BITS, MOST_BITS = 20, 29  # of a sum: the largest value adds 2**19, and with the exponent's limit
LARGEST = 1 << MOST_BITS  # sums are below
STEPS = 3  # of Newton's method
_ARRAYS = 5  # of accumulators: half the sum, its shift, the reciprocal and two copies
_NUMBERS = np.array([kernel.GUESS, 1 << 29, 1 << 30, (1 << 30) - 1])  # 48/17, 1, 2 and what is below it: Q2.29
NUMBERS = len(_NUMBERS)


def parameter_entries(cfg: Config) -> int:
    """Accumulators that are stored as one entry of parameters."""
    return cfg.par_entry_bytes // cfg.out_entry_bytes


def reciprocal_accumulators(count: int, cfg: Config) -> int:
    """Accumulators for `count` groups of sums, all in one bank."""
    return count * (_ARRAYS + PLANES + parameter_entries(cfg))


class Constants(NamedTuple):
    """A table of bit lengths, parameters of the first guess, accumulators with `_NUMBERS`, and what orders bytes.

    `matrices` (plane, entry) put planes at their bytes of parameters; `rest` (entry), in DRAM, has all other bytes.
    Quotients have `fraction` bits after the point.
    """

    fraction: int
    bits: int
    slope: Tile
    numbers: Tile
    matrices: Tile
    rest: Array


def load_constants(k: Kernel, slope: Tile, numbers: Tile, fraction: int, zero_point: int) -> Constants:
    """Load the constants of reciprocals: one entry of parameters, `NUMBERS` accumulators, a table, and matrices."""
    cfg, each = k.cfg, parameter_entries(k.cfg)
    places = np.arange(cfg.par_entry_bytes).reshape(each, cfg.out_entry_bytes)
    channel, byte = places // PAR_BYTES, places % PAR_BYTES
    planes, lanes = WORD + np.arange(PLANES).reshape(-1, 1, 1, 1), np.arange(cfg.block_in)
    chosen = (byte[..., None] == planes) & (channel[..., None] == lanes)
    made = chosen.astype(np.int8).reshape(-1, cfg.block_out, cfg.block_in)
    facts = {"bias": 0, "multiplier": 0, "exponent": 0, "zero_point": zero_point, "low": -128, "high": 127}
    words = PAR.encode(1, **facts, mode=CONTRACTS.index("double")).astype("<u8").view(np.int8)
    rest = k.known("rest", words.reshape(-1)[byte].reshape(each, cfg.batch, -1), entry=each)
    matrices = k.constant(Mem.WGT, "bytes", made, kept=True, plane=PLANES, entry=each)
    k.load(slope, k.requant(Requant(0, -kernel.SLOPE, 0, 0), "slope"))
    values = np.broadcast_to(_NUMBERS[:, None, None], (NUMBERS, cfg.batch, cfg.block_out)).astype(np.int32)
    k.load(numbers, k.known("numbers", values))
    bits = k.table("bits", np.array([n.bit_length() for n in range(256)]))
    return Constants(fraction, bits, slope, numbers, matrices, rest)


class Reciprocals:
    """Makes the parameters `par` (group), lane by lane, with the `accumulators` of one bank."""

    def __init__(self, k: Kernel, found: Constants, par: Tile, bank: Tile):
        self.k, self.found, self.par = k, found, par
        group, own = par.shape, {"entry": parameter_entries(k.cfg)}
        self.arrays, self.planes, self.words = bank.pieces(
            {"array": _ARRAYS} | group, {"plane": PLANES} | group, group | own
        )
        self.inputs = k.tile(Mem.INP, **self.planes.shape)
        self.stored = k.temporary("planes", **self.planes.shape), k.temporary("words", **self.words.shape)

    def make(self, word: Tile, exponent: Tile | None = None) -> Iterator[None]:
        """Make parameters of the multipliers `word` (group), which have no sign, for RESCALE.

        With `exponent`, without its lowest bit, they are for STORE, with all constant bytes. Yields where it waits for
        DRAM.
        """
        (stored, again), count = self.stored, WORD if exponent is None else PLANES
        self.planes[:count] = 0
        planes = self.planes[:WORD]
        planes += word
        for n in range(1, WORD):
            planes[n] >>= 8 * n
        if exponent is not None:
            self.planes[WORD].add(exponent)
            self.k.load(self.words, self.found.rest.repeated(group=self.par.size))
        self.k.store(stored[:count], self.planes[:count])
        yield
        inputs = self.k.load(self.inputs[:count], stored[:count])
        yield
        product = (inputs @ self.found.matrices[:count]).over("group entry plane")
        self.k.multiply(self.words, product, overwrite=exponent is None)
        self.k.store(again, self.words)
        self.k.load(self.par, self.k.array(again.buffer, **self.par.shape))
        yield

    def rescale(self, values: Tile) -> None:
        """Multiply `values` (group) by the parameters, an entry by each."""
        for group in range(values.size):
            values[group].rescale(self.par[group])

    def inverse(self, sums: Tile) -> Iterator[None]:
        """Make parameters of a STORE that divides exponentials by `sums` (group). Yields where it waits for DRAM."""
        half, shift, y, copy, other = (self.arrays[n] for n in range(_ARRAYS))
        guess, one, two, below_two = (self.found.numbers[n] for n in range(NUMBERS))
        # the sum has 20 + min(sum >> 20, 1) + bits(sum >> 21) bits; shifted left, it has 31
        self.arrays[...] = 0
        self.arrays[:3].add(sums)
        shift >>= LEAST_BITS
        y >>= LEAST_BITS + 1
        shift.minimum(1)
        y += -128
        y.lookup(self.found.bits)
        shift += LEAST_BITS - kernel.BITS
        shift += y
        half >>= shift
        y[...] = 0
        y += half
        y *= -1
        y.rescale(self.found.slope)
        y += guess
        for _ in range(STEPS):
            copy[...] = 0
            copy += half
            yield from self.make(y)
            self.rescale(copy)
            copy *= -1
            copy += one
            self.rescale(copy)
            copy <<= 2
            y += copy
        # twice the reciprocal, at most 2**31 - 1
        self.arrays[3:] = 0
        y.minimum(two)
        copy += y
        copy.minimum(below_two)
        y += copy
        # The product has 12 integer bits of the sum and 31 more to lose, less the fraction that stays: its exponent is
        # fraction - 42 - shift, of six bits in two's complement. The lowest one is the sign of the multiplier, and five
        # are a plane.
        other += shift
        other <<= 31
        y += other
        shift *= -1
        shift += self.found.fraction - 42
        shift >>= 1
        shift += 32
        yield from self.make(y, shift)


_TOP = 1 << 31


def integer_softmax(k: Kernel, op: g.IntegerSoftmax) -> None:
    """Deeploy's softmax along the columns of an image, whose channels are heads: tables, and quotients by a sum.

    With t = levels * 2**k // sum, where no exponential e reaches 2**k, `e * t >> k` is the quotient or one less; what
    is left then says which. t is the result of a long division, with a bit for each power of two times the sum that can
    still be subtracted: `min(v, v - d)` of unsigned numbers does both. v is what is left, with the bits of t behind it;
    to compare numbers as if they were unsigned, 2**31 is subtracted from it.
    """
    k.need("acc8", "lookup", "requant", batch=1)
    refuse(len(op.x.shape) != 4, f"{op.x.dtype} of {len(op.x.shape)} dimensions: only images of int8")
    # the exponentials of values that are 255 to 0 below the largest
    table = integer_exponentials(np.arange(-255, 1), op.quadratic, op.linear, op.constant, op.period)
    if table.min() < 0 or table[-1] < 1:
        raise Unfit(f"exponentials from {table.min()} on: must be positive where x is the largest")
    shift = int(table.max()).bit_length()  # the k of the formula
    dividend = (op.levels - 1) << shift
    bits = max(1, (dividend // int(table[-1])).bit_length())  # of t, the dividend by a sum
    if (dividend + (1 << bits)) << bits >= _TOP or table.max() * op.x.shape[3] >= _TOP:
        raise Unfit(f"exponentials up to {table.max()}, {op.levels} levels: quotients do not fit 32 bits")

    x, out = (image.merged("row", "n", "b", "h").named(w="column") for image in (k.input(0), k.output))
    rows, columns = x.shape.values()
    par = k.parameters(Requant(1, *op.multipliers, op.output.zero_point, op.low, op.high))
    number, bit = k.table("exponentials", table), np.arange(bits)
    # for each bit the largest divisor, its factor, and what is added; then the dividend
    lines = (dividend >> bit) + 1, -(1 << (bit + bits)), 1 << bit, [(dividend << bits) - _TOP]
    words = np.concatenate(lines).astype(np.int32).reshape(-1, 1, 1)
    constants = k.known("bits", np.repeat(words, k.cfg.block_out, 2))
    most = k.most(rows, lambda count: _tiles(count, columns, bits))
    for x_rows, out_rows in zip(x.parts(most), out.parts(most)):
        count = x_rows.shape["row"]
        first, second = _tiles(count, columns, bits)
        with k.scope():
            copies, factor = k.tiles(Mem.ACC, *first, high=k.bank)
            others, zeros, powers = k.tiles(Mem.ACC, *second, low=k.bank)
            divisors, less = zeros.pieces({"row": count, "bit": bits}, {"row": count})
            (left, products), quotients = (copies[0], copies[1]), others[0]
            for tile in (others, copies):
                k.load(tile, x_rows.repeated(copy=2))
            zeros[...] = 0
            largest = others[1].max_along("column")
            largest *= -1
            largest += 127  # the table ends with the largest
            for values in (products, quotients, left):
                values += largest
                values.lookup(number)
            sums = products.sum_along("column")
            less += sums
            less *= -1
            k.load(powers, constants[: 3 * bits])
            k.load(factor, constants[3 * bits].repeated(row=count))
            _divide(factor, sums, divisors, powers)
            left *= op.levels - 1
            products[...] = 0
            quotients *= factor
            quotients >>= shift
            products += quotients
            products *= less
            left += less
            left += products
            left >>= 31  # 0 where the quotient is one too low, else -1: the store adds 1
            quotients += left
            k.store(out_rows, quotients, par)


def _tiles(rows: int, columns: int, bits: int) -> tuple[Extents, Extents]:
    """The axes of the tiles in each bank: copies and t of each row; copies, divisors and negated sums, constants."""
    copies = {"copy": 2, "row": rows, "column": columns}
    return [copies, {"row": rows}], [copies, {"entry": rows * (bits + 1)}, {"constant": 3, "bit": bits}]


def _divide(quotient: Tile, sums: Tile, divisors: Tile, powers: Tile) -> None:
    """Divide the dividend, which is in `quotient`, by each of `sums`.

    A divisor that is too large for it is as good as the smallest of these. For each bit is added what is right where it
    is 1: minus the divisor, but for the bit itself.
    """
    bits = powers.shape["bit"]
    divisors += sums
    divisors.minimum(powers[0])
    divisors *= powers[1]
    divisors += powers[2]
    for power in reversed(range(bits)):
        divisor = divisors[:, power]
        divisor += quotient
        quotient.minimum(divisor)
    quotient += 1 << (bits - 1)
    quotient <<= 32 - bits
    quotient >>= 32 - bits
    quotient += 1 << (bits - 1)
