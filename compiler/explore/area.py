"""Block RAMs and DSPs of a configuration on the xc7z020, from its sizes: exact for what Yosys makes of the core.

LUTs and flip-flops have no such rule; `tilewright synth` counts them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ...hw.config import PAR_BYTES, TABLE_SIZE, Config

_SMALLEST = 64  # entries; memories of no more are in LUTs
_HALF = 32 * 512  # bits of a RAMB18 without parity, which no memory here uses
_WIDEST = 32  # bits of its word
_PRODUCTS = 3  # DSPs of a lane of MUL; 32 x 31 bits of RESCALE and the post-processing unit take one more
_MOVERS = 2  # of loads, and of the compute queue: a DSP each for the entries of a tile


@dataclass(frozen=True)
class Area:
    """Block RAMs, of which a RAMB18 is a half, and DSP48E1."""

    bram: float
    dsp: int


AVAILABLE = Area(bram=140, dsp=220)  # of an xc7z020


def area_of(cfg: Config) -> Area:
    """The block RAMs and DSPs of the core of `cfg`.

    >>> from tilewright.hw.config import PRESETS
    >>> area_of(PRESETS["pynq_z1"])
    Area(bram=88.0, dsp=166)
    """
    return Area(sum(ram_blocks(depth, width) * count for depth, width, count in _memories(cfg)), _dsps(cfg))


@lru_cache(maxsize=256)
def ram_blocks(depth: int, width: int) -> float:
    """RAMB36 of a memory of `depth` words of `width` bits with one write and one read port; 0 where it is in LUTs."""
    if depth <= _SMALLEST:
        return 0
    word = max(1, min(_WIDEST, _HALF // depth))
    return -(-width // word) * max(1, depth * word // _HALF) / 2


def _memories(cfg: Config) -> list[tuple[int, int, int]]:
    """(words, bits of a word, how many) of the memories of the core."""
    found = [
        (cfg.uop_depth, 32, 1),
        (cfg.inp_depth // cfg.row_taps, cfg.inp_entry_bits, cfg.row_taps),
        (cfg.wgt_depth, cfg.wgt_entry_bits, 1),
        (cfg.bank_depth, cfg.acc_entry_bits, cfg.acc_banks),
    ]
    if "requant" in cfg.extensions:
        channels = min(cfg.ppu_lanes, cfg.block_out)
        found.append((cfg.par_entries * cfg.block_out // channels, channels * PAR_BYTES * 8, 1))
    if "lookup" in cfg.extensions:
        found.append((cfg.tables * TABLE_SIZE, 32, cfg.ppu_lanes))
    if "ternary" in cfg.units:
        planes = cfg.acc_banks * cfg.ternary_blocks
        found[3] = (cfg.plane_depth, cfg.acc_entry_bits, planes)
        found += [(cfg.uop_depth, 32, 1), (cfg.twgt_depth, cfg.twgt_entry_bits, 1)]
        found.append((cfg.inp_depth, cfg.inp_entry_bits, 1))
    return found


def _dsps(cfg: Config) -> int:
    products = cfg.macs_per_cycle // (2 if cfg.dsp_packing and cfg.block_out > 1 else 1)
    requant = "requant" in cfg.extensions
    lanes = min(cfg.ppu_lanes, cfg.lanes) * (_PRODUCTS + requant)
    addresses = _MOVERS + 1 + requant + (2 if cfg.acc_banks > 1 else 0)  # rows of stores, parameters, banks of loads
    return products + lanes + addresses
