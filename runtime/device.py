"""The `Device` protocol, on which programs run, opening a device by name, and the counts of a run.

The work of a program is counted without executing it: the same numbers for every device.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from ..hw.config import Config
from ..hw.errors import CapacityError
from ..hw.isa import Isa, Mem, Op, entry_bytes, mem_of, row_of, rows_of
from .arrays import Array
from .registry import device_entry

TRANSFERS = np.array([any(row.mem is not None for row in rows_of(op)) for op in range(8)])  # by opcode
# why an instruction waits: at the head of its queue for a token, or for its unit; while it executes for the bus, or for
# accumulators that others read
WAITS = ("token", "unit", "memory", "bank")
Value = int | float | dict[str, int]  # of a metric: a count, a rate, a histogram


@dataclass(frozen=True, eq=False)
class Timeline:
    """Cycles of every instruction of one launch, from the start of fetching; int64 (n,).

    `queue` is the command queue of the instruction; `queued` the cycle in which it enters the queue (None if the device
    does not see it), `issue` the cycle in which it leaves it, `start` the cycle of its first work, `end` the cycle in
    which its results are in memory and its tokens given. `waits` are cycles by the reasons of `WAITS`.
    """

    queue: Array
    issue: Array
    start: Array
    end: Array
    waits: dict[str, Array]
    queued: Array | None = None


@dataclass
class Stats:
    """Counts of one run, or the sum of several.

    `insns` counts instructions by mnemonic (`LOAD.INP`, `GEMM`, `ALU.ADD`, ...), `uops` executed micro-ops of GEMM
    and ALU (loop trips x kernel length), `macs` multiply-accumulates of all GEMM micro-ops, useful or on padding,
    `bytes_loaded` and `bytes_stored` DRAM bytes by memory name. `cycles` and `counters` (by register name) come from
    devices with a clock; else they are None and empty. `timeline` returns the cycles of each instruction, `observed`
    the metrics of hw/metrics.py that only the device can count: both for one launch on a simulated device, else None.
    """

    insns: Counter[str] = field(default_factory=Counter[str])
    uops: int = 0
    macs: int = 0
    bytes_loaded: Counter[str] = field(default_factory=Counter[str])
    bytes_stored: Counter[str] = field(default_factory=Counter[str])
    cycles: int | None = None
    counters: Counter[str] = field(default_factory=Counter[str])
    timeline: Callable[[], Timeline] | None = None
    observed: Callable[[], Mapping[str, Value]] | None = field(default=None, compare=False)

    def __add__(self, other: Stats) -> Stats:
        known = [cycles for cycles in (self.cycles, other.cycles) if cycles is not None]
        timelines = [function for function in (self.timeline, other.timeline) if function is not None]
        observed = [function for function in (self.observed, other.observed) if function is not None]
        return Stats(
            self.insns + other.insns,
            self.uops + other.uops,
            self.macs + other.macs,
            self.bytes_loaded + other.bytes_loaded,
            self.bytes_stored + other.bytes_stored,
            sum(known) if known else None,
            Counter({name: self.counters[name] + other.counters[name] for name in {**self.counters, **other.counters}}),
            timelines[0] if len(timelines) == 1 else None,
            observed[0] if len(observed) == 1 else None,
        )

    def to_dict(self) -> dict[str, int | dict[str, int]]:
        """The counts as JSON-ready values, with totals."""
        timed: dict[str, int | dict[str, int]] = {}
        if self.cycles is not None:
            timed = {"cycles": self.cycles, "counters": dict(self.counters)}
        return {
            "instructions": self.insns.total(),
            "micro_ops": self.uops,
            "macs": self.macs,
            "bytes_loaded": self.bytes_loaded.total(),
            "bytes_stored": self.bytes_stored.total(),
            "by_instruction": dict(self.insns),
            "loaded_by_memory": dict(self.bytes_loaded),
            "stored_by_memory": dict(self.bytes_stored),
            **timed,
        }


class Allocation(NamedTuple):
    """Bytes of device memory, at an address that is a multiple of `align`."""

    nbytes: int
    align: int


class Device(Protocol):
    """Memory and an accelerator of configuration `cfg`: write, run, read.

    Addresses are byte addresses as the accelerator sees them. `starts` grows with every `run`, failed ones included,
    and with all else that may change what is on chip.
    """

    cfg: Config

    @property
    def starts(self) -> int:
        """The runs that may have changed what is on chip."""
        ...

    def check_room(self, regions: Mapping[str, Allocation]) -> None:
        """Raise `CapacityError` where `regions` cannot all be allocated now; the device stays unchanged."""
        ...

    def allocate(self, nbytes: int, align: int) -> int:
        """The address of `nbytes` of zeroed memory, a multiple of `align`. Raises `CapacityError` when full."""
        ...

    def free(self, address: int) -> None:
        """Free the memory that `allocate` returned."""
        ...

    def write(self, address: int, data: Array) -> None:
        """Copy `data`, uint8 (n,), to memory."""
        ...

    def run(self, insn_address: int, insn_count: int) -> Stats:
        """Execute the instructions at `insn_address` to FINISH. Raises `ExecutionError` where that fails."""
        ...

    def read(self, address: int, nbytes: int) -> Array:
        """A copy of memory, uint8 (nbytes,)."""
        ...


def check_fits(regions: Mapping[str, Allocation], free: int, where: str) -> None:
    """Raise `CapacityError`, naming the largest of `regions`, where they need more than the `free` bytes `where`."""
    need = sum(region.nbytes for region in regions.values())
    if need > free:
        largest = sorted(regions.items(), key=lambda item: -item[1].nbytes)[:3]
        named = ", ".join(f"{name} {region.nbytes:,}" for name, region in largest)
        raise CapacityError(
            f"the program needs {need:,} bytes of {where}, but only {free:,} are free; its largest regions: {named}"
        )


def open_device(name: str, cfg: Config, **options: object) -> Device:
    """The device registered as `name`, constructed for `cfg` with the `options` of its class.

    Raises `UnsupportedError` for an unknown name.
    """
    entry = device_entry(name)
    return getattr(importlib.import_module(entry.module), entry.cls)(cfg, **options)


def count_work(stats: Stats, cfg: Config, entry_bytes: Mapping[Mem, int], f: dict[str, int]) -> None:
    """Add to `stats` the micro-ops, products and bytes of the decoded instruction `f`."""
    if "uop_bgn" in f:
        uops = max(0, f["uop_end"] - f["uop_bgn"]) * f["iter_out"] * f["iter_in"]
        stats.uops += uops
        if "wgt_out" in f and not f["reset"]:
            blocks = {int(Op.GEMM): 1, int(Op.TERNARY): cfg.ternary_blocks}.get(f["op"])
            products = cfg.macs_per_cycle * blocks if blocks else cfg.lanes * (1 + f.get("extra_taps", 0))
            stats.macs += uops * products
    elif f.get("x_size"):
        row, mem = row_of(f["op"], f["mem"]), mem_of(f["op"], f["mem"])
        rows = 1 if row.one_row else f["y_size"]
        moved = stats.bytes_loaded if row.stores is None else stats.bytes_stored
        moved[mem.name] += rows * f["x_size"] * entry_bytes[mem]


def without_addresses(isa: Isa, insn: Array) -> Array:
    """The instructions `insn`, uint64 (n, 2), with 0 for every DRAM address, which `program_stats` ignores."""
    field, words = isa.formats["LOAD"].fields["dram_base"], insn.copy()
    words[TRANSFERS[(insn[:, 0] & np.uint64(7)).astype(np.intp)], 0] &= ~np.uint64((1 << field.bits) - 1 << field.lo)
    return words


def program_stats(isa: Isa, insn: Array) -> Stats:
    """The counts of one run of `insn`, uint64 (n, 2); undecodable instructions are not counted."""
    stats, sizes = Stats(), {mem: entry_bytes(isa.cfg, mem) for mem in Mem}
    for f in isa.decode(insn):
        if not isa.undecodable(f):
            stats.insns[isa.mnemonic(f)] += 1
            count_work(stats, isa.cfg, sizes, f)
    return stats
