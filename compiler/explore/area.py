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

from ...hw.config import PAR_BYTES, TABLE_SIZE, Config
from .features import features_of

MODEL = Path(__file__).with_name("area.json")

_SMALLEST = 64  # entries; memories of no more are in LUTs
_HALF = 32 * 512  # bits of a RAMB18 without parity, which no memory here uses
_WIDEST = 32  # bits of its word
_PRODUCTS = 3  # DSPs of a lane of MUL; 32 x 31 bits of RESCALE and the post-processing unit take one more
_MOVERS = 2  # of loads, and of the compute queue: a DSP each for the entries of a tile


@dataclass(frozen=True)
class Area:
    """LUTs, flip-flops, block RAMs, of which a RAMB18 is a half, and DSP48E1."""

    lut: int
    ff: int
    bram: float
    dsp: int


AVAILABLE = Area(lut=53_200, ff=106_400, bram=140, dsp=220)  # of an xc7z020


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
    return Area(lut, ff, sum(ram_blocks(depth, width) * count for depth, width, count in _memories(cfg)), _dsps(cfg))


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
