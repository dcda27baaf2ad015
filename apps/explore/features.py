"""What LUTs and flip-flops of each part of the core are proportional to, as far as a configuration says it.

The costs are fitted to what synthesis counts (apps/explore/area.json, made by `make area-model`).
"""

from __future__ import annotations

from functools import lru_cache

from ...hw.config import EXTENSIONS, PAR_BYTES, Config
from ...hw.units import readers, stripes

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
    both = float(bool(has["lookup"] or has["lane_reduce"]))
    return {
        "control": {"one": 1},
        "engine": {"one": 1, "more": stripes(cfg) - 1},
        "fetch": {"one": 1, "bus": cfg.axi_bits},
        "queues": {"one": 1, "blocks": -(-cfg.queue_depth // _LUT_RAM), "deep": cfg.queue_depth > _LUT_RAM // 2},
        "ports": _ports(cfg),
        "load": {"one": 1, "wide": wide, "pad": has["pad_value"], "indices": indices},
        "compute": {"one": 1, "indices": indices},
        **_scratchpads(cfg),
        "pipeline": {"one": 1, "bits": acc, "indices": indices, "groups": choose, "functions": both * acc},
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
