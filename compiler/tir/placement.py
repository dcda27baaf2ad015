"""Scratchpad addresses: from the lifetimes of tensors and the operations that compute in place.

Some change while a program is recorded: slots of tiles, and the last use of entries.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...hw.config import Config
from ...hw.errors import CapacityError, ScheduleError
from ...hw.isa import Mem, depth
from ...runtime.buffer import Buffer
from ..intrin import SCOPES, entry_elements

_RESERVED = np.iinfo(np.int64).max  # later than any use


class Placement:
    """Time of the last use of each scratchpad entry, in all that is recorded into one program.

    New tensors get the least recently used entries, so that their loads need not wait. With `resident` constants stay
    on chip as long as there is room: the first half of the weights lies at the end, the second half in front. Where the
    last find no room, they share entries with those of the middle, so that the loads of both have time.
    """

    def __init__(self, cfg: Config, resident: bool = False):
        self.cfg, self.resident = cfg, resident
        self._clock = 0
        self._last = {mem: np.zeros(depth(cfg, mem), np.int64) for mem in (*SCOPES.values(), Mem.TWGT)}

    def keeps(self, mem: Mem) -> bool:
        """True if constants in `mem` stay on chip as long as there is room."""
        return self.resident and mem in (Mem.WGT, Mem.PAR)

    def use(self, mem: Mem, base: int, size: int) -> int:
        """Mark `size` entries from `base` on as used now, and return the time."""
        self._clock += 1
        self._last[mem][base : base + size] = self._clock
        return self._clock

    def reserve(self, mem: Mem, base: int, size: int) -> None:
        """Let `region` choose `size` entries from `base` on only if no others are free."""
        self._last[mem][base : base + size] = _RESERVED

    def reserved(self, mem: Mem, base: int, size: int) -> bool:
        """True if none of `size` entries from `base` on was used since they were reserved."""
        return bool((self._last[mem][base : base + size] == _RESERVED).all())

    def last_use(self, mem: Mem, base: int, size: int) -> int:
        """The time of the last use of any of `size` entries from `base` on; 0 if none was used."""
        return int(self._last[mem][base : base + size].max(initial=0))

    def region(self, mem: Mem, size: int, low: int, high: int, excluded: Sequence[range] = ()) -> int:
        """The first of the `size` adjacent entries in [low, high), outside `excluded`, that are least recently used.

        Raises `CapacityError` if there are no such entries.
        """
        changes: list[int] = (np.flatnonzero(np.diff(self._last[mem])) + 1).tolist()
        from_end = self.resident and mem is Mem.WGT and high == depth(self.cfg, mem) and not self._last[mem][high // 2]
        changes += [end - size for end in changes] if from_end else []
        starts = {low, high - size, *changes, *(start for r in excluded for start in (r.stop, r.start - size))}
        free = [
            start
            for start in sorted(starts)
            if low <= start <= high - size and not any(start < r.stop and r.start < start + size for r in excluded)
        ]
        if not free:
            raise CapacityError(f"{size} entries of {mem.name}: they do not fit those that are free in {low} to {high}")
        last = self._last[mem]
        taken = {start: np.count_nonzero(last[start : start + size]) if self.keeps(mem) else 0 for start in free}
        last_use = {start: self.last_use(mem, start, size) for start in free}
        return min(free, key=lambda start: (taken[start], last_use[start], -start if from_end else start))


class Slots:
    """Equal parts of a scratchpad, at `bases`, for the tiles of one tensor.

    A tile that is still in a slot is not loaded again; a new one takes the least recently used slot. Each virtual
    thread holds one slot. Of a resident tensor the first tiles keep their slots, and the others take the last ones.
    """

    def __init__(self, mem: Mem, bases: Sequence[int], size: int, placement: Placement):
        self.mem, self.size, self.placement = mem, size, placement
        self._stays = placement.keeps(mem)
        times = {base: placement.last_use(mem, base, size) for base in bases}
        self._used = dict(sorted(times.items(), key=lambda item: item[1]))  # base -> time of its last use
        self._free = set(bases) if self._stays else set[int]()  # slots that no tile had yet
        self._tiles: dict[Hashable, int] = {}
        self._held: dict[int, int] = {}

    def take(self, thread: int, tile: Hashable) -> tuple[int, bool]:
        """Assign a slot to `thread`: (its first entry, True if `tile` is in it already)."""
        base = self._tiles.get(tile)
        present = base is not None
        if base is None:
            busy = {held for other, held in self._held.items() if other != thread}
            others = [b for b in self._used if b not in busy]
            first = [b for b in others if b in self._free] or others
            choose = max if self._stays and first is others else min
            base = choose(first, key=self._used.__getitem__)
            self._free.discard(base)
            self._tiles = {key: b for key, b in self._tiles.items() if b != base}
            self._tiles[tile] = base
        self._held[thread] = base
        self._used[base] = self.placement.use(self.mem, base, self.size)
        return base, present

    def forget(self) -> None:
        """Mark all loaded tiles as invalid."""
        self._tiles.clear()


@dataclass
class Span:
    """The instruction scopes [start, end] inside one loop, counted in program order."""

    start: int
    end: int = -1


@dataclass(eq=False)
class Location:
    """The location of a tensor: a scratchpad (`mem`, entries `bases`) or DRAM (`mem` is None, `buffer`).

    A tensor on chip has `copies`, one per virtual thread, each of `size` entries from its own base on.
    """

    name: str
    dtype: str
    elements: int  # of all copies
    mem: Mem | None = None
    loops: int = 0  # around its allocation
    copies: int = 1
    size: int = 0
    bases: list[int] = field(default_factory=list)
    rows: bool = False  # weights addressed by rows: micro-ops reach only the first rows of the scratchpad
    slots: Slots | None = None  # if given, `bases` change with every tile
    accesses: list[tuple[int, tuple[Span, ...]]] = field(default_factory=list)  # instruction scope, loops around it
    writers: list[int] = field(default_factory=list)  # the number of loops around every scope that writes it
    loaded_from: list[Location] = field(default_factory=list)  # tensors in DRAM
    buffer: Buffer | None = None
    moved_to: set[Mem] = field(default_factory=set)  # DRAM only: memories that it is loaded to or stored from
    stored: bool = False  # DRAM only

    def alive(self) -> tuple[int, int]:
        """First and last instruction scope; loops inside the allocation count as a whole: they may carry values."""
        spans = [loops[self.loops] if len(loops) > self.loops else Span(time, time) for time, loops in self.accesses]
        return min(span.start for span in spans), max(span.end for span in spans)

    def touched(self, time: int) -> bool:
        """True if instruction scope `time` reads or writes it."""
        return any(at == time for at, _ in self.accesses)

    def entry(self, k: int) -> int:
        """The address of entry `k` of the tensor, counted through all copies. Raises `ScheduleError` outside it."""
        if not 0 <= k < self.size * self.copies:
            raise ScheduleError(
                f"{self.name!r} has {self.size * self.copies} entries on chip, the schedule reaches entry {k}; "
                "bound the loops in its index"
            )
        copy, rest = divmod(k, self.size)
        return self.bases[copy] + rest

    @property
    def rotates(self) -> bool:
        """True if each execution of one load fills all of it, so that the next tile may have another address."""
        return self.mem in _ROTATING and self.writers == [self.loops]


_ROTATING = (Mem.INP, Mem.WGT, Mem.PAR)


@dataclass
class _Group:
    """Tensors that share their entries because each is computed in place from its predecessor."""

    locations: list[Location]
    start: int
    end: int
    bases: list[int] = field(default_factory=list)
    source: bool = False  # a tensor operand of the ALU

    @property
    def size(self) -> int:
        """Entries of one copy."""
        return self.locations[0].size

    @property
    def copies(self) -> int:
        """Copies, one per virtual thread."""
        return self.locations[0].copies


class Storage:
    """Assigns the addresses of all tensors on chip of one function.

    `slots` are the wanted numbers of slots by tensor; by default a tensor that rotates has two if virtual threads share
    it, else one per thread. Each gets as many as fit.
    """

    def __init__(self, locations: Iterable[Location], cfg: Config, placement: Placement, slots: Mapping[str, int]):
        self.cfg, self.placement, self.slots = cfg, placement, slots
        self._groups: dict[Location, _Group] = {}
        for location in locations:
            if location.mem is not None and location.accesses:
                location.size = -(-location.elements // (location.copies * entry_elements(cfg, location.mem)))
                self._groups[location] = _Group([location], *location.alive())
        self._threads = max((location.copies for location in self._groups), default=1)

    def join(self, source: Location, target: Location, time: int) -> bool:
        """Let instruction scope `time` compute `target` in the entries of `source`, if that loses no value."""
        a, b = self._groups[source], self._groups[target]
        if a is b:
            return True
        fits = (source.mem, source.elements, source.copies) == (target.mem, target.elements, target.copies)
        if not fits or a.end != time or b.start != time:
            return False
        a.locations += b.locations
        a.end, a.source = b.end, a.source or b.source
        for location in b.locations:
            self._groups[location] = a
        return True

    def read_by_alu(self, locations: Iterable[Location]) -> None:
        """Mark tensors as second operands: micro-ops address those with the bits of an input index."""
        for location in locations:
            self._groups[location].source = True

    def assign(self) -> None:
        """Set the addresses. Raises `CapacityError` naming the largest tensor where they do not fit."""
        for scope, mem in SCOPES.items():
            groups = list({id(g): g for p, g in self._groups.items() if p.mem == mem}.values())
            groups.sort(key=lambda g: not g.source)  # low addresses: the input scratchpad may be the smaller one
            have, need = depth(self.cfg, mem), sum(g.size * g.copies for g in groups)
            if need > have:  # only if needed: tensors that share entries make one queue wait for another
                need = self._shared(groups)
            elif mem != Mem.ACC:
                self._rotating(groups, mem)
            elif not self._in_banks(groups):
                self._separate(groups, 0)
            if need > have:
                largest = max(groups, key=lambda g: g.size * g.copies)
                raise CapacityError(
                    f"{scope} is too small: its tiles need {need} entries, the largest is "
                    f"{largest.locations[0].name!r} with {largest.size * largest.copies} (virtual threads included), "
                    f"{self.cfg.name} has {have}; choose smaller tiles"
                )
            for group in groups:
                for location in group.locations:
                    location.bases = group.bases

    def in_use(self) -> None:
        """Mark the entries that the last thread used last in the placement."""
        for location in self._groups:
            assert location.mem is not None
            for base in location.bases:
                self.placement.use(location.mem, base, location.size)

    def _separate(self, groups: list[_Group], end: int) -> int:
        for group in groups:
            group.bases = [end + k * group.size for k in range(group.copies)]
            end += group.size * group.copies
        return end

    def _in_banks(self, groups: list[_Group]) -> bool:
        """Put the accumulators of thread k into bank k, if they fit: one thread stores while another computes.

        Operands that the ALU only reads are in the other bank, so that it reads both in one cycle.
        """
        half, sources = self.cfg.bank_depth, any(g.source for g in groups)
        if self.cfg.acc_banks < 2 or (sources and self.cfg.acc_depth > self.cfg.inp_depth):
            return False
        if self._threads < 2 and not sources:
            return False
        need = [0, 0]
        offsets: list[list[tuple[int, int]]] = []
        for group in groups:
            shared = self._threads > 1 and group.copies == 1
            banks = [int(need[1] < need[0])] if shared else [(k + group.source) % 2 for k in range(group.copies)]
            offsets.append([])
            for bank in banks:
                offsets[-1].append((bank, need[bank]))
                need[bank] += group.size
        if max(need) > half:
            return False
        start = [self.placement.region(Mem.ACC, n, b * half, b * half + half) for b, n in enumerate(need)]
        last = [self.placement.last_use(Mem.ACC, first, n) for first, n in zip(start, need)]
        if last[0] > last[1]:  # the function before ended in bank 0: its store continues there
            start = [
                self.placement.region(Mem.ACC, n, half - b * half, 2 * half - b * half) for b, n in enumerate(need)
            ]
        for group, positions in zip(groups, offsets):
            group.bases = [start[bank] + offset for bank, offset in positions]
        return True

    def _rotating(self, groups: list[_Group], mem: Mem) -> None:
        wanted, granted = {}, {}
        for group in groups:
            tensor = group.locations[0]
            several = tensor.rotates and not tensor.rows  # micro-ops could not reach a second slot of rows
            default = max(tensor.copies, min(2, self._threads))
            slots = self.slots.get(tensor.name, default)
            if self.placement.keeps(mem):  # as many as there are tiles
                sources = {id(source): source.elements for source in tensor.loaded_from}
                slots = max(slots, -(-sum(sources.values()) // (tensor.size * entry_elements(self.cfg, mem))))
            wanted[tensor] = max(tensor.copies, slots) if several else tensor.copies
            granted[tensor] = tensor.copies
        room = depth(self.cfg, mem) - sum(tensor.size * n for tensor, n in granted.items())
        growing = True
        while growing:
            growing = False
            for tensor in granted:
                if granted[tensor] < wanted[tensor] and tensor.size <= room:
                    granted[tensor], room, growing = granted[tensor] + 1, room - tensor.size, True
        total = sum(tensor.size * n for tensor, n in granted.items())
        high = depth(self.cfg, mem)
        if any(tensor.rows for tensor in granted):
            high = max(total, self.cfg.wgt_depth // self.cfg.block_in)
        end = self.placement.region(mem, total, 0, high)
        for group in groups:
            tensor = group.locations[0]
            bases = [end + k * tensor.size for k in range(granted[tensor])]
            end += tensor.size * granted[tensor]
            group.bases = bases[: tensor.copies]
            if tensor.rotates:
                tensor.slots = Slots(mem, bases, tensor.size, self.placement)

    @staticmethod
    def _shared(groups: list[_Group]) -> int:
        """Assign addresses: operands, then the largest first, each at the lowest address free during its lifetime."""
        placed: list[tuple[int, _Group]] = []
        for group in sorted(groups, key=lambda g: (not g.source, -g.size * g.copies)):
            size, base = group.size * group.copies, 0
            rivals = [(b, g) for b, g in placed if g.start <= group.end and group.start <= g.end]
            for start, other in sorted(rivals, key=lambda rival: rival[0]):
                if base + size <= start:
                    break
                base = max(base, start + other.size * other.copies)
            group.bases = [base + k * group.size for k in range(group.copies)]
            placed.append((base, group))
        return max((base + g.size * g.copies for base, g in placed), default=0)
