"""Parameters (PAR) that the accelerator makes itself: multipliers and exponents from its accumulators.

A byte of each channel's parameters is a plane, an entry of accumulators whose lanes are the channels. Planes go through
DRAM to the input scratchpad; products with 0 and 1 put their lanes where the bytes of an entry of parameters are, and
these go through DRAM to the parameters. From there a value multiplies exactly, to 31 bits: RESCALE, and STORE.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ...hw.config import PAR_BYTES, Config
from ...hw.isa import PAR, Mem
from ...hw.rounding import CONTRACTS
from .language import Array, Extents, Kernel, Tile

WORD = 4  # bytes of a multiplier with the lowest bit of its exponent, and the first of them
PLANES = WORD + 1  # with the byte that has the rest of the exponent


def entries(cfg: Config) -> int:
    """Accumulators that are stored as one entry of parameters."""
    return cfg.par_entry_bytes // cfg.out_entry_bytes


def accumulators(count: int, cfg: Config) -> Extents:
    """Accumulators for planes and words of `count` groups of channels, an entry of parameters for each."""
    return [{"plane": PLANES, "group": count}, {"group": count, "entry": entries(cfg)}]


class Bytes(NamedTuple):
    """Matrices (plane, entry) that put planes where their bytes are, and in DRAM, (entry), all other bytes."""

    matrices: Tile
    rest: Array


def byte_matrices(k: Kernel, zero_point: int, low: int, high: int) -> Bytes:
    """The constants for parameters with these limits, in contract double; the matrices stay on chip."""
    cfg, each = k.cfg, entries(k.cfg)
    places = np.arange(cfg.par_entry_bytes).reshape(each, cfg.out_entry_bytes)
    channel, byte = places // PAR_BYTES, places % PAR_BYTES
    planes, lanes = WORD + np.arange(PLANES).reshape(-1, 1, 1, 1), np.arange(cfg.block_in)
    chosen = (byte[..., None] == planes) & (channel[..., None] == lanes)
    made = chosen.astype(np.int8).reshape(-1, cfg.block_out, cfg.block_in)
    facts = {"bias": 0, "multiplier": 0, "exponent": 0, "mode": CONTRACTS.index("double")}
    words = PAR.encode(1, **facts, zero_point=zero_point, low=low, high=high).astype("<u8").view(np.int8)
    rest = words.reshape(-1)[byte].reshape(each, cfg.batch, -1)
    return Bytes(k.constant(Mem.WGT, "bytes", made, kept=True, plane=PLANES, entry=each), k.known("rest", rest))


class Parameters:
    """Makes the parameters `par` (group), lane by lane, with accumulators as `accumulators` has them, of one bank.

    `planes` are those of the bytes of multipliers, and one for the exponents without their lowest bits.
    """

    def __init__(self, k: Kernel, found: Bytes, par: Tile, planes: Tile, words: Tile):
        self.k, self.found, self.par, self.planes, self.words = k, found, par, planes, words
        self.inputs = k.tile(Mem.INP, **planes.shape)
        self.stored = k.temporary("planes", **planes.shape), k.temporary("words", **words.shape)

    def set_planes(self, word: Tile) -> None:
        """Make the planes of the multipliers `word` (group), without sign, where they are 0."""
        planes = self.planes[:WORD]
        planes += word
        for n in range(1, WORD):
            planes[n] >>= 8 * n

    def make(self, planes: int) -> Iterator[None]:
        """Make parameters of so many planes, of all with what is constant, else 0. Yields where it waits for DRAM."""
        stored, (matrices, rest) = self.stored, self.found
        if planes == PLANES:
            self.k.load(self.words, rest.named(rest="entry").repeated(group=self.par.size))
        self.k.store(stored[0][:planes], self.planes[:planes])
        yield
        inputs = self.k.load(self.inputs[:planes], stored[0][:planes])
        yield
        product = (inputs @ matrices[:planes]).over("group entry plane")
        self.k.multiply(self.words, product, overwrite=planes < PLANES)
        self.k.store(stored[1], self.words)
        self.k.load(self.par, self.k.array(stored[1].buffer, **self.par.shape))
        yield

    def rescale(self, values: Tile) -> None:
        """Multiply `values` (group) by the parameters, an entry by each."""
        for group in range(values.size):
            values[group].rescale(self.par[group])
