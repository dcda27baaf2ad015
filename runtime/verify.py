"""Proves a program free of deadlocks and races, for every legal execution.

It runs the queues with code of its own, independent of the model's schedule (sim/model/tokens.py) and of the pass
that inserts the tokens (runtime/tokens.py), so that it finds their mistakes.

An instruction with a symbol counts as an access to all that it touches for any value, so the proof holds for each.

The instructions of a queue run in order; the n-th pop of a token channel waits for its n-th push. These two
relations generate the order that holds in every legal execution. Two accesses that conflict and are
not ordered by it are a race. FINISH conflicts with everything: an instruction that it does not wait for may
still run when the host sees that the program is done.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from ..hw.config import Config
from ..hw.errors import AccessError, DeadlockError, ExecutionError, ProgramError, RaceError, TokenError
from ..hw.isa import MICRO_OPS, SCRATCHPADS, Mem, Op, known_isa, room, row_of
from ..hw.units import Channel, Queue, channels, queues
from .access import Access, DramAccess, dram_access, out_of_range, scratchpad_accesses
from .bounds import check_dram
from .launch import Launch
from .symbols.symbol import Symbol
from .tokens import LastAccess, deadlock_text, popped, pushed

_Executed = tuple[int, list[Access]]  # an instruction, and what it accesses
_UNKNOWN = -1  # index in a micro-op that the program has not loaded


@dataclass(frozen=True)
class TokenPair:
    """A push by instruction `push` and the pop by instruction `pop` that takes it.

    `implied`: the order it makes also follows from the rest of the program.
    """

    source: Queue
    target: Queue
    push: int
    pop: int
    implied: bool


@dataclass
class Report:
    """Result of a verification: instructions, token pairs, and most tokens in flight per channel."""

    instructions: int
    pairs: list[TokenPair] = field(default_factory=list)
    in_flight: dict[str, int] = field(default_factory=dict)

    @property
    def implied(self) -> int:
        """Pairs whose order also follows from the rest of the program."""
        return sum(pair.implied for pair in self.pairs)


def verify(launch: Launch) -> Report:
    """Check `launch` as `verify_instructions` does, and that it stays inside its buffers, which do not overlap.

    Also raises `EncodingError` where a buffer's `align` is not that of its entries, and `ProgramError` for
    micro-ops that no constant buffer holds.
    """
    launch.check_aligned()
    bases, end = [], 0
    for buffer in launch.buffers:
        bases.append(-(-end // buffer.align) * buffer.align)
        end = bases[-1] + buffer.nbytes

    def read_uops(address: int, count: int) -> np.ndarray:
        k = bisect_right(bases, address) - 1
        data = launch.buffers[k].data
        if data is None:
            raise ProgramError(f"micro-ops are loaded from buffer {launch.buffers[k].name!r}, which is not constant")
        return data[address - bases[k] : address - bases[k] + 4 * count].view("<u4")

    def name(address: int) -> str:
        k = bisect_right(bases, address) - 1
        return f"{launch.buffers[k].name}+{address - bases[k]:#x}"

    check = _Check(launch.cfg, launch.relocate(bases), read_uops, name, launch.patches.symbols)
    check.order()
    check.transfers()
    check_dram(launch)
    check.races()
    return check.report


def check_depths(launch: Launch, cfg: Config) -> None:
    """Raise `DeadlockError` or `TokenError` where `launch` needs deeper queues or token channels than `cfg` has.

    `cfg` may differ from the launch's configuration in what is not part of the fingerprint.
    """
    _Check(cfg, launch.insn, _no_uops, hex).order()


def _no_uops(address: int, count: int) -> np.ndarray:
    raise ProgramError(f"{count} micro-ops at {address:#x} are not known")


def verify_instructions(
    cfg: Config,
    insn: np.ndarray,
    read_uops: Callable[[int, int], np.ndarray],
    address_name: Callable[[int], str] = hex,
) -> Report:
    """Check the instructions `insn`, uint64 (n, 2).

    `read_uops(address, count)` gives the micro-op words at a DRAM byte address, `address_name` names an address in
    messages. Raises, in this order, `ExecutionError` for an undecodable instruction or a misplaced FINISH; `TokenError`
    for more tokens in flight than `cfg.token_depth`, `DeadlockError`, `ExecutionError` for an instruction that always
    executes after FINISH, `TokenError` for tokens left over; `AccessError` for a scratchpad entry that does not exist;
    `RaceError` naming both instructions and the memory range. `ProgramError` is for micro-ops that are not known: those
    that the program stores itself, and those that it executes without loading them. The work is at most that of one
    flag per instruction and entry of the scratchpads, whatever the loops.
    """
    check = _Check(cfg, insn, read_uops, address_name)
    check.order()
    check.transfers()
    check.races()
    return check.report


def without_pair(launch: Launch, pair: TokenPair) -> Launch:
    """A copy of `launch` without the push and the pop of `pair`."""
    fmt = known_isa(launch.cfg).formats["FINISH"]
    insn = launch.insn.copy()
    channel = Channel(pair.source, pair.target)
    for index, flag in ((pair.push, channel.push), (pair.pop, channel.pop)):
        insn[index, 0] &= ~np.uint64(1 << fmt.fields[flag].lo)
    return Launch(launch.cfg, launch.name, insn, launch.reloc, launch.buffers, patches=launch.patches)


def _micro_ops(f: Mapping[str, int]) -> tuple[Mem | None, Mem | None]:
    """The scratchpads whose micro-ops the decoded instruction `f` executes, and loads."""
    row = row_of(f["op"], f.get("mem"))
    return row.executes, row.loads if row.loads in MICRO_OPS else None


class _Check:
    def __init__(
        self,
        cfg: Config,
        insn: np.ndarray,
        read_uops: Callable,
        address_name: Callable,
        symbols: Mapping[int, Symbol] | None = None,
    ):
        self.cfg, self.isa, self.address_name = cfg, known_isa(cfg), address_name
        self.read_uops, self.symbols = read_uops, symbols or {}
        self.queues, self.channels = queues(cfg), channels(cfg)
        self.insns = self.isa.decode(insn)
        self.queue_of: list[Queue] = []
        for k, f in enumerate(self.insns):
            reason = self.isa.undecodable(f)
            if reason:
                raise ExecutionError(f"{self.at(k)}: {reason}", k)
            self.queue_of.append(self.isa.queue(f))
        finishes = [k for k, f in enumerate(self.insns) if f["op"] == Op.FINISH]
        if finishes != [len(self.insns) - 1]:
            found = f"FINISH at {finishes}" if finishes else "no FINISH"
            raise ExecutionError(f"program has {found}: must have exactly one, as its last instruction")
        self.report = Report(len(self.insns))
        self.position: list[int] = [0] * len(self.insns)  # in its queue, from 1
        self.clock: list[list[int]] = [
            [] for _ in self.insns
        ]  # per queue, how many of its instructions are known to be done
        self.topological: list[int] = []
        self.pushes: dict[Channel, list[int]] = {channel: [] for channel in self.channels}

    def at(self, k: int) -> str:
        moved = f" + {self.symbols[k]}" if k in self.symbols else ""
        return f"instruction {k} ({self.isa.disassemble(self.insns[k])}{moved})"

    def order(self) -> None:
        """Run the queues, with the configuration's depth, and derive the order of instructions."""
        waiting: list[deque[int]] = [deque() for _ in self.queues]
        tokens: dict[Channel, deque[int]] = {channel: deque() for channel in self.channels}
        pops: dict[Channel, list[int]] = {channel: [] for channel in self.channels}
        known = [[0] * len(self.queues) for _ in self.queues]
        fetched, done = 0, [0] * len(self.queues)
        progress = True
        while progress:
            progress = False
            while fetched < len(self.insns) and len(waiting[self.queue_of[fetched]]) < self.cfg.queue_depth:
                waiting[self.queue_of[fetched]].append(fetched)
                fetched += 1
                progress = True
            for queue in self.queues:
                while waiting[queue] and self._ready(waiting[queue][0], queue, tokens):
                    k = waiting[queue].popleft()
                    done[queue] += 1
                    self.position[k] = done[queue]
                    self._execute(k, queue, tokens, pops, known[queue])
                    progress = True
        self._in_flight(pops)
        if fetched < len(self.insns) or any(waiting):
            self._deadlock(waiting, tokens, fetched)
        self._after_finish()
        left = {c: len(t) for c, t in tokens.items() if t}
        if left:
            channel, n = next(iter(left.items()))
            k = tokens[channel][0]
            raise TokenError(f"{n} tokens {channel} are never taken; first pushed by {self.at(k)}", k)

    def _ready(self, k: int, queue: Queue, tokens: dict) -> bool:
        return all(tokens[channel] for channel in popped(self.channels, queue, self.insns[k]))

    def _execute(self, k: int, queue: Queue, tokens: dict, pops: dict, known: list[int]) -> None:
        f, taken = self.insns[k], []
        for channel in popped(self.channels, queue, f):
            taken.append((channel, tokens[channel].popleft()))
            pops[channel].append(k)
        before = list(known)
        for _, p in taken:
            known[:] = map(max, known, self.clock[p])
        for n, (channel, p) in enumerate(taken):
            others = [self.clock[q] for m, (_, q) in enumerate(taken) if m != n]
            rest = max([before[channel[0]], *(clock[channel[0]] for clock in others)])
            self.report.pairs.append(TokenPair(channel[0], channel[1], p, k, rest >= self.position[p]))
        known[queue] = self.position[k]
        self.clock[k] = list(known)
        self.topological.append(k)
        for channel in pushed(self.channels, queue, f):
            tokens[channel].append(k)
            self.pushes[channel].append(k)

    def _deadlock(self, waiting: list, tokens: dict, fetched: int) -> None:
        def missing(k: int) -> list[Channel]:
            return [c for c in popped(self.channels, self.queue_of[k], self.insns[k]) if not tokens[c]]

        heads = [queue[0] if queue else None for queue in waiting]
        text = deadlock_text(zip(self.queues, heads), missing, self.at)
        if fetched < len(self.insns):
            text += (
                f"; fetch waits for space in queue {self.queue_of[fetched].name}, which holds {self.cfg.queue_depth}"
            )
        raise DeadlockError(text, min(k for k in heads if k is not None))

    def _in_flight(self, pops: dict[Channel, list[int]]) -> None:
        for channel in self.channels:
            taken = [self.position[k] for k in pops[channel]]
            most, worst = 0, 0
            for n, push in enumerate(self.pushes[channel], 1):  # pops that must be done by then do not count
                in_flight = n - bisect_right(taken, self.clock[push][channel.target])
                if in_flight > most:
                    most, worst = in_flight, push
            self.report.in_flight[f"{channel[0].name}->{channel[1].name}"] = most
            if most > self.cfg.token_depth:
                raise TokenError(
                    f"{most} tokens {channel} can be in flight at {self.at(worst)}; "
                    f"{self.cfg.name} holds at most {self.cfg.token_depth}",
                    worst,
                )

    def _after_finish(self) -> None:
        last = len(self.insns) - 1
        queue, position = self.queue_of[last], self.position[last]
        for k in self.topological:
            if k != last and self.clock[k][queue] >= position:
                raise ExecutionError(f"{self.at(k)} executes after FINISH: it waits for a token that FINISH pushes", k)

    def _executed(self) -> Iterator[_Executed]:
        """Every instruction in an order in which it may execute, with its accesses to scratchpads."""
        unknown = np.full((self.cfg.uop_depth, 3), _UNKNOWN, np.int64)  # a device keeps those of the program before
        known = {mem: unknown.copy() for mem in MICRO_OPS}
        for k in self.topological:
            f = self.insns[k]
            executed, (mem, loaded) = unknown[:0], _micro_ops(f)
            if mem is not None:
                if not f["uop_bgn"] <= f["uop_end"] <= self.cfg.uop_depth:
                    text = f"executes micro-ops {f['uop_bgn']}..{f['uop_end'] - 1}: must be among 0.."
                    raise AccessError(f"{self.at(k)} {text}{self.cfg.uop_depth - 1}", k)
                executed = known[mem][f["uop_bgn"] : f["uop_end"]]
                if f["iter_out"] and f["iter_in"] and (executed[:, 0] == _UNKNOWN).any():
                    text = f"micro-ops that no LOAD.{mem.name} loads: cannot be verified"
                    raise ProgramError(f"{self.at(k)} executes {text}")
            accesses = scratchpad_accesses(self.cfg, f, executed)
            self._check_range(k, accesses)
            if loaded is not None and f["x_size"]:
                self._load_uops(k, known[loaded])
            yield k, accesses

    def _micro_ops(self) -> Iterator[_Executed]:
        """As `_executed`, of the buffers of micro-ops alone: what these hold is not asked."""
        for k in self.topological:
            f = self.insns[k]
            mem, loaded = _micro_ops(f)
            if mem is not None and f["iter_out"] and f["iter_in"]:
                yield k, [Access(mem, False, slice(f["uop_bgn"], f["uop_end"]))]
            elif loaded is not None:
                yield k, scratchpad_accesses(self.cfg, f, np.zeros((0, 3), np.int64))

    def _check_range(self, k: int, accesses: list[Access]) -> None:
        problem = out_of_range(self.cfg, accesses)
        if problem:
            raise AccessError(f"{self.at(k)} {problem}", k)

    def transfers(self) -> None:
        """Check that the entries of loads and stores exist: then they have few rows in DRAM."""
        for k, f in enumerate(self.insns):
            self._check_range(k, scratchpad_accesses(self.cfg, f, np.zeros((0, 3), np.int64)))

    def races(self) -> None:
        """Check that every entry exists, then that conflicting accesses are ordered."""
        accesses = [dram_access(self.cfg, f, self.symbols.get(k)) for k, f in enumerate(self.insns)]
        dram = _DramCells(len(self.queues), accesses)
        for k, f in enumerate(self.insns):
            if _micro_ops(f)[1] is not None and dram.cells(k) is not None:
                raise ProgramError(f"{self.at(k)} loads micro-ops that the program stores: cannot be verified")
        by_position = {(self.queue_of[k], self.position[k]): k for k in range(len(self.insns))}
        if Queue.TERNARY in self.queues:  # its micro-ops are loaded by another queue: else they may be any
            self._ordered(self._micro_ops(), None, by_position)
        for _ in self._executed():
            pass  # an entry that does not exist is named before any race
        self._ordered(self._executed(), dram, by_position)
        last = len(self.insns) - 1
        for queue, n in Counter(self.queue_of).items():
            if n > self.clock[last][queue]:
                k = by_position[queue, n]
                text = f"{self.at(k)} may still run at {self.at(last)}: no token orders them (any memory)"
                raise RaceError(text, (k, last))

    def _ordered(self, executed: Iterator[_Executed], dram: _DramCells | None, by_position: Mapping) -> None:
        """Raise `RaceError` unless a token orders every two accesses of `executed`, or of `dram`, that conflict."""
        memories = {mem: LastAccess(len(self.queues), room(self.cfg, mem)) for mem in SCRATCHPADS}
        for k, accesses in executed:
            queue, cells = self.queue_of[k], dram and dram.cells(k)
            touched = [(memories[a.mem], a) for a in accesses]
            if dram is not None and cells is not None:
                touched.append((dram.memory, cells))
            for memory, a in touched:
                for source, position in enumerate(memory.conflicts(queue, a.write, a.entries)):
                    if position > self.clock[k][source]:
                        cells = memory.where(source, position, a.write, a.entries)
                        self._race(by_position[self.queues[source], position], k, memory, a, cells, dram)
            for memory, a in touched:
                memory.note(queue, self.position[k], a.write, a.entries)

    def _load_uops(self, k: int, uops: np.ndarray) -> None:
        f = self.insns[k]
        try:
            words = self.read_uops(f["dram_base"] * 4, f["x_size"])
        except ProgramError as exc:
            raise ProgramError(f"{self.at(k)}: {exc}") from None
        fields = self.isa.uop.decode(np.asarray(words, np.uint64)[:, None])
        columns = [fields["dst"], fields["src"], fields["wgt"]]
        uops[f["sram_base"] : f["sram_base"] + f["x_size"]] = np.stack(columns, axis=1)

    def _race(
        self, first: int, second: int, memory: LastAccess, a: Access, cells: np.ndarray, dram: _DramCells | None
    ) -> None:
        if dram is not None and memory is dram.memory:
            start, stop = dram.bounds[cells[0]], dram.bounds[cells[-1] + 1]
            where = f"DRAM {self.address_name(int(start))}..{self.address_name(int(stop) - 1)}"
        else:
            where = f"{a.mem.name} entries {cells[0]}..{cells[-1]}"
        first, second = sorted((first, second))
        text = f"race on {where}: {self.at(first)} and {self.at(second)} are not ordered by any token"
        raise RaceError(text, (first, second))


class _DramCells:
    """DRAM cut at every boundary of an access, so that a program's accesses are sets of few cells."""

    def __init__(self, queues: int, accesses: list[DramAccess | None]):
        self._accesses = accesses
        spans = [a.spans() for a in dict.fromkeys(accesses) if a is not None]
        self.bounds = np.unique(np.concatenate([s.reshape(-1) for s in spans])) if spans else np.zeros(1, np.int64)
        self.memory = LastAccess(queues, len(self.bounds))
        self._written = np.zeros(len(self.bounds), bool)
        for k, a in enumerate(accesses):
            if a is not None and a.write:
                self._written[self._index(k)] = True

    def _index(self, k: int) -> np.ndarray:
        a = self._accesses[k]
        assert a is not None
        first, last = np.searchsorted(self.bounds, a.spans()).T
        longest = int((last - first).max())
        cells = first[:, None] + np.arange(longest)
        return np.unique(cells[cells < last[:, None]])

    def cells(self, k: int) -> Access | None:
        """The cells that instruction `k` accesses among those that some instruction writes; None for none."""
        a = self._accesses[k]
        if a is None:
            return None
        index = self._index(k)
        index = index if a.write else index[self._written[index]]
        return Access(Mem.OUT, a.write, index) if len(index) else None
