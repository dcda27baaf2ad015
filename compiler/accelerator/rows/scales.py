"""Parameters (PAR) that the accelerator makes itself: multipliers and exponents from its accumulators.

A byte of each channel's parameters is a plane, an entry of accumulators whose lanes are the channels. Planes go through
DRAM to the input scratchpad; products with 0 and 1 put their lanes where the bytes of an entry of parameters are, and
these go through DRAM to the parameters. From there a value multiplies exactly, to 31 bits: RESCALE, and STORE.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ....hw.config import PAR_BYTES, Config
from ....hw.isa import PAR, AluOp, Mem
from ....hw.rounding import CONTRACTS
from ....runtime.buffer import Buffer
from ..direct.on_chip import OnChip
from ..recording import Recording

WORD = 4  # bytes of a multiplier with the lowest bit of its exponent, and the first of them
PLANES = WORD + 1  # with the byte that has the rest of the exponent


def entries(cfg: Config) -> int:
    """Accumulators that are stored as one entry of parameters."""
    return cfg.par_entry_bytes // cfg.out_entry_bytes


def matrices(cfg: Config) -> int:
    """Entries of weights that `on_chip_scales` loads, to the end of the scratchpad."""
    return (PLANES + 1) * entries(cfg)


@dataclass(frozen=True)
class Scales:
    """What makes parameters is on chip: matrices from `wgt` on, for each plane and each entry, and an input of ones.

    The last matrices make what no plane has.
    """

    wgt: int
    ones: int
    each: int

    @property
    def constants(self) -> int:
        """The first of the matrices of what no plane has."""
        return self.wgt + PLANES * self.each


def on_chip_scales(rec: Recording, chip: OnChip, zero_point: int, low: int, high: int) -> Scales:
    """Load the constants for parameters with these limits, in contract double."""
    cfg, each = rec.cfg, entries(rec.cfg)
    places = np.arange(cfg.par_entry_bytes).reshape(each, cfg.out_entry_bytes)
    channel, byte = places // PAR_BYTES, places % PAR_BYTES
    lanes = np.arange(cfg.block_in)
    chosen = [(byte == WORD + k)[..., None] & (channel[..., None] == lanes) for k in range(PLANES)]
    facts = {"bias": 0, "multiplier": 0, "exponent": 0, "mode": CONTRACTS.index("double")}
    words = PAR.encode(1, **facts, zero_point=zero_point, low=low, high=high).astype("<u8").view(np.uint8)
    rest = words.reshape(-1)[:PAR_BYTES].view(np.int8)[byte][..., None] * (lanes == 0)
    made = np.stack([*chosen, rest]).astype(np.int8).reshape(-1, cfg.block_out, cfg.block_in)
    ones = np.ones((1, cfg.batch, cfg.block_in), np.int8)
    wgt = chip.kept(Mem.WGT, f"{rec.program.name}.bytes", made, len(made))
    return Scales(wgt, chip.kept(Mem.INP, f"{rec.program.name}.ones", ones, 1), each)


@dataclass(frozen=True)
class Places:
    """Where parameters for `count` entries of channels are made.

    `planes`: accumulators of the planes, of all entries for each, and of the `words` behind; `inp`: the first input of
    the planes; `par`: the first parameters; buffers in DRAM for both.
    """

    count: int
    planes: int
    words: int
    inp: int
    par: int
    dram_planes: Buffer
    dram_words: Buffer


def accumulators(count: int, cfg: Config) -> int:
    """Accumulators for planes and words."""
    return count * (PLANES + entries(cfg))


def planes_of(rec: Recording, at: Places, word: int) -> None:
    """Make the planes of the multipliers from `word` on, without sign, where they are 0."""
    rec.program.alu(AluOp.ADD, [(WORD, at.count, 0), (at.count, 1, 1)], at.planes, word)
    for k in range(1, WORD):
        rec.program.alu(AluOp.SHR, [(at.count, 1, 0)], at.planes + k * at.count, imm=8 * k)


def to_inputs(rec: Recording, at: Places, planes: int) -> Iterator[None]:
    """Bring `planes` planes to the input scratchpad; yields where they are on the way to DRAM."""
    size = planes * at.count
    rec.program.store(at.planes, at.dram_planes, 0, x_size=size)
    yield
    rec.program.load(Mem.INP, at.inp, at.dram_planes, 0, x_size=size)


def to_parameters(rec: Recording, at: Places, found: Scales, planes: int, *, whole: bool) -> None:
    """Make the parameters of `planes` planes; with `whole` also what is constant in them, else 0."""
    program, each, count = rec.program, found.each, at.count
    if whole:
        program.gemm([(count, each, 0, 0), (each, 1, 0, 1)], at.words, found.ones, found.constants, overwrite=True)
    first = 0 if whole else 1
    if first:
        program.gemm([(count, each, 1, 0), (each, 1, 0, 1)], at.words, at.inp, found.wgt, overwrite=True)
    loops = [(count, each, 1, 0), (each, 1, 0, 1), (planes - first, 0, count, each)]
    program.gemm(loops, at.words, at.inp + first * count, found.wgt + first * each)
    program.store(at.words, at.dram_words, 0, x_size=count * each)
    program.load(Mem.PAR, at.par, at.dram_words, 0, x_size=count)


def rescale(rec: Recording, at: Places, base: int) -> None:
    """Multiply the accumulators from `base` on by the parameters, an entry by each."""
    for k in range(at.count):
        rec.program.alu(AluOp.RESCALE, [(1, 1, 0)], base + k, imm=at.par + k)
