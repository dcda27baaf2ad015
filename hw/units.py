"""The units, declared once: the command queue that each executes, its neighbours, how it reads.

Registers, circuit, models, driver and programs iterate over `units(cfg)`, `queues(cfg)`, `channels(cfg)` and
`readers(cfg)`; nothing lists the units again. A further compute unit is a row of `COMPUTE_UNITS` with a member of
`Queue`, and a name in `Config.units`. What units count is in hw/metrics.py.

Dependence tokens pass between neighbours in a ring of `RING` positions; a queue's number is its position. Without a
fourth unit the ring is open: nothing is before the load queue or after the store queue.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .config import Config

RING = 4  # an instruction's flags name two neighbours, so a queue has no more
POP_PREV, POP_NEXT, PUSH_PREV, PUSH_NEXT = "pop_prev", "pop_next", "push_prev", "push_next"
FLAGS = (POP_PREV, POP_NEXT, PUSH_PREV, PUSH_NEXT)  # of an instruction, in the order of its bits
TERNARY_BANKS = 4  # of the accumulators with unit `ternary`: GEMM, TERNARY, STORE and a load each find one
WIDEST = 512  # bits that the load unit takes at once, from all load ports together


class Queue(IntEnum):
    """Command queues: each number is the position in the ring, and that of the unit in `units(cfg)`."""

    LOAD = 0
    COMPUTE = 1
    STORE = 2
    TERNARY = 3


class Reader(NamedTuple):
    """A reader of a load port: it asks for up to `buffer` beats ahead; of two ports it uses `port`.

    The load unit reads through all of them where `stripes(cfg)` is more than 1, up to `buffer` beats ahead at each.
    One that `yields` has a turn only where no other reader wants one.
    """

    name: str
    buffer: int
    port: int
    yields: bool = False


@dataclass(frozen=True)
class Unit:
    """A unit, which executes the command queue `queue`.

    `name` is that of its members, submodules and tracks, in upper case that of its registers. `buffer` are the beats
    that it may ask for ahead, 0 for a unit that reads nothing from DRAM; `port` is its load port where there are two.
    """

    name: str
    queue: Queue
    buffer: int = 0
    port: int = 1

    def counter(self, what: str) -> str:
        """The register that counts `what`, a key of `COUNTERS` in hw/metrics.py."""
        return f"{self.name.upper()}_{what}"


class Channel(NamedTuple):
    """Counted tokens from one queue to its neighbour."""

    source: Queue
    target: Queue

    @property
    def push(self) -> str:
        """The flag with which an instruction of `source` gives a token."""
        return PUSH_NEXT if _precedes(self.source, self.target) else PUSH_PREV

    @property
    def pop(self) -> str:
        """The flag with which an instruction of `target` takes one."""
        return POP_PREV if _precedes(self.source, self.target) else POP_NEXT

    def __str__(self) -> str:
        return f"{self.source.name} -> {self.target.name}"


FETCH_BEATS = 64  # that the fetch unit asks for ahead
NARROW_BITS = 64  # a port of fewer is narrow
_LOAD = Unit("load", Queue.LOAD, buffer=128, port=0)
# which reads parameters alone; micro-ops, accumulators and instructions are at the other port
_STORE = Unit("store", Queue.STORE, buffer=64, port=0)
# by their names in `Config.units`; the first executes the compute queue
COMPUTE_UNITS: dict[str, Unit] = {
    "gemm": Unit("compute", Queue.COMPUTE, buffer=128),
    "ternary": Unit("ternary", Queue.TERNARY),  # the load unit loads for it
}


def units(cfg: Config) -> tuple[Unit, ...]:
    """The units of `cfg`, in the order of their queues."""
    first, *others = (COMPUTE_UNITS[name] for name in cfg.units)
    return (_LOAD, first, _STORE, *others)


def queues(cfg: Config) -> tuple[Queue, ...]:
    """The command queues of `cfg`; each is at the position of its number."""
    return tuple(unit.queue for unit in units(cfg))


def channels(cfg: Config) -> tuple[Channel, ...]:
    """The token channels of `cfg`: one in each direction between neighbours."""
    every = queues(cfg)
    return tuple(Channel(a, b) for a in every for b in every if connected(a, b))


def connected(a: Queue, b: Queue) -> bool:
    """True where token channels join the two queues in a configuration that has both."""
    return _precedes(a, b) or _precedes(b, a)


def absent_flags(cfg: Config, queue: Queue) -> tuple[str, ...]:
    """The flags of an instruction of `queue` that name a neighbour which `cfg` does not have."""
    used = {c.pop for c in channels(cfg) if c.target == queue} | {c.push for c in channels(cfg) if c.source == queue}
    return tuple(flag for flag in FLAGS if flag not in used)


def between(a: Queue, b: Queue) -> Queue:
    """The queue that tokens from `a` to `b`, or back, pass where these are no neighbours."""
    return Queue(min(a, b) + 1)


def stripes(cfg: Config) -> int:
    """Load ports over which the bursts of the load unit are spread; 1 where it has one, or shares it."""
    return cfg.load_ports if cfg.load_ports * cfg.axi_bits <= WIDEST else 1


def striped(cfg: Config) -> Config:
    """`cfg` as the load unit sees it: with a bus as wide as all ports over which its bursts are spread."""
    return cfg if stripes(cfg) == 1 else cfg.replace(axi_bits=cfg.axi_bits * stripes(cfg))


def fetch_reader(cfg: Config) -> Reader:
    """The fetch unit as a reader.

    It runs ahead of the units, so of its bursts nothing is needed soon: they would delay loads that are waited for.
    Over a port of less than 64 bits an instruction takes more beats than most rows; there it asks for half as many
    ahead, behind which a load that comes later would wait.
    """
    return Reader("fetch", FETCH_BEATS >> (cfg.axi_bits < NARROW_BITS), 1, yields=True)


def readers(cfg: Config) -> tuple[tuple[Reader, ...], ...]:
    """The readers of each load port of `cfg`, in the order in which it serves them; one that uses all is the last."""
    load, compute, *others = (Reader(unit.name, unit.buffer, unit.port) for unit in units(cfg) if unit.buffer)
    everywhere = (load,) if stripes(cfg) > 1 else ()
    every = (*(() if everywhere else (load,)), compute, fetch_reader(cfg), *others)
    return tuple(
        (*(reader for reader in every if min(reader.port, cfg.load_ports - 1) == port), *everywhere)
        for port in range(cfg.load_ports)
    )


def _precedes(a: int, b: int) -> bool:
    """True where `b` is the position behind `a`."""
    return (a + 1) % RING == b
