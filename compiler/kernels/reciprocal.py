"""TensorFlow Lite's reciprocal of a sum (runtime/hostops/fixed_point.py) on the accelerator, bit by bit.

Every lane has a sum of its own. A product of two computed values is a RESCALE by parameters (PAR) that are made of one
of them: it multiplies exactly, to 31 bits, and rounds as `high_product` does, so that each step of Newton's method is
the kernel's. A byte of each channel's parameters is a plane, an entry of accumulators whose lanes are the channels.
Planes go through DRAM to the input scratchpad; products with 0 and 1 put their lanes where the bytes of an entry of
parameters are, and these go through DRAM to the parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ...hw.config import PAR_BYTES, Config
from ...hw.isa import PAR, Mem
from ...hw.rounding import CONTRACTS
from ...runtime.hostops import fixed_point as kernel
from ..graph.integer_forms import Requant
from .language import Array, Kernel, Tile

WORD = 4  # bytes of a multiplier with the lowest bit of its exponent, and the first of them
PLANES = WORD + 1  # with the byte that has the rest of the exponent
LEAST_BITS, MOST_BITS = 20, 29  # of a sum: the largest value adds 2**19, and with the exponent's limit
LARGEST = 1 << MOST_BITS  # sums are below
STEPS = 3  # of Newton's method
_ARRAYS = 5  # of accumulators: half the sum, its shift, the reciprocal and two copies
_NUMBERS = np.array([kernel.GUESS, 1 << 29, 1 << 30, (1 << 30) - 1])  # 48/17, 1, 2 and what is below it: Q2.29
NUMBERS = len(_NUMBERS)


def entries(cfg: Config) -> int:
    """Accumulators that are stored as one entry of parameters."""
    return cfg.par_entry_bytes // cfg.out_entry_bytes


def accumulators(count: int, cfg: Config) -> int:
    """Accumulators for `count` groups of sums, all in one bank."""
    return count * (_ARRAYS + PLANES + entries(cfg))


class Constants(NamedTuple):
    """The table of numbers of bits, parameters of the first guess, and accumulators with `_NUMBERS`.

    Matrices (plane, entry) put planes where their bytes are; in DRAM, (entry), are all other bytes.
    """

    bits: int
    slope: Tile
    numbers: Tile
    matrices: Tile
    rest: Array


def load_constants(k: Kernel, slope: Tile, numbers: Tile) -> Constants:
    """Load what reciprocals need: one entry of parameters, `NUMBERS` accumulators, a table, and matrices that stay."""
    cfg, each = k.cfg, entries(k.cfg)
    places = np.arange(cfg.par_entry_bytes).reshape(each, cfg.out_entry_bytes)
    channel, byte = places // PAR_BYTES, places % PAR_BYTES
    planes, lanes = WORD + np.arange(PLANES).reshape(-1, 1, 1, 1), np.arange(cfg.block_in)
    chosen = (byte[..., None] == planes) & (channel[..., None] == lanes)
    made = chosen.astype(np.int8).reshape(-1, cfg.block_out, cfg.block_in)
    facts = {"bias": 0, "multiplier": 0, "exponent": 0, "zero_point": -128, "low": -128, "high": 127}
    words = PAR.encode(1, **facts, mode=CONTRACTS.index("double")).astype("<u8").view(np.int8)
    rest = k.known("rest", words.reshape(-1)[byte].reshape(each, cfg.batch, -1), entry=each)
    matrices = k.constant(Mem.WGT, "bytes", made, kept=True, plane=PLANES, entry=each)
    k.load(slope, k.requant(Requant(0, -kernel.SLOPE, 0, 0), "slope"))
    values = np.broadcast_to(_NUMBERS[:, None, None], (NUMBERS, cfg.batch, cfg.block_out)).astype(np.int32)
    k.load(numbers, k.known("numbers", values))
    return Constants(k.table("bits", np.array([n.bit_length() for n in range(256)])), slope, numbers, matrices, rest)


class Reciprocals:
    """Makes the parameters `par` (group), lane by lane, with the `accumulators` of one bank."""

    def __init__(self, k: Kernel, found: Constants, par: Tile, bank: Tile):
        self.k, self.found, self.par = k, found, par
        group, own = par.shape, {"entry": entries(k.cfg)}
        self.arrays, self.planes, self.words = bank.pieces(
            {"array": _ARRAYS} | group, {"plane": PLANES} | group, group | own
        )
        self.inputs = k.tile(Mem.INP, **self.planes.shape)
        self.stored = k.temporary("planes", **self.planes.shape), k.temporary("words", **self.words.shape)

    def make(self, word: Tile, exponent: Tile | None = None) -> Iterator[None]:
        """Make parameters of the multipliers `word` (group), without sign, and nothing else, for RESCALE.

        With `exponent`, that without its lowest bit, they are for STORE, with what is constant. Yields where it waits
        for DRAM.
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
        """Make the parameters that divide exponentials by `sums` (group): of STORE, to int8 with 8 more bits.

        Yields where it waits for DRAM.
        """
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
        # The product has 12 integer bits of the sum and 31 - 8 more to lose: its exponent is -34 - shift, of six bits
        # in two's complement. The lowest one is the sign of the multiplier, and five are a plane.
        other += shift
        other <<= 31
        y += other
        shift *= -1
        shift += -34
        shift >>= 1
        shift += 32
        yield from self.make(y, shift)
