"""Parameters (PAR) that the accelerator makes itself: multipliers and exponents from its accumulators.

A byte of each channel's parameters is a plane, an entry of accumulators whose lanes are the channels. Planes go through
DRAM to the input scratchpad; products with 0 and 1 put their lanes where the bytes of an entry of parameters are, and
these go through DRAM to the parameters. From there a value multiplies exactly, to 31 bits: RESCALE, and STORE.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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


def matrices(cfg: Config) -> int:
    """Entries of weights that `byte_matrices` loads, to the end of the scratchpad."""
    return (PLANES + 1) * entries(cfg)


@dataclass(frozen=True)
class Bytes:
    """What puts planes where the bytes of parameters are: matrices (plane, entry), and an input of ones.

    The last matrices, times ones, make what no plane has.
    """

    matrices: Tile
    ones: Tile


def byte_matrices(k: Kernel, zero_point: int, low: int, high: int) -> Bytes:
    """Load the constants for parameters with these limits, in contract double."""
    cfg, each = k.cfg, entries(k.cfg)
    places = np.arange(cfg.par_entry_bytes).reshape(each, cfg.out_entry_bytes)
    channel, byte = places // PAR_BYTES, places % PAR_BYTES
    lanes = np.arange(cfg.block_in)
    chosen = [(byte == WORD + n)[..., None] & (channel[..., None] == lanes) for n in range(PLANES)]
    facts = {"bias": 0, "multiplier": 0, "exponent": 0, "mode": CONTRACTS.index("double")}
    words = PAR.encode(1, **facts, zero_point=zero_point, low=low, high=high).astype("<u8").view(np.uint8)
    rest = words.reshape(-1)[:PAR_BYTES].view(np.int8)[byte][..., None] * (lanes == 0)
    made = np.stack([*chosen, rest]).astype(np.int8).reshape(-1, cfg.block_out, cfg.block_in)
    ones = np.ones((1, cfg.batch, cfg.block_in), np.int8)
    return Bytes(
        k.constant(Mem.WGT, "bytes", made, kept=True, plane=PLANES + 1, entry=each),
        k.constant(Mem.INP, "ones", ones, kept=True)[0],
    )


@dataclass(frozen=True)
class Places:
    """Where parameters `par` (group) of so many entries of channels are made.

    Accumulators `planes` (plane, group), which come back as `inputs`, and `words` (group, entry), both by way of DRAM.
    """

    planes: Tile
    words: Tile
    inputs: Tile
    par: Tile
    dram_planes: Array
    dram_words: Array


def accumulators(count: int, cfg: Config) -> Extents:
    """Accumulators for planes and words of `count` groups."""
    return [{"plane": PLANES, "group": count}, {"group": count, "entry": entries(cfg)}]


def set_planes(at: Places, word: Tile) -> None:
    """Make the planes of the multipliers `word` (group), without sign, where they are 0."""
    planes = at.planes[:WORD]
    planes += word
    for n in range(1, WORD):
        planes[n] >>= 8 * n


def make_parameters(k: Kernel, at: Places, found: Bytes, planes: int) -> Iterator[None]:
    """Make parameters of so many planes, of all with what is constant, else 0. Yields where it waits for DRAM."""
    k.store(at.dram_planes[:planes], at.planes[:planes])
    yield
    inputs = k.load(at.inputs[:planes], at.dram_planes[:planes])
    yield
    words, first = at.words, 0 if planes == PLANES else 1
    words[...] = inputs[0] @ found.matrices[0] if first else found.ones @ found.matrices[PLANES]
    words += (inputs[first:] @ found.matrices[first:planes]).over("group entry plane")
    k.store(at.dram_words, words)
    k.load(at.par, k.array(at.dram_words.buffer, **at.par.shape))
    yield


def rescale(at: Places, values: Tile) -> None:
    """Multiply `values` (group) by the parameters, an entry by each."""
    for group in range(values.size):
        values[group].rescale(at.par[group])
