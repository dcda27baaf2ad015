"""The cycles in which the circuit executed each instruction of a program, from its output `watch`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...hw.config import Config
from ...hw.isa import Isa, Queue
from ...hw.metrics import buffered
from ...hw.rtl.latencies import BURST_BEATS
from ...hw.units import stripes, units
from ...runtime.device import WAITS

BURSTS = 2 * (BURST_BEATS + 2)  # of reads and writes: each length from 0 on, and the most under way


@dataclass(frozen=True)
class Trace:
    """Cycles of every instruction since the start of fetching, as in `sim.timing.Timing`; int64 (n,).

    `queue`: the unit that executes it; `issue`: it leaves its queue; `start`: it has left its queue, and the one before
    it there is done; `end`: its results are in memory and its tokens pushed. `products_start` and `products_end` are
    the micro-op issues of GEMM and DWGEMM up to `start` and `end`.

    `waits` are cycles by the reasons of `runtime.device.WAITS`; those of transfers under way together count for the one
    that ends next.
    """

    queue: np.ndarray
    issue: np.ndarray
    start: np.ndarray
    end: np.ndarray
    products_start: np.ndarray
    products_end: np.ndarray
    waits: dict[str, np.ndarray]


@dataclass(frozen=True)
class LoadedTile:
    """Data that the load unit passes to the compute unit with one token: its transfers take `cycles`, during which GEMM
    issues `products` micro-ops, all for other tiles: those of this tile wait for the token."""

    cycles: int
    products: int

    @property
    def hidden(self) -> float:
        """The fraction of the cycles in which GEMM worked."""
        return self.products / self.cycles


def most_events(insn_count: int) -> int:
    """An upper bound of a program's events."""
    return 2 * insn_count + 1


def counted(cfg: Config) -> list[str]:
    """What harness.cpp counts: the names of watch_layout (hw/rtl/ports.py) from `product` on."""
    from ...hw.rtl.ports import watch_layout

    names = [name for name, _ in watch_layout(cfg)]
    return names[names.index("product") :]


def event_type(cfg: Config) -> np.dtype:
    """An event as harness.cpp writes it: a cycle, the bits of watch_layout in it, and what was counted to its end."""
    return np.dtype([("cycle", np.uint64), ("what", np.uint64), ("counts", np.uint64, len(counted(cfg)))])


def decode(isa: Isa, insn: np.ndarray, events: np.ndarray) -> Trace:
    """The trace of the instructions `insn`, uint64 (n, 2), all of which have ended, from the `events` of their run."""
    from ...hw.rtl.ports import watch_layout

    bits = {name: field.offset for name, field in watch_layout(isa.cfg)}
    columns = {name: k for k, name in enumerate(counted(isa.cfg))}

    def when(name: str) -> np.ndarray:
        return events[(events["what"] >> np.uint64(bits[name]) & np.uint64(1)).astype(bool)]

    queue = np.array([isa.queue(fields) for fields in isa.decode(insn)], np.int64)
    zero = when("start")["cycle"].astype(np.int64).sum()  # at most one event
    found = {name: np.zeros(len(insn), np.int64) for name in ("issue", "start", "end")}
    products = {name: np.zeros(len(insn), np.int64) for name in ("start", "end")}
    waits = {name: np.zeros(len(insn), np.int64) for name in WAITS}
    for unit in units(isa.cfg):
        mine, name = queue == unit.queue, unit.name
        taken, ended = when(f"{name}_taken"), when(f"{name}_ended")
        before = np.concatenate([taken[:1], ended[:-1]])  # the first one has no predecessor
        start = np.where(taken["cycle"] > before["cycle"], taken, before)
        for key, source in (("issue", taken), ("start", start), ("end", ended)):
            found[key][mine] = source["cycle"].astype(np.int64) - zero
        for key, source in (("start", start), ("end", ended)):
            products[key][mine] = source["counts"][:, columns["product"]]
        for reason, source in (("token", taken), ("unit", taken), ("memory", ended), ("bank", ended)):
            column = columns.get(f"{name}_{reason}")
            if column is not None:
                waits[reason][mine] = np.diff(source["counts"][:, column].astype(np.int64), prepend=0)
    return Trace(queue, **found, products_start=products["start"], products_end=products["end"], waits=waits)


def fifos(cfg: Config) -> list[tuple[str, str, int]]:
    """FIFOs whose levels harness.cpp follows: (metric, Verilator's name of the words in its memory, beats of a word).

    The names are those of module `core` of `build_core`, whose blocks Verilator puts into it.
    """
    found = []
    for port, names in enumerate(buffered(cfg)):
        for k, name in enumerate(names):
            wide = stripes(cfg) if name == "load" else 1
            place = f"read_port_{port}.buffer_{'words' if wide > 1 else k}"
            found.append((f"{name}_buffer_high", place, wide))
    found.append(("store_data_high", "store.pack.out", 1))
    return [
        (metric, f"core__DOT__core__DOT__engine__DOT__{place.replace('.', '__DOT__')}__DOT__stored", beats)
        for metric, place, beats in found
    ]


def levels(cfg: Config, found: np.ndarray) -> dict[str, int]:
    """The metrics of `Simulation.fifos`: the most beats in each FIFO, of those of several ports the fullest."""
    values: dict[str, int] = {}
    for (metric, _, beats), words in zip(fifos(cfg), found.tolist()):
        values[metric] = max(values.get(metric, 0), words * beats)
    return values


def observed(cfg: Config, counts: np.ndarray, words: np.ndarray) -> dict[str, dict[str, int] | int]:
    """The metrics of `Simulation.bursts` and `Simulation.fifos`."""
    return {**bursts(counts), **levels(cfg, words)}


def bursts(found: np.ndarray) -> dict[str, dict[str, int] | int]:
    """The metrics of `Simulation.bursts`: of reads, then of writes, how many have each length, and the most at once."""
    values: dict[str, dict[str, int] | int] = {}
    for what, counts in zip(("read", "write"), found.astype(np.int64).reshape(2, -1).tolist()):
        *lengths, most = counts
        values[f"{what}_bursts"] = {str(beats): count for beats, count in enumerate(lengths) if count}
        values[f"{what}s_under_way_high"] = most
    return values


def tiles(isa: Isa, insn: np.ndarray, trace: Trace) -> list[LoadedTile]:
    """The tiles of a program in program order."""
    found, cycles, products = [], 0, 0
    flags = isa.decode(insn)
    for k in np.flatnonzero(trace.queue == Queue.LOAD):
        cycles += int(trace.end[k] - trace.start[k])
        products += int(trace.products_end[k] - trace.products_start[k])
        if flags[k]["push_next"]:
            found.append(LoadedTile(cycles, products))
            cycles = products = 0
    return found
