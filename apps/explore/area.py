"""Area and clock of a configuration on the xc7z020 without synthesis, in less than a millisecond.

Block RAMs and DSPs follow from the sizes: exact for what Yosys makes of the core. LUTs and flip-flops are sums of
costs that were fitted to what Yosys counts (area.json beside this file, made by `make area-model`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...hw.circuit import XC7Z020
from ...hw.config import PAR_BYTES, TABLE_SIZE, Config
from ...hw.units import striped
from .features import features_of

MODEL = Path(__file__).with_name("area.json")

_SMALLEST = 64  # entries; memories of no more are in LUTs
_BITS = 8 * 4096  # of a RAMB36 without parity
_BYTES = 8  # of its widest word, each of
_BYTE = 9  # bits with parity, which a word of whole bytes may use
_PRODUCTS = 3  # DSPs of a lane of MUL; 32 x 31 bits of RESCALE and the post-processing unit take one more
_MOVERS = 2  # of loads, and of the compute queue: a DSP each for the entries of a tile


@dataclass(frozen=True)
class Area:
    """LUTs, flip-flops, block RAMs, of which a RAMB18 is a half, and DSP48E1."""

    lut: int
    ff: int
    bram: float
    dsp: int


AVAILABLE = Area(**XC7Z020)


@lru_cache(maxsize=1)
def model() -> Mapping[str, Any]:
    """The fit with what it rests on, as in the file: `costs`, `points`, `error`, `clock`, `range`, `made`."""
    return json.loads(MODEL.read_text())


@lru_cache(maxsize=1)
def model_key() -> str:
    """The same for the same costs: what was found with others is another result."""
    return hashlib.sha256(json.dumps(model()["costs"], sort_keys=True).encode()).hexdigest()[:12]


def area_of(cfg: Config) -> Area:
    """The area of the core of `cfg`.

    >>> from tilewright.hw.config import PRESETS
    >>> area_of(PRESETS["pynq_z1"]).bram, area_of(PRESETS["pynq_z1"]).dsp
    (88.0, 166)
    """
    lut, ff = logic(cfg, model()["costs"])
    return Area(lut, ff, sum(ram_blocks(*shape) * count for *shape, count in _memories(cfg)), _dsps(cfg))


def logic(cfg: Config, costs: Mapping[str, Any]) -> tuple[int, int]:
    """LUTs and flip-flops of `cfg` by those `costs`: of each part, for LUTs and flip-flops, by feature."""
    features = features_of(cfg)
    lut, ff = (
        sum(cost * features[part][name] for part, both in costs.items() for name, cost in both[count].items())
        for count in ("lut", "ff")
    )
    return round(lut), round(ff)


def clock_of(cfg: Config) -> tuple[float, float]:
    """MHz before placement, as `tilewright synth --timing` estimates them, and by how much they may be wrong.

    What was estimated of the same circuit is returned as it is; otherwise the middle of all estimates on record.
    """
    known, facts = model()["clock"], cfg.to_dict() | {"name": ""}
    for one in known["points"]:
        if one["config"] | {"name": ""} == facts:
            return one["fmax_estimate_mhz"], 0.0
    return known["mhz"], known["error"]


def outside(cfg: Config) -> list[str]:
    """Fields of `cfg` beyond those of the fit's points, with their ranges: there its error is not known."""
    found = [
        f"{field} {getattr(cfg, field)} ({low} to {high})"
        for field, (low, high) in model()["range"].items()
        if not low <= getattr(cfg, field) <= high
    ]
    return found + [f"unit {name}" for name in cfg.units if name != "gemm"]


@lru_cache(maxsize=256)
def ram_blocks(depth: int, width: int, lane: int) -> float:
    """RAMB36 of a memory of `depth` words of `width` bits with one write and one read port; 0 where it is in LUTs.

    Each `lane` bits of a word have a write enable of their own, and each 9 bits of a block RAM have one.
    """
    if depth <= _SMALLEST:
        return 0
    byte = _BYTE if depth * 8 <= _BITS else max(1, _BITS // depth)
    bytes_ = -(-width // lane) * -(-lane // byte)
    here = max(1, min(_BYTES, _BITS // (8 * depth)))  # bytes of a word of a RAMB36; a RAMB18 has half of them
    full, rest = divmod(bytes_, here)
    last = 0.5 if 0 < 2 * rest <= here else float(rest > 0)
    return (full + last) * max(1, depth // _BITS)


def _memories(cfg: Config) -> list[tuple[int, int, int, int]]:
    """(words, bits of a word, bits that are written at once, how many) of the memories of the core."""
    bus, wide = cfg.axi_bits, striped(cfg).axi_bits
    found = [
        (cfg.uop_depth, 32, 32, 1),
        (cfg.inp_depth // cfg.row_taps, cfg.inp_entry_bits, min(wide, cfg.inp_entry_bits), cfg.row_taps),
        (cfg.wgt_depth, cfg.wgt_entry_bits, min(wide, cfg.wgt_entry_bits), 1),
        (cfg.bank_depth, cfg.acc_entry_bits, min(bus, cfg.acc_entry_bits), cfg.acc_banks),
    ]
    lanes = min(cfg.ppu_lanes, cfg.lanes)
    if "requant" in cfg.extensions:
        channels = min(lanes, cfg.block_out)
        found.append((cfg.par_entries * cfg.block_out // channels, channels * PAR_BYTES * 8, bus, 1))
    if "lookup" in cfg.extensions:
        found.append((cfg.tables * TABLE_SIZE * 32 // bus, bus, bus, lanes))
    if "ternary" in cfg.units:
        planes = cfg.acc_banks * cfg.ternary_blocks
        found[3] = (cfg.plane_depth, cfg.acc_entry_bits, min(bus, cfg.acc_entry_bits), planes)
        found += [(cfg.uop_depth, 32, 32, 1), (cfg.twgt_depth, cfg.twgt_entry_bits, min(wide, cfg.twgt_entry_bits), 1)]
        found.append((cfg.inp_depth, cfg.inp_entry_bits, min(wide, cfg.inp_entry_bits), 1))
    return found


def _dsps(cfg: Config) -> int:
    products = cfg.macs_per_cycle // (2 if cfg.dsp_packing and cfg.block_out > 1 else 1)
    requant = "requant" in cfg.extensions
    lanes = min(cfg.ppu_lanes, cfg.lanes) * (_PRODUCTS + requant)
    addresses = _MOVERS + 1 + requant + (2 if cfg.acc_banks > 1 else 0)  # rows of stores, parameters, banks of loads
    return products + lanes + addresses
