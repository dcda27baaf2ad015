"""Where a launch's cycles go: every cycle belongs to one instruction, and so to one operator and statement.

A cycle belongs to the instruction that the compute unit executes. While that unit has none, because its next one waits
for a token, it belongs to the instruction that another compute unit executes or, without one, to the load or store
that executes in the queue which owes the token. So the cycles of all operators add up to the launch's: a load that
overlaps the products of the previous operator costs nothing. The begin and the end of a launch belong to no operator.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..hw.isa import Mem, Op, Queue, entry_bytes, known_isa
from ..hw.units import Channel, channels, units
from ..runtime.device import WAITS, Stats, Timeline, count_work
from ..runtime.launch import Launch
from ..runtime.metrics import flagged


@dataclass
class Share:
    """The cycles and the work of the instructions of one origin in a launch.

    `name` is the name of the operator or statement, `path` the names from the outside in. `cycles` belong to it alone
    (see this module), `busy` counts the cycles by unit in which one of its instructions is the oldest that executes,
    `waits` the cycles of its instructions by `WAITS`. `work` counts instructions, micro-ops, products and
    bytes, `macs` the useful multiply-accumulates where these are known, `products` the micro-op issues of GEMM and
    DWGEMM, `ternary` those of TERNARY.
    """

    path: tuple[str, ...]
    macs: int | None = None
    cycles: int = 0
    products: int = 0
    ternary: int = 0
    work: Stats = field(default_factory=Stats)
    busy: Counter[str] = field(default_factory=Counter)
    waits: Counter[str] = field(default_factory=Counter)

    @property
    def name(self) -> str:
        """The innermost name, or "launch" for instructions that belong to no operator."""
        return self.path[-1] if self.path else "launch"

    @property
    def gemm_use(self) -> float:
        """The fraction of its cycles in which a micro-op of GEMM or DWGEMM is issued."""
        return self.products / self.cycles if self.cycles else 0.0

    @property
    def ternary_use(self) -> float:
        """The fraction of its cycles in which a micro-op of TERNARY is issued."""
        return self.ternary / self.cycles if self.cycles else 0.0

    def __add__(self, other: Share) -> Share:
        return Share(
            self.path,
            _known_sum(self.macs, other.macs),
            self.cycles + other.cycles,
            self.products + other.products,
            self.ternary + other.ternary,
            self.work + other.work,
            self.busy + other.busy,
            self.waits + other.waits,
        )

    def waited(self) -> dict[str, int]:
        """Cycles by every reason of `WAITS`."""
        return {reason: self.waits[reason] for reason in WAITS}

    def to_dict(self) -> dict[str, object]:
        """The figures as JSON-ready values, under the same names for every device."""
        work = self.work
        second = {"ternary_use": round(self.ternary_use, 4)} if Queue.TERNARY.name.lower() in self.busy else {}
        return {
            "macs": work.macs if self.macs is None else self.macs,
            "instructions": work.insns.total(),
            "micro_ops": work.uops,
            "bytes_loaded": work.bytes_loaded.total(),
            "bytes_stored": work.bytes_stored.total(),
            "cycles": self.cycles,
            "gemm_use": round(self.gemm_use, 4),
            **second,
            **{f"busy_{name}": n for name, n in self.busy.items()},
            **{f"wait_{reason}": cycles for reason, cycles in self.waited().items()},
        }


def profile(launch: Launch, timeline: Timeline, cycles: int, depth: int = 1) -> list[Share]:
    """The shares of a run of `launch` that took `cycles`, by the outermost `depth` names of their origins.

    They are in the order of their first instruction; their cycles add up to `cycles`.
    """
    origins = launch.known_origins
    paths, of = origins.paths, origins.of
    names = [unit.name for unit in units(launch.cfg)]
    shares: dict[tuple[str, ...], Share] = {}
    for path, products in zip(paths, origins.macs):
        share = shares.setdefault(path[:depth], Share(path[:depth], busy=Counter(dict.fromkeys(names, 0))))
        share.macs = _known_sum(share.macs, products)
    mine = [shares[path[:depth]] for path in paths]
    owned = owned_cycles(launch, timeline)
    _count(launch, [mine[k] for k in of])
    spent = spent_cycles(timeline)
    for number, share in enumerate(mine):
        at = of == number
        share.cycles += int(owned[at].sum())
        for queue, name in enumerate(names):
            share.busy[name] += int(spent[at & (timeline.queue == queue)].sum())
        for name, values in timeline.waits.items():
            share.waits[name] += int(values[at].sum())
    mine[0].cycles += cycles - int(owned.sum())  # of the path (): before the first and after the last instruction
    first = {id(mine[number]): at for number, at in reversed(list(zip(*np.unique(of, return_index=True))))}
    return sorted((s for s in shares.values() if id(s) in first), key=lambda share: first[id(share)])


def _known_sum(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else a + b


def spent_cycles(timeline: Timeline) -> np.ndarray:
    """Cycles from the issue of each instruction, or the end of the one before it in its queue, to its end."""
    spent = np.zeros(len(timeline.end), np.int64)
    for queue in np.unique(timeline.queue):
        at = np.flatnonzero(timeline.queue == queue)
        before = np.concatenate([[0], timeline.end[at][:-1]])
        spent[at] = timeline.end[at] - np.maximum(timeline.issue[at], before)
    return spent


def _count(launch: Launch, share_of: list[Share]) -> None:
    isa, sizes = known_isa(launch.cfg), {mem: entry_bytes(launch.cfg, mem) for mem in Mem}
    for share, fields in zip(share_of, isa.decode(launch.insn)):
        if isa.undecodable(fields):
            continue
        before = share.work.uops
        share.work.insns[isa.mnemonic(fields)] += 1
        count_work(share.work, launch.cfg, sizes, fields)
        if "wgt_out" in fields and not fields["reset"]:
            done = share.work.uops - before
            if fields["op"] == Op.TERNARY:
                share.ternary += done
            else:
                share.products += done


def owned_cycles(launch: Launch, timeline: Timeline) -> np.ndarray:
    """The cycles that belong to each instruction, int64 (n,); their sum is the end of the last on the compute queue."""
    owned = np.zeros(len(timeline.end), np.int64)
    lenders = _lenders(launch, timeline)
    order = {int(q): np.flatnonzero(timeline.queue == q) for q in np.unique(timeline.queue)}
    ends = {q: timeline.end[at] for q, at in order.items()}
    beside = _Beside(timeline, order.get(Queue.TERNARY))
    cycle = 0
    for k in order[Queue.COMPUTE].tolist():
        issue, end = int(timeline.issue[k]), int(timeline.end[k])
        for other, until in beside.pieces(cycle, issue):
            if other is not None:
                owned[other] += until - cycle
                cycle = until
                continue
            for given, queue in sorted(lenders.get(k, ())):
                for at, last in _executing(ends[queue], cycle, min(given, until)):
                    owned[order[queue][at]] += last - cycle
                    cycle = last
            owned[k] += until - cycle
            cycle = until
        owned[k] += max(end - cycle, 0)
        cycle = max(cycle, end)
    return owned


class _Beside:
    """The instructions `at` of a second compute unit, None without one; to be asked in the order of cycles."""

    def __init__(self, timeline: Timeline, at: np.ndarray | None):
        self._spans: deque[tuple[int, int, int]] = deque()
        for k in () if at is None else at.tolist():
            self._spans.append((int(timeline.issue[k]), int(timeline.end[k]), k))

    def pieces(self, cycle: int, until: int) -> Iterator[tuple[int | None, int]]:
        """The pieces of the cycles from `cycle` to `until`: the instruction, None without one, and the piece's end."""
        spans = self._spans
        while cycle < until:
            while spans and spans[0][1] <= cycle:
                spans.popleft()
            begin, end, k = spans[0] if spans else (until, until, -1)
            if begin > cycle:
                cycle = min(begin, until)
                yield None, cycle
            else:
                cycle = min(end, until)
                yield k, cycle


def _executing(ends: np.ndarray, cycle: int, until: int) -> Iterator[tuple[int, int]]:
    """(position, cycle up to which it executes) of the instructions of a queue that execute from `cycle` to `until`."""
    at = int(np.searchsorted(ends, cycle, "right"))
    while cycle < until:
        cycle = min(int(ends[at]), until)
        yield at, cycle
        at += 1


def _lenders(launch: Launch, timeline: Timeline) -> dict[int, list[tuple[int, int]]]:
    """Per instruction of the compute queue that takes tokens: when they are given, and by which queue."""
    found: dict[int, list[tuple[int, int]]] = {}
    for channel, giver, taker in tokens(launch, timeline):
        if channel.target == Queue.COMPUTE:
            found.setdefault(taker, []).append((int(timeline.end[giver]), int(channel.source)))
    return found


def tokens(launch: Launch, timeline: Timeline) -> Iterator[tuple[Channel, int, int]]:
    """Every token that is taken: its channel, the instruction that gives it, the one that takes it."""
    for channel in channels(launch.cfg):
        takes = flagged(launch, timeline, channel.target, channel.pop).tolist()
        for giver, taker in zip(flagged(launch, timeline, channel.source, channel.push).tolist(), takes):
            yield channel, giver, taker


def total(shares: Sequence[Share]) -> Share:
    """The sum of a launch's shares."""
    whole = Share(())
    for share in shares:
        whole += share
    return whole
