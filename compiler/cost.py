"""Estimated cost of the accelerator's work, in cycles: facts of the machine, and the terms of every estimate.

Estimates choose tiles (schedule/tiling.py, schedule/pool.py, schedule/elementwise.py, accelerator/direct/) and modules
of a target (accelerator/module.py), and bound what `tilewright bench` measures. Each is composed, beside the schedule
or kernel that it estimates, of these terms: transfers over a port, micro-ops, and what overlaps. The cycles of a
finished program come from the timing model (sim/timing).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..hw.config import Config
from ..hw.rtl.latencies import NOTHING_LATENCY, TOKEN_LATENCY
from ..sim.dram import ZYNQ_HP, Dram

CLOCK = 100e6  # Hz, accelerator on the PYNQ-Z1
LAUNCH_SECONDS = 2e-6  # assumed: registers written and polled for one launch

# Cycles of a LOAD or STORE beside its data: those of one without data, until its token can be popped.
TRANSFER = NOTHING_LATENCY + TOKEN_LATENCY
ROW = 1  # cycles per row of a transfer: the mover plans one per cycle
BURST = ZYNQ_HP.latency / ZYNQ_HP.outstanding  # cycles per row of few beats: no more of them are in flight
# Cycles of a GEMM or ALU instruction beside its micro-ops, an estimate: its latency is more, but most of it passes
# beside the micro-ops of the instruction before, and those of tiles that loads and stores wait for count in full.
INSTRUCTION = 8
# Cycles of one memory access: a tile's first load waits for its first beat, its last store for the response.
ROUND_TRIP = ZYNQ_HP.latency + ZYNQ_HP.response
LATENCY = ZYNQ_HP.latency  # of a load that nothing hides
KERNEL = 50  # cycles of a list of micro-ops that is loaded just before it is issued
MAX_TILE = 60  # cycles of the about ten instructions of a tile of a maximum (accelerator/direct/max_pool.py)
OPERATOR = 200  # cycles of a program beside its work: its first loads and its last store

# Cycles per accumulator entry on the ALU, for comparing the accelerator with other modules: coarse, and rather too
# high. The timing model has 8 for a product, 2 to 8 for the others.
TAP = 2  # per tap of a pooled window: both operands are in one bank
PRODUCT = 14  # per product: accumulator loads, offsets, MUL
ELEMENTWISE = 6  # per other operator


def port_bytes(cfg: Config, dram: Dram | None = None) -> int:
    """Bytes that a load or store port moves in one cycle, with memory `dram` if one is given."""
    beat = cfg.axi_bits // 8
    return min(dram.port_bytes, beat) if dram else beat


def bandwidths(cfg: Config, dram: Dram) -> dict[str, int]:
    """Bytes per cycle that one port, all loads, all stores, and both together move at most."""
    one = port_bytes(cfg, dram)
    load, store = cfg.load_ports * one, cfg.store_ports * one
    limits = {"port": one, "load": load, "store": store, "both": load + store}
    return {name: min(limit, dram.total_bytes) for name, limit in limits.items()}


def moved(cfg: Config, nbytes: Any) -> Any:
    """Cycles in which one port moves `nbytes`, a number or an array; the load unit's ports with `striped(cfg)`."""
    return nbytes / port_bytes(cfg)


def transfer(cfg: Config, nbytes: Any, instructions: Any = 1, rows: Any = 0) -> Any:
    """Total cycles of LOAD or STORE instructions that move `nbytes` in `rows` separate rows."""
    return moved(cfg, nbytes) + TRANSFER * instructions + ROW * rows


def rows_moved(cfg: Config, nbytes: Any, instructions: Any, rows: Any) -> Any:
    """As `transfer`, of `rows` that may be shorter than a burst."""
    return np.maximum(transfer(cfg, nbytes, instructions, rows), BURST * rows)


def computed(micro_ops: Any, instructions: Any = 1) -> Any:
    """Total cycles of GEMM or ALU instructions that issue `micro_ops`, one per cycle."""
    return micro_ops + INSTRUCTION * instructions


def overlapped(first: float, second: float, vthreads: int) -> float:
    """Cycles of two consecutive steps of each tile; several virtual threads overlap them."""
    return max(first, second) if vthreads > 1 else first + second


def roofline(cfg: Config, micro_ops: float, nbytes: float) -> float:
    """Cycles of micro-ops and transfers that overlap entirely."""
    return max(micro_ops, moved(cfg, nbytes))


def bounds(cfg: Config, macs: int, loaded: int, stored: int, dram: Dram = ZYNQ_HP) -> dict[str, float]:
    """Lower bounds of a program's cycles, by limiting resource, with memory `dram`.

    One product of a tile per cycle (`gemm`), and bytes on all ports of a kind (`load`, `store`) and on all together
    (`memory`).
    """
    each = port_bytes(cfg, dram)
    found = {"gemm": macs / cfg.macs_per_cycle}
    found |= {"load": loaded / (cfg.load_ports * each), "store": stored / (cfg.store_ports * each)}
    return found | {"memory": (loaded + stored) / dram.total_bytes}
