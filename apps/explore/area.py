"""Area and clock of a configuration on the xc7z020 without synthesis, in less than a millisecond.

Block RAMs and DSPs follow from the sizes: exact for what Yosys makes of the core. LUTs and flip-flops are sums of
costs that were fitted to what Yosys counts (area.json beside this file, made by `make area-model`); `features_of` has
the quantities of each part of the core that the costs multiply.
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
from ...hw.config import EXTENSIONS, PAR_BYTES, TABLE_SIZE, Config
from ...hw.units import readers, striped, stripes

MODEL = Path(__file__).with_name("area.json")

_SMALLEST = 64  # entries; memories of no more are in LUTs
_BITS = 8 * 4096  # of a RAMB36 without parity
_WORD_BYTES = 8  # of the widest word of a RAMB36
_BYTE_BITS = 9  # 8 bits and a parity bit, which holds data, too
_PRODUCTS = 3  # DSPs of a lane of MUL; 32 x 31 bits of RESCALE and the post-processing unit take one more
_EXPANDER = 9, 2  # LUTs and flip-flops for each bit of a beat, by which `wgt4` enlarges the load unit
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
    """The fit as the file has it: `costs`, the `points` of synthesis, `error`, `clock`, `range`, `made`."""
    return json.loads(MODEL.read_text())


@lru_cache(maxsize=1)
def model_key() -> str:
    """A digest of the costs; results that were found with other costs do not mix."""
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
        sum(cost * features[part][name] for part, fitted in costs.items() for name, cost in fitted[count].items())
        for count in ("lut", "ff")
    )
    expanded = cfg.axi_bits * stripes(cfg) * ("wgt4" in cfg.extensions)
    return round(lut + _EXPANDER[0] * expanded), round(ff + _EXPANDER[1] * expanded)


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
    """Fields of `cfg` outside the range of the fitted points, where the error is not known, with that range."""
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
    byte = _BYTE_BITS if depth * 8 <= _BITS else max(1, _BITS // depth)
    bytes_ = -(-width // lane) * -(-lane // byte)
    here = max(1, min(_WORD_BYTES, _BITS // (8 * depth)))  # bytes of a word of a RAMB36; a RAMB18 has half of them
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
    requant = "requant" in cfg.extensions
    lanes = min(cfg.ppu_lanes, cfg.lanes) * (_PRODUCTS + requant)
    addresses = _MOVERS + 1 + requant + (2 if cfg.acc_banks > 1 else 0)  # rows of stores, parameters, banks of loads
    return cfg.multipliers + lanes + addresses


# parts of the core, and the blocks below which they begin, as paths of boards/synthesis.py; the longest path decides
PARTS: dict[str, tuple[str, ...]] = {
    "control": ("", "control", "counters", "csr"),
    "engine": ("engine",),
    "fetch": ("engine.fetch", "engine.tokens_compute_load", "engine.tokens_compute_store"),
    "queues": ("engine.queue_load", "engine.queue_compute", "engine.queue_store"),
    "ports": ("engine.read_port_0", "engine.read_port_1", "engine.stripes"),
    "load": ("engine.load",),
    "inputs": ("engine.inp",),
    "weights": ("engine.wgt",),
    "compute": ("engine.compute",),
    "accumulators": ("engine.compute.accumulators",),
    "pipeline": ("engine.compute.execute",),
    "alu": ("engine.compute.execute.alu",),
    "dot": ("engine.compute.execute.dot",),
    "functions": ("engine.compute.functions",),
    "interlock": ("engine.compute.interlock",),
    "mover": ("engine.compute.mover",),
    "multiplier": ("engine.compute.multiplier",),
    "scales": ("engine.compute.multiplier.parameters",),
    "sequencer": ("engine.compute.sequencer", "engine.compute.uops"),
    "store": ("engine.store",),
    "parameters": ("engine.store.loads",),
    "pack": ("engine.store.pack",),
}
_BEGIN = sorted(((path, part) for part, paths in PARTS.items() for path in paths), key=lambda one: -len(one[0]))
_LUT_RAM = 64  # words of a memory in LUTs, where block RAM would do
_WORD = 32  # bits of an accumulator
_PLACES = 4  # registers of a lane's place in a table
_TREE_ROWS = 6  # of a tree of registers over an entry


@lru_cache(maxsize=1024)
def part_of(path: str) -> str:
    """The part of the model that the block at `path` belongs to."""
    return next(part for start, part in _BEGIN if not start or path == start or path.startswith(start + "."))


def features_of(cfg: Config) -> dict[str, dict[str, float]]:
    """By part, the values of its features."""
    has = {name: float(name in cfg.extensions) for name in EXTENSIONS}
    requant, wide, acc = has["requant"], cfg.axi_bits * stripes(cfg), cfg.acc_entry_bits
    lanes = min(cfg.ppu_lanes, cfg.lanes)
    choose = acc * float(cfg.lanes > lanes)  # operands of several groups of lanes
    entries = _bits(cfg.inp_depth) + _bits(cfg.wgt_depth) + _bits(cfg.acc_depth)
    indices = entries + _bits(cfg.uop_depth)
    functions = float(bool(has["lookup"] or has["lane_reduce"]))
    return {
        "control": {"one": 1},
        "engine": {"one": 1, "more": stripes(cfg) - 1},
        "fetch": {"one": 1, "bus": cfg.axi_bits},
        "queues": {"one": 1, "blocks": -(-cfg.queue_depth // _LUT_RAM), "deep": cfg.queue_depth > _LUT_RAM // 2},
        "ports": _ports(cfg),
        "load": {"one": 1, "wide": wide, "pad": has["pad_value"], "indices": indices},
        "compute": {"one": 1, "indices": indices},
        **_scratchpads(cfg),
        "pipeline": {"one": 1, "bits": acc, "indices": indices, "groups": choose, "functions": functions * acc},
        "alu": {"bits": acc},
        "dot": _dot(cfg, has),
        "functions": _functions(cfg, has, lanes),
        "interlock": {"one": 1, "banks": cfg.acc_banks - 1, "indices": entries, "bits": acc},
        "mover": {
            "one": 1,
            "bus": cfg.axi_bits,
            "word": min(acc, cfg.axi_bits * (4 if has["acc8"] else 1)),
            "lanes": cfg.lanes,
        },
        "multiplier": {
            "one": 1,
            "lanes": lanes,
            "requant": requant,
            "requant_lanes": requant * lanes,
            "choose": choose,
        },
        "scales": {
            "one": requant,
            "small": requant * _small(cfg.par_entries * cfg.block_out // lanes, lanes * PAR_BYTES * 8),
        },
        "sequencer": {
            "one": 1,
            "indices": indices,
            "overwrite": has["overwrite"],
            "rows": has["depthwise_rows"],
            "small": _small(cfg.uop_depth, _WORD),
        },
        "store": {"one": 1, "bus": cfg.axi_bits, "requant": requant},
        "parameters": {"requant": requant, "bus": requant * cfg.axi_bits},
        "pack": {
            "one": 1,
            "bus": cfg.axi_bits,
            "out": cfg.out_entry_bits,
            "bits": acc,
            "requant": requant,
            "requant_out": requant * cfg.out_entry_bits,
        },
    }


def _scratchpads(cfg: Config) -> dict[str, dict[str, float]]:
    """Inputs, weights and accumulators, whose registers and choices have the bits of an entry."""
    acc = cfg.acc_entry_bits
    return {
        "inputs": {
            "one": 1,
            "bits": cfg.inp_entry_bits,
            "taps": cfg.inp_entry_bits * cfg.row_taps * (cfg.row_taps > 1),
            "small": _small(cfg.inp_depth // cfg.row_taps, cfg.inp_entry_bits * cfg.row_taps),
        },
        "weights": {"one": 1, "bits": cfg.wgt_entry_bits, "small": _small(cfg.wgt_depth, cfg.wgt_entry_bits)},
        "accumulators": {
            "one": 1,
            "bits": acc,
            "banks": acc * (cfg.acc_banks - 1),
            "small": _small(cfg.bank_depth, acc * cfg.acc_banks),
        },
    }


def _ports(cfg: Config) -> dict[str, float]:
    """Read ports: a splitter for each reader, and a buffer in LUTs, which for one that uses all ports is wider."""
    memory, bits, splitters = 0, 0, 0
    for port in readers(cfg):
        for reader in port:
            if reader.name == "store" and "requant" not in cfg.extensions:
                continue  # it reads parameters alone
            width = stripes(cfg) if reader.name == "load" else 1
            splitters += 1
            bits += cfg.axi_bits * width
            memory += _in_luts(reader.buffer // width, cfg.axi_bits * width)
    return {"ports": cfg.load_ports, "splitters": splitters, "bits": bits, "memory": memory, "more": stripes(cfg) > 1}


def _dot(cfg: Config, has: dict[str, float]) -> dict[str, float]:
    macs, packed = cfg.macs_per_cycle, float(cfg.dsp_packing and cfg.block_out > 1)
    return {
        "one": 1,
        "macs": macs,
        "packed": macs * packed,
        "adders": cfg.lanes * _tree(cfg.block_in, cfg.inp_bits + cfg.wgt_bits),
        "rows": has["depthwise"] * cfg.wgt_entry_bits,
        "taps": has["depthwise_rows"] * cfg.row_taps * cfg.lanes,
    }


def _functions(cfg: Config, has: dict[str, float], lanes: int) -> dict[str, float]:
    """LOOKUP and REDUCE: lanes, words of a table from a beat, adders; and all their registers."""
    lookup, reduce = has["lookup"], has["lane_reduce"]
    rows = [max(cfg.batch, cfg.lanes >> stage) for stage in range(_TREE_ROWS)]
    state = lookup * (_WORD * lanes + cfg.axi_bits * (lanes + 1) + 8 * _PLACES * lanes) + reduce * _WORD * sum(rows)
    return {
        "lookup": lookup * lanes,
        "words": lookup * lanes * (cfg.axi_bits - _WORD),
        "adders": reduce * (cfg.lanes - cfg.batch),
        "state": state + _WORD * lanes * max(lookup, reduce),
    }


def _tree(count: int, width: int) -> int:
    """Bits of the adders that make one sum of `count` numbers of `width` bits."""
    levels = _bits(count)
    return sum((count >> level) * (width + level) for level in range(1, levels + 1))


def _in_luts(depth: int, width: int) -> float:
    """LUTs of a memory in LUTs: four hold 32 words of 6 bits, 64 of 3 or 128 of 1."""
    return 4 * -(-width // {1: 6, 2: 3}.get(-(-depth // 32), 1)) * max(1, depth // 128)


def _small(depth: int, width: int) -> float:
    """Bits of a word of a scratchpad that is so small that it is in LUTs; 0 for block RAM."""
    return float(width) if depth <= _LUT_RAM else 0.0


def _bits(depth: int) -> int:
    return (depth - 1).bit_length()
