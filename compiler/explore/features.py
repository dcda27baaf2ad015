"""What LUTs and flip-flops of each part of the core are proportional to, as far as a configuration says it.

The costs are fitted to what synthesis counts (compiler/explore/area.json, made by `make area-model`).
"""

from __future__ import annotations

from functools import lru_cache

from ...hw.config import Config
from ...hw.units import stripes

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
    "sequencer": ("engine.compute.sequencer", "engine.compute.uops"),
    "store": ("engine.store",),
    "parameters": ("engine.store.loads",),
    "pack": ("engine.store.pack",),
}
_BEGIN = sorted(((path, part) for part, paths in PARTS.items() for path in paths), key=lambda one: -len(one[0]))
_LUT_RAM = 64  # words of a memory in LUTs


@lru_cache(maxsize=1024)
def part_of(path: str) -> str:
    """The part of the model that the block at `path` belongs to."""
    return next(part for start, part in _BEGIN if not start or path == start or path.startswith(start + "."))


def features_of(cfg: Config) -> dict[str, dict[str, float]]:
    """By part, the values of its features."""
    has = {name: float(name in cfg.extensions) for name in ("requant", "rescale", "depthwise", "depthwise_rows")}
    has |= {name: float(name in cfg.extensions) for name in ("acc8", "pad_value", "overwrite", "lookup", "lane_reduce")}
    bus, wide, more = cfg.axi_bits, cfg.axi_bits * stripes(cfg), float(stripes(cfg) > 1)
    lanes, acc = min(cfg.ppu_lanes, cfg.lanes), cfg.acc_entry_bits
    groups = cfg.lanes // lanes
    packed = float(cfg.dsp_packing and cfg.block_out > 1)
    macs, weights = cfg.macs_per_cycle, cfg.wgt_entry_bits
    functions = float(bool(has["lookup"] or has["lane_reduce"]))
    taps = cfg.row_taps
    entries = _bits(cfg.inp_depth) + _bits(cfg.wgt_depth) + _bits(cfg.acc_depth)
    indices = entries + _bits(cfg.uop_depth)
    found: dict[str, dict[str, float]] = {
        "control": {"one": 1},
        "engine": {"one": 1, "more": more},
        "fetch": {"one": 1, "bus": bus},
        "queues": {"one": 1, "blocks": -(-cfg.queue_depth // _LUT_RAM), "deep": float(cfg.queue_depth > 32)},
        "ports": {
            "one": 1,
            "more": more,
            "bus": bus,
            "wide": wide * more,
            "each": wide * (cfg.load_ports if more else 0),
        },
        "load": {
            "one": 1,
            "wide": wide,
            "pad": has["pad_value"],
            "lanes": (weights + cfg.inp_entry_bits) / wide,
            "indices": indices,
        },
        "inputs": {"one": 1, "bits": cfg.inp_entry_bits, "taps": cfg.inp_entry_bits * taps * (taps > 1)},
        "weights": {"one": 1, "bits": weights},
        "compute": {"one": 1, "indices": indices},
        "accumulators": {"one": 1, "bits": acc, "banks": acc * (cfg.acc_banks - 1)},
        "pipeline": {
            "one": 1,
            "bits": acc,
            "indices": indices,
            "groups": acc * (groups > 1),
            "functions": functions * acc,
        },
        "alu": {"bits": acc},
        "dot": {
            "one": 1,
            "macs": macs,
            "packed": macs * packed,
            "sums": cfg.lanes * cfg.block_in.bit_length(),
            "rows": has["depthwise"] * weights,
            "taps": has["depthwise_rows"] * taps * cfg.lanes * 8,
        },
        "functions": {
            "one": functions,
            "lanes": functions * lanes,
            "lookup": has["lookup"] * lanes,
            "bits": functions * acc,
            "reduce": has["lane_reduce"] * acc,
        },
        "interlock": {"one": 1, "banks": cfg.acc_banks - 1, "indices": entries, "bits": acc},
        "mover": {
            "one": 1,
            "bus": bus,
            "acc8": has["acc8"],
            "acc8_bus": has["acc8"] * bus,
            "bits": acc,
            "indices": indices,
        },
        "multiplier": {
            "one": 1,
            "lanes": lanes,
            "requant": has["requant"],
            "requant_lanes": has["requant"] * lanes,
            "rescale_lanes": has["rescale"] * lanes,
            "bits": acc,
            "choose": acc * (groups > 1),
            "requant_bits": has["requant"] * acc,
            "small": has["requant"] * (cfg.par_entries * groups <= _LUT_RAM) * lanes,
        },
        "sequencer": {"one": 1, "indices": indices, "overwrite": has["overwrite"], "rows": has["depthwise_rows"]},
        "store": {"one": 1, "bus": bus, "requant": has["requant"]},
        "parameters": {"requant": has["requant"], "bus": has["requant"] * bus},
        "pack": {
            "one": 1,
            "bus": bus,
            "out": cfg.out_entry_bits,
            "bits": acc,
            "requant": has["requant"],
            "requant_out": has["requant"] * cfg.out_entry_bits,
        },
    }
    return found


def _bits(depth: int) -> int:
    return (depth - 1).bit_length()
