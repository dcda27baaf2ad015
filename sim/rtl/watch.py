"""When the circuit executed each instruction of a program: what its output `watch` told, cycle by cycle."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...hw.isa import Isa, Queue
from ...hw.units import units

# as harness.cpp writes it: a cycle, the products before its end, and the bits of hw/rtl/layouts.py's watch_layout
EVENT = np.dtype([("cycle", np.uint64), ("products", np.uint64), ("what", np.uint64)])


@dataclass(frozen=True)
class Trace:
    """Of every instruction, cycles since the start of fetching, as in `sim.timing.Timing`; int64 (n,).

    `queue`: the unit that executes it; `issue`: it is taken from its queue; `start`: it is taken, and the one before it
    in its queue is over; `end`: its results are in memory and its tokens given. `products_start` and `products_end` are
    the issues of GEMM and DWGEMM that were made by then.
    """

    queue: np.ndarray
    issue: np.ndarray
    start: np.ndarray
    end: np.ndarray
    products_start: np.ndarray
    products_end: np.ndarray


@dataclass(frozen=True)
class LoadedTile:
    """The data of one token from the load unit to the compute unit: `cycles` of their transfers, during which GEMM made
    `products` issues, all of them of other tiles: its own wait for the token."""

    cycles: int
    products: int

    @property
    def hidden(self) -> float:
        """The part of the cycles in which GEMM worked."""
        return self.products / self.cycles


def most_events(insn_count: int) -> int:
    """Events of a program, at most."""
    return 2 * insn_count + 1


def decode(isa: Isa, insn: np.ndarray, events: np.ndarray) -> Trace:
    """The trace of the instructions `insn`, uint64 (n, 2), all of which have ended, from the `events` of their run."""
    from ...hw.rtl.layouts import watch_layout

    bits = {name: field.offset for name, field in watch_layout(isa.cfg)}

    def when(name: str) -> np.ndarray:
        return events[(events["what"] >> np.uint64(bits[name]) & np.uint64(1)).astype(bool)]

    queue = np.array([isa.queue(fields) for fields in isa.decode(insn)], np.int64)
    zero = when("start")["cycle"].astype(np.int64).sum()  # of one event, or none
    found = {name: np.zeros(len(insn), np.int64) for name in ("issue", "start", "end")}
    products = {name: np.zeros(len(insn), np.int64) for name in ("start", "end")}
    for unit in units(isa.cfg):
        mine, name = queue == unit.queue, unit.name
        taken, ended = when(f"{name}_taken"), when(f"{name}_ended")
        before = np.concatenate([taken[:1], ended[:-1]])  # the first one waits for none
        start = np.where(taken["cycle"] > before["cycle"], taken, before)
        for key, source in (("issue", taken), ("start", start), ("end", ended)):
            found[key][mine] = source["cycle"].astype(np.int64) - zero
        for key, source in (("start", start), ("end", ended)):
            products[key][mine] = source["products"]
    return Trace(queue, **found, products_start=products["start"], products_end=products["end"])


def tiles(isa: Isa, insn: np.ndarray, trace: Trace) -> list[LoadedTile]:
    """The tiles of a program in their order."""
    found, cycles, products = [], 0, 0
    flags = isa.decode(insn)
    for k in np.flatnonzero(trace.queue == Queue.LOAD):
        cycles += int(trace.end[k] - trace.start[k])
        products += int(trace.products_end[k] - trace.products_start[k])
        if flags[k]["push_next"]:
            found.append(LoadedTile(cycles, products))
            cycles = products = 0
    return found
