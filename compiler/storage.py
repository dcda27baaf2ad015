"""Scratchpad addresses: which tensors are alive when, which compute in place, where each one lies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..hw.config import Config
from ..hw.errors import CapacityError
from ..hw.isa import Mem, depth
from ..runtime.buffer import Buffer
from .intrin import SCOPES, entry_elements


@dataclass
class Span:
    """The instruction scopes [start, end] inside one loop, counted in program order."""

    start: int
    end: int = -1


@dataclass(eq=False)
class Place:
    """Where a tensor lives: a scratchpad (`mem`, first entry `base`) or DRAM (`mem` is None, `buffer`)."""

    name: str
    dtype: str
    elements: int
    mem: Mem | None = None
    loops: int = 0  # around its allocation
    base: int = 0
    accesses: list[tuple[int, tuple[Span, ...]]] = field(default_factory=list)  # instruction scope, loops around it
    buffer: Buffer | None = None
    moved_to: set[Mem] = field(default_factory=set)  # DRAM only: memories that it is loaded to or stored from
    stored: bool = False  # DRAM only

    def alive(self) -> tuple[int, int]:
        """First and last instruction scope; a loop inside the allocation counts as a whole, it may carry values."""
        spans = [loops[self.loops] if len(loops) > self.loops else Span(time, time) for time, loops in self.accesses]
        return min(span.start for span in spans), max(span.end for span in spans)


@dataclass
class _Group:
    """Tensors that share their entries because each is computed in place from the one before."""

    places: list[Place]
    start: int
    end: int
    base: int = 0
    source: bool = False  # a tensor operand of the ALU


class Storage:
    """Assigns `Place.base` for all tensors on chip of one function."""

    def __init__(self, places: Iterable[Place], cfg: Config):
        self.cfg = cfg
        self._groups: dict[Place, _Group] = {}
        for place in places:
            if place.mem is not None and place.accesses:
                self._groups[place] = _Group([place], *place.alive())

    def join(self, source: Place, target: Place, time: int) -> bool:
        """Let instruction scope `time` compute `target` in place of `source`, where that loses nothing."""
        a, b = self._groups[source], self._groups[target]
        if a is b:
            return True
        fits = source.mem == target.mem and source.elements == target.elements
        if not fits or a.end != time or b.start != time:
            return False
        a.places += b.places
        a.end, a.source = b.end, a.source or b.source
        for place in b.places:
            self._groups[place] = a
        return True

    def read_by_alu(self, places: Iterable[Place]) -> None:
        """Note tensors that are second operands: micro-ops address those with the bits of an input index."""
        for place in places:
            self._groups[place].source = True

    def assign(self) -> None:
        """Set the addresses. Raises `CapacityError` naming the largest tensor where they do not fit."""
        for scope, mem in SCOPES.items():
            groups = list({id(g): g for p, g in self._groups.items() if p.mem == mem}.values())
            groups.sort(key=lambda g: not g.source)  # low addresses, should the input scratchpad be the smaller one
            have = depth(self.cfg, mem)
            need = self._apart(groups, mem)
            if need > have:  # only then: tensors that share entries make one queue wait for another
                need = self._shared(groups, mem)
            if need > have:
                largest = max(groups, key=lambda g: self._size(g, mem))
                raise CapacityError(
                    f"{scope} is too small: the tiles in it need {need} entries, the largest is "
                    f"{largest.places[0].name!r} with {self._size(largest, mem)} (virtual threads included), "
                    f"{self.cfg.name} has {have}; choose smaller tiles"
                )
            for group in groups:
                for place in group.places:
                    place.base = group.base

    def _size(self, group: _Group, mem: Mem) -> int:
        return -(-group.places[0].elements // entry_elements(self.cfg, mem))

    def _apart(self, groups: list[_Group], mem: Mem) -> int:
        end = 0
        for group in groups:
            group.base, end = end, end + self._size(group, mem)
        return end

    def _shared(self, groups: list[_Group], mem: Mem) -> int:
        """Operands, then the largest first, each at the lowest address that is free while it is alive."""
        placed: list[_Group] = []
        for group in sorted(groups, key=lambda g: (not g.source, -self._size(g, mem))):
            size, base = self._size(group, mem), 0
            rivals = [g for g in placed if g.start <= group.end and group.start <= g.end]
            for other in sorted(rivals, key=lambda g: g.base):
                if base + size <= other.base:
                    break
                base = max(base, other.base + self._size(other, mem))
            group.base = base
            placed.append(group)
        return max((g.base + self._size(g, mem) for g in placed), default=0)
