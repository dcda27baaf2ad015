"""Estimated cost of the accelerator's work, in cycles: facts of the machine, and the terms of every estimate.

Estimates choose tiles (schedule/tiling.py, schedule/pool.py, schedule/elementwise.py) and bound what `tilewright bench`
measures. Each is composed, beside the schedule that it estimates, of these terms: transfers over a port, micro-ops, and
what overlaps. The cycles of a finished program, and of an operator in one, come from the timing model (sim/timing).

The memory is that of `on_memory` around the estimates: it is the same for a whole program, and every schedule and
kernel asks these terms, so they find it here instead of being handed it through each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from ..hw.config import Config
from ..hw.rtl.latencies import NOTHING_LATENCY, TOKEN_LATENCY
from ..sim.dram import ZYNQ_HP, Dram, unshared

CLOCK = 100e6  # Hz, accelerator on the PYNQ-Z1
LAUNCH_SECONDS = 2e-6  # assumed: registers written and polled for one launch

# Cycles of a LOAD or STORE beside its data: those of one without data, until its token can be popped.
TRANSFER = NOTHING_LATENCY + TOKEN_LATENCY
ROW = 1  # cycles per row of a transfer: the mover plans one per cycle
# Cycles of a GEMM or ALU instruction beside its micro-ops, an estimate: its latency is more, but most of it passes
# beside the micro-ops of the instruction before, and those of tiles that loads and stores wait for count in full.
INSTRUCTION = 8
OPERATOR = 200  # cycles of a program beside its work: its first loads and its last store


@dataclass(frozen=True)
class Memory:
    """What estimates know of a memory; by default that of `ZYNQ_HP`, with ports as wide as the configuration's.

    `latency` and `response` as of `Dram`, `burst` cycles per row of few beats, as no more of them are in flight, and
    the `rate` of the accelerator's ports, as a share of a beat per cycle.
    """

    latency: int = ZYNQ_HP.latency
    response: int = ZYNQ_HP.response
    burst: float = ZYNQ_HP.latency / ZYNQ_HP.outstanding
    rate: float = 1.0

    @classmethod
    def of(cls, dram: Dram, cfg: Config) -> Memory:
        """What a program for `cfg` finds of `dram`: two memories that are alike in this get the same program."""
        beat = cfg.axi_bits / 8
        shared = dram.total_bytes / (max(cfg.load_ports, cfg.store_ports) * beat)
        rate = min(1.0, dram.port_bytes / beat, shared)
        return cls(dram.latency, dram.response, dram.latency / dram.outstanding, rate)


DEFAULT = Memory()
_MEMORY: ContextVar[Memory] = ContextVar("memory", default=DEFAULT)
_P = ParamSpec("_P")
_R = TypeVar("_R")


@contextmanager
def on_memory(dram: Dram | Memory | None, cfg: Config) -> Iterator[None]:
    """Estimates within are for `dram` behind the ports of `cfg`; None leaves the memory as it is."""
    given = Memory.of(dram, cfg) if isinstance(dram, Dram) else dram
    token = _MEMORY.set(given or _MEMORY.get())
    try:
        yield
    finally:
        _MEMORY.reset(token)


def memory_facts(dram: Dram | None = None, cfg: Config | None = None) -> dict[str, Any]:
    """What programs depend on of `dram` behind `cfg`, or of the memory of `on_memory`; {} where that is the default.

    Part of the keys of programs and tiles, whose choice it changes.
    """
    found = _MEMORY.get() if dram is None or cfg is None else Memory.of(dram, cfg)
    return {} if found == DEFAULT else {"memory": asdict(found)}


def cached(maxsize: int) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """`functools.lru_cache` for functions whose results depend on estimates, and so on the memory."""

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @lru_cache(maxsize)
        def kept(_memory: Memory, *args: _P.args, **kwargs: _P.kwargs) -> _R:
            return function(*args, **kwargs)

        @wraps(function)
        def found(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            return kept(_MEMORY.get(), *args, **kwargs)

        return found

    return decorate


def timed_memory(cfg: Config) -> Dram:
    """The memory of `on_memory`, as far as estimates know it, for the timing model of `cfg`."""
    found, beat = _MEMORY.get(), cfg.axi_bits // 8
    each = {"port_bytes": max(1, round(beat * found.rate)), "outstanding": max(1, round(found.latency / found.burst))}
    return unshared(cfg, ZYNQ_HP.replace(latency=found.latency, response=found.response, **each))


def latency() -> int:
    """Cycles of a load that nothing hides, until its first beat."""
    return _MEMORY.get().latency


def round_trip() -> int:
    """Cycles of one memory access: a tile's first load waits for its first beat, its last store for the response."""
    return _MEMORY.get().latency + _MEMORY.get().response


def kernel() -> int:
    """Cycles of a list of micro-ops that is loaded just before it is issued."""
    return 10 + latency()


def port_bytes(cfg: Config, dram: Dram | None = None) -> int:
    """Bytes that a load or store port moves in one cycle, with memory `dram` if one is given."""
    beat = cfg.axi_bits // 8
    return min(dram.port_bytes, beat) if dram else beat


def port_rate(cfg: Config) -> float:
    """Bytes per cycle of a port in estimates; of the load unit's ports with `striped(cfg)`."""
    return port_bytes(cfg) * _MEMORY.get().rate


def bandwidths(cfg: Config, dram: Dram) -> dict[str, int]:
    """Bytes per cycle that one port, all loads, all stores, and both together move at most."""
    one = port_bytes(cfg, dram)
    load, store = cfg.load_ports * one, cfg.store_ports * one
    limits = {"port": one, "load": load, "store": store, "both": load + store}
    return {name: min(limit, dram.total_bytes) for name, limit in limits.items()}


def moved(cfg: Config, nbytes: Any) -> Any:
    """Cycles in which one port moves `nbytes`, a number or an array; the load unit's ports with `striped(cfg)`."""
    return nbytes / port_rate(cfg)


def transfer(cfg: Config, nbytes: Any, instructions: Any = 1, rows: Any = 0) -> Any:
    """Total cycles of LOAD or STORE instructions that move `nbytes` in `rows` separate rows."""
    return moved(cfg, nbytes) + TRANSFER * instructions + ROW * rows


def rows_moved(cfg: Config, nbytes: Any, instructions: Any, rows: Any) -> Any:
    """As `transfer`, of `rows` that may be shorter than a burst."""
    return np.maximum(transfer(cfg, nbytes, instructions, rows), _MEMORY.get().burst * rows)


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
