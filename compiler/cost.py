"""The cost model of tiles: cycles of transfers and micro-ops, estimated without a program.

The tile search (schedule/tiling.py, pool.py, elementwise.py) composes its estimates of these terms, because it compares
thousands of tiles. A program that exists, and every operator in one, is timed by the timing model (sim/timing) instead.

A program is compiled for one memory, which every estimate depends on. So the memory is a context, `on_memory`, and not
an argument of each term; functions that remember estimates use `cached`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from ..hw.config import Config
from ..hw.rtl.latencies import NOTHING_LATENCY, TOKEN_LATENCY
from ..sim.dram import ZYNQ_HP, Dram, unshared

CLOCK = 100e6  # Hz, accelerator on the PYNQ-Z1
LAUNCH_SECONDS = 2e-6  # assumed: registers written and polled for one launch

TRANSFER = NOTHING_LATENCY + TOKEN_LATENCY  # cycles of a LOAD or STORE without data, until its token can be popped
ROW = 1  # cycles per row of a transfer: the mover plans one per cycle
# Fixed cycles of a GEMM or ALU instruction, an estimate: its latency is longer, but most of it passes while the
# micro-ops of the previous instruction are issued.
INSTRUCTION = 8
OPERATOR = 200  # fixed cycles of a program: its first loads and its last store

Quantity = TypeVar("Quantity", float, np.ndarray)  # a number, or an array with one value per tile


@dataclass(frozen=True)
class Memory:
    """Memory parameters of the estimates; the default is `ZYNQ_HP` with ports as wide as the configuration's.

    `latency` and `response` are in cycles, as in `Dram`. `burst` is the least number of cycles per row, because the
    number of requests in flight is limited. `rate` is the share of a beat per cycle that a port of the accelerator
    gets.
    """

    latency: int = ZYNQ_HP.latency
    response: int = ZYNQ_HP.response
    burst: float = ZYNQ_HP.latency / ZYNQ_HP.outstanding
    rate: float = 1.0

    @classmethod
    def of(cls, dram: Dram, cfg: Config) -> Memory:
        """The parameters of `dram` at the ports of `cfg`. Memories of equal parameters get equal programs."""
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
    """Estimate for `dram` at the ports of `cfg` in the body; None leaves the memory unchanged."""
    memory = Memory.of(dram, cfg) if isinstance(dram, Dram) else dram
    token = _MEMORY.set(memory or _MEMORY.get())
    try:
        yield
    finally:
        _MEMORY.reset(token)


def memory_facts(dram: Dram | None = None, cfg: Config | None = None) -> dict[str, dict[str, float]]:
    """Cache key of the memory model: of `dram` at the ports of `cfg`, else of the context; empty for the default."""
    memory = _MEMORY.get() if dram is None or cfg is None else Memory.of(dram, cfg)
    return {} if memory == DEFAULT else {"memory": asdict(memory)}


def cached(maxsize: int) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """`functools.lru_cache` for functions of estimates: results are kept separately for each memory."""

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @lru_cache(maxsize)
        def of_memory(_memory: Memory, *args: _P.args, **kwargs: _P.kwargs) -> _R:
            return function(*args, **kwargs)

        @wraps(function)
        def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            return of_memory(_MEMORY.get(), *args, **kwargs)

        return wrapper

    return decorate


def timed_memory(cfg: Config) -> Dram:
    """The memory of the context as a `Dram` for the timing model of `cfg`; parameters without an estimate default."""
    memory, beat = _MEMORY.get(), cfg.axi_bits // 8
    port_bytes, outstanding = max(1, round(beat * memory.rate)), max(1, round(memory.latency / memory.burst))
    parameters = {"port_bytes": port_bytes, "outstanding": outstanding}
    return unshared(cfg, ZYNQ_HP.replace(latency=memory.latency, response=memory.response, **parameters))


def latency() -> int:
    """Cycles from a load to its first beat."""
    return _MEMORY.get().latency


def round_trip() -> int:
    """Cycles of one access: a tile's first load waits for its first beat, its last store for the response."""
    return _MEMORY.get().latency + _MEMORY.get().response


def kernel() -> int:
    """Cycles to load a list of micro-ops that is issued at once."""
    return 10 + latency()


def port_bytes(cfg: Config, dram: Dram | None = None) -> int:
    """Bytes that a load or store port moves in one cycle, limited by memory `dram` if one is given."""
    beat = cfg.axi_bits // 8
    return min(dram.port_bytes, beat) if dram else beat


def port_rate(cfg: Config) -> float:
    """Bytes per cycle of a port on the memory of the context; with `striped(cfg)` of all load ports."""
    return port_bytes(cfg) * _MEMORY.get().rate


def moved(cfg: Config, nbytes: Quantity) -> Quantity:
    """Cycles in which one port moves `nbytes`; with `striped(cfg)` all load ports."""
    return nbytes / port_rate(cfg)


def transfer(cfg: Config, nbytes: Quantity, instructions: Quantity | int = 1, rows: Quantity | int = 0) -> Quantity:
    """Total cycles of LOAD or STORE `instructions` that move `nbytes` in `rows` separate rows."""
    return moved(cfg, nbytes) + TRANSFER * instructions + ROW * rows


def rows_moved(cfg: Config, nbytes: ArrayLike, instructions: int, rows: ArrayLike) -> np.ndarray:
    """Cycles of `transfer`, but at least the burst time of every row: rows may be shorter than a burst."""
    nbytes, rows = np.asarray(nbytes, np.float64), np.asarray(rows, np.float64)
    return np.maximum(transfer(cfg, nbytes, instructions, rows), _MEMORY.get().burst * rows)


def computed(micro_ops: Quantity, instructions: int = 1) -> Quantity:
    """Total cycles of GEMM or ALU instructions that issue `micro_ops`, one per cycle."""
    return micro_ops + INSTRUCTION * instructions


def overlapped(first: float, second: float, vthreads: int) -> float:
    """Cycles of two consecutive steps of each tile; several virtual threads overlap them."""
    return max(first, second) if vthreads > 1 else first + second


def roofline(cfg: Config, micro_ops: float, nbytes: float) -> float:
    """Cycles of micro-ops and transfers that overlap entirely."""
    return max(micro_ops, moved(cfg, nbytes))


def bounds(cfg: Config, macs: int, loaded: int, stored: int, dram: Dram = ZYNQ_HP) -> dict[str, float]:
    """Lower bounds of a program's cycles on memory `dram`, by the resource that limits it.

    `gemm` allows one product of a tile per cycle; `load` and `store` are the bytes over all ports of that kind,
    `memory` all bytes over the memory's own limit.
    """
    port = port_bytes(cfg, dram)
    return {
        "gemm": macs / cfg.macs_per_cycle,
        "load": loaded / (cfg.load_ports * port),
        "store": stored / (cfg.store_ports * port),
        "memory": (loaded + stored) / dram.total_bytes,
    }
