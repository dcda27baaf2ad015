"""The metrics, declared once: what is counted of a program, in which unit, and which devices count it.

Registers, circuit, timing model, behavioural model, simulated circuit, driver, profiles and documents take names and
meanings from here. `metrics(cfg)` includes the circuit's counters, each under its register's name in lower case. A
further counter of every unit is a row of `COUNTERS` and its signal in hw/rtl/control.py; any other metric is a row
below and a function that computes it: runtime/metrics.py from the program and the cycles of its instructions,
`Stats.observed` of a device itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from .isa import INSTRUCTIONS, SCRATCHPADS
from .units import Channel, channels, stripes, units
from .units import readers as every_reader

if TYPE_CHECKING:
    from .config import Config

# devices by their names (runtime/registry.py): those that know the program, that have its counters in registers, that
# know the cycles of each instruction, and those in which the circuit itself is simulated
EVERY = ("model", "spec", "timing", "rtl", "rtl_fast", "board")
CLOCKED = ("timing", "rtl", "rtl_fast", "board")
FOLLOWED = ("timing", "rtl", "rtl_fast")
CIRCUIT = ("rtl", "rtl_fast")
TIMING = ("timing",)
# what the registers of every unit count: unit of measure, meaning
COUNTERS = {
    "BUSY": ("cycles", "cycles executing"),
    "TOKEN_WAIT": ("cycles", "cycles waiting for dependence tokens"),
    "MEMORY_WAIT": ("cycles", "cycles waiting for memory"),
    "INSNS": ("instructions", "instructions executed"),
    "BYTES": ("bytes", "bytes moved"),
}


class Kind(str, Enum):
    """How values of several launches make one: sums, sums of their parts, the largest, sums by bin."""

    COUNTER = "counter"
    RATE = "rate"
    HIGH_WATER = "high-water mark"
    HISTOGRAM = "histogram"


@dataclass(frozen=True)
class Metric:
    """A metric: `name`, the `unit` in which it counts, and the devices that count it (`by`).

    A counter and a high-water mark are integers, a histogram integers by bin, and a rate is the quotient of the two
    metrics `over`. `register` is the one that holds it in the circuit, empty where none does.
    """

    name: str
    kind: Kind
    unit: str
    doc: str
    by: tuple[str, ...]
    over: tuple[str, str] | None = None
    register: str = ""


CYCLES = Metric("cycles", Kind.COUNTER, "cycles", "cycles from start to done", CLOCKED, register="CYCLES")
_WORK = [
    ("instructions", "instructions", "instructions of the program"),
    ("micro_ops", "micro-ops", "micro-ops executed: trips of both loops x length of the kernel"),
    ("macs", "multiply-accumulates", "multiply-accumulates of all products, useful or on padding"),
    ("bytes_loaded", "bytes", "bytes read from DRAM by loads"),
    ("bytes_stored", "bytes", "bytes written to DRAM by stores"),
    ("gemm_issues", "micro-ops", "micro-op issues of GEMM and DWGEMM that multiply"),
]
_BY_KIND = [
    ("by_instruction", "instructions", "instructions by mnemonic"),
    ("loaded_by_memory", "bytes", "bytes read from DRAM by memory"),
    ("stored_by_memory", "bytes", "bytes written to DRAM by memory"),
]


def metrics(*configs: Config) -> dict[str, Metric]:
    """The metrics of `configs` by name, in the order in which they are shown, configuration by configuration."""
    return {metric.name: metric for cfg in configs for metric in _all(cfg)}


def _all(cfg: Config) -> Iterator[Metric]:
    yield CYCLES
    for some in (hardware, _work, _rates, _levels, _followed, _buffers):
        yield from some(cfg)
    yield from _bus()


def hardware(cfg: Config) -> Iterator[Metric]:
    """The counters of the units of `cfg` that are registers, in the order of these."""
    for one in units(cfg):
        for what, (unit, doc) in COUNTERS.items():
            register = one.counter(what)
            yield Metric(register.lower(), Kind.COUNTER, unit, f"{one.name}: {doc}", CLOCKED, register=register)


def counters(cfg: Config) -> tuple[str, ...]:
    """The names of the registers in which the units of `cfg` count."""
    return tuple(metric.register for metric in hardware(cfg))


def token_level(channel: Channel) -> str:
    """The name of the metric that counts the most tokens of `channel`."""
    return f"tokens_{channel.source.name}_{channel.target.name}_high".lower()


def _work(cfg: Config) -> Iterator[Metric]:
    for name, unit, doc in _WORK:
        yield Metric(name, Kind.COUNTER, unit, doc, EVERY)
    if "ternary" in cfg.units:
        yield Metric("ternary_issues", Kind.COUNTER, "micro-ops", "micro-op issues of TERNARY that multiply", EVERY)
    for name, unit, doc in _BY_KIND:
        yield Metric(name, Kind.HISTOGRAM, unit, doc, EVERY)


def _rates(cfg: Config) -> Iterator[Metric]:
    whole = "part of the cycles"
    rows = [(f"{one.name}_busy_rate", f"{one.name}_busy", whole, f"{one.name}: executing") for one in units(cfg)]
    rows += [("gemm_use", "gemm_issues", whole, "the multiplier array takes a micro-op")]
    if "ternary" in cfg.units:
        rows += [("ternary_use", "ternary_issues", whole, "unit ternary takes a micro-op")]
    rows += [("macs_per_cycle", "macs", "multiply-accumulates per cycle", "products, useful or on padding")]
    for what in ("loaded", "stored"):
        rows.append((f"bytes_{what}_per_cycle", f"bytes_{what}", "bytes per cycle", f"bytes {what}"))
    for name, over, unit, doc in rows:
        yield Metric(name, Kind.RATE, unit, doc, CLOCKED, over=(over, "cycles"))


def _levels(cfg: Config) -> Iterator[Metric]:
    filled = {row.scratchpad for row in INSTRUCTIONS if not row.missing(cfg)}
    for mem in SCRATCHPADS:
        if mem in filled:
            name, doc = mem.name, f"entries of {mem.name} up to the last that the program uses"
            yield Metric(f"{name.lower()}_high", Kind.HIGH_WATER, "entries", doc, EVERY)
    for channel in channels(cfg):
        yield Metric(token_level(channel), Kind.HIGH_WATER, "tokens", f"most tokens {channel}", FOLLOWED)
    for one in units(cfg):
        doc = f"most instructions in the queue of {one.name}"
        yield Metric(f"{one.name}_queue_high", Kind.HIGH_WATER, "instructions", doc, TIMING)


def _followed(cfg: Config) -> Iterator[Metric]:
    for one in units(cfg):
        doc = f"{one.name}: cycles in which the head of its queue has its tokens and waits for the unit"
        yield Metric(f"{one.name}_unit_wait", Kind.COUNTER, "cycles", doc, FOLLOWED)
    doc = "store: cycles waiting for accumulators or multipliers that others use"
    yield Metric("store_bank_wait", Kind.COUNTER, "cycles", doc, FOLLOWED)
    for one in units(cfg):
        doc = f"{one.name}: instructions by cycles from issue to end; bin n: from n to 2 n - 1"
        yield Metric(f"{one.name}_durations", Kind.HISTOGRAM, "instructions", doc, FOLLOWED)


def buffered(cfg: Config) -> list[list[str]]:
    """By load port, the units that read through it, each with a buffer of its own, in the order of these."""
    absent = () if "requant" in cfg.extensions else ("store",)  # which reads parameters alone
    return [[one.name for one in port if one.name not in absent] for port in every_reader(cfg)]


def _buffers(cfg: Config) -> Iterator[Metric]:
    for name in dict.fromkeys(name for port in buffered(cfg) for name in port):
        doc = f"most beats that came for {name} and wait behind the next one that it takes, at one port"
        spread = name == "load" and stripes(cfg) > 1
        yield Metric(f"{name}_buffer_high", Kind.HIGH_WATER, "beats", doc, CIRCUIT if spread else FOLLOWED)
    doc = "most beats of stores that wait behind the next one for the bus"
    yield Metric("store_data_high", Kind.HIGH_WATER, "beats", doc, CIRCUIT)


def _bus() -> Iterator[Metric]:
    for what in ("read", "write"):
        doc = f"{what} bursts on the buses by their beats"
        yield Metric(f"{what}_bursts", Kind.HISTOGRAM, "bursts", doc, FOLLOWED)
    for what in ("read", "write"):
        doc = f"most {what} bursts under way on one port"
        by = FOLLOWED if what == "read" else CIRCUIT
        yield Metric(f"{what}s_under_way_high", Kind.HIGH_WATER, "bursts", doc, by)
