"""Proves a program free of deadlocks and races, for every legal execution.

It runs the queues with code of its own, independent of the model's schedule (sim/model/device.py) and of the pass
that inserts the tokens (runtime/tokens.py), so that it finds their mistakes.

An instruction with a symbol counts as an access to all bytes that it touches for any value, so the proof holds for
every value.

The instructions of a queue run in order; the n-th pop of a token channel waits for its n-th push. These two
relations generate the order that holds in every legal execution. Two accesses that conflict and are
not ordered by it are a race. FINISH conflicts with everything: an instruction that it does not wait for may
still run when the host sees that the program is done.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..hw.config import Config
from ..hw.errors import ProgramError, RaceError
from ..hw.isa import SCRATCHPADS, Mem, known_isa
from ..hw.units import Channel, Queue
from .arrays import Array
from .buffer import Buffer
from .launch import Launch, Origins, check_dram
from .proof.certificate import Certificate, check, subject_of
from .proof.conflicts import Conflict, Timeline, first_conflict
from .proof.memory import (
    DramTouches,
    Executed,
    Kinds,
    Left,
    ReadUops,
    buffers_of_micro_ops,
    check_buffers,
    check_scratchpads,
    check_transfers,
    micro_ops_of,
)
from .proof.order import Instructions, Order, TokenPair, missing_edge
from .proof.steady import check_turn
from .steps import Step, turns
from .symbols import Symbol


@dataclass
class Report:
    """Result of a verification: instructions, token pairs, and most tokens in flight per channel.

    `certificate` is there where the use of memory was proved, too.
    """

    instructions: int
    pairs: list[TokenPair] = field(default_factory=list[TokenPair])
    in_flight: dict[str, int] = field(default_factory=dict[str, int])
    certificate: Certificate | None = None

    @property
    def implied(self) -> int:
        """Pairs whose order also follows from the rest of the program."""
        return sum(pair.implied for pair in self.pairs)


def verify(launch: Launch, memory: bool = False, before: Sequence[Launch] = ()) -> Report:
    """Check `launch` as `verify_instructions` does, and that it stays inside its buffers, which do not overlap.

    With `memory` also that it writes every scratchpad entry, and every byte of a temp or output buffer, before it reads
    it, and that it writes its outputs whole; else raises `UnwrittenError`. What the launches `before` write in
    scratchpads counts, too: they run right before it, the last one last.

    Also raises `EncodingError` where a buffer is not aligned to its entries, and `ProgramError` for micro-ops that no
    constant buffer holds.
    """
    left = Left.nothing(launch.cfg)
    for each in before:
        check, _ = _ordered(each, left)
        left = check.left()
    check, bases = _ordered(launch, left)
    if memory:
        check.memory(launch.buffers, bases)
        order, clocks = check.topological.astype(np.int32), check.found.clocks.astype(np.int32)
        depths = launch.cfg.queue_depth, launch.cfg.token_depth
        check.report.certificate = Certificate(*depths, subject_of(launch), order, clocks)
    return check.report


def verify_steady(steps: Sequence[Step]) -> dict[str, Report]:
    """A report per step with a steady launch, which is proved to do what its launch does after the run before.

    A certificate of it is checked; it holds after launches with certificates. Raises as `verify` and `check`, and
    `SteadyError` where it does something else.
    """
    found = dict[str, Report]()
    for turn in turns(steps):
        check_turn([(step.launch, step.steady or step.launch) for step in turn])
        for k, step in enumerate(turn):
            if step.steady is not None:
                before = [*turn[k:], *turn[:k]]
                if step.steady_certificate is not None:
                    known = [(each.launch, each.certificate) for each in before if each.certificate is not None]
                    check(step.steady, step.steady_certificate, known)
                found[step.name] = verify(step.steady, memory=True, before=[each.launch for each in before])
    return found


def _ordered(launch: Launch, left: Left) -> tuple[_Check, list[int]]:
    """(A check of `launch` that found no race, the addresses of its buffers there)."""
    launch.check_aligned()
    bases, end = list[int](), 0
    for buffer in launch.buffers:
        bases.append(-(-end // buffer.align) * buffer.align)
        end = bases[-1] + buffer.nbytes

    def read_uops(address: int, count: int) -> Array:
        k = bisect_right(bases, address) - 1
        data = launch.buffers[k].data
        if data is None:
            raise ProgramError(f"micro-ops are loaded from buffer {launch.buffers[k].name!r}, which is not constant")
        return data[address - bases[k] : address - bases[k] + 4 * count].view("<u4")

    def name(address: int) -> str:
        k = bisect_right(bases, address) - 1
        return f"{launch.buffers[k].name}+{address - bases[k]:#x}"

    words = launch.relocate(bases)
    check = _Check(launch.cfg, words, read_uops, name, left, launch.patches.symbols, launch.origins)
    check.order()
    check.transfers()
    check_dram(launch)
    check.races()
    return check, bases


def check_depths(launch: Launch, cfg: Config) -> None:
    """Raise `DeadlockError` or `TokenError` where `launch` needs deeper queues or token channels than `cfg` has.

    `cfg` may differ from the launch's configuration in what is not part of the fingerprint.
    """
    Order(Instructions(cfg, launch.insn))


def verify_instructions(
    cfg: Config,
    insn: Array,
    read_uops: Callable[[int, int], Array],
    address_name: Callable[[int], str] = hex,
) -> Report:
    """Check the instructions `insn`, uint64 (n, 2).

    `read_uops(address, count)` gives the micro-op words at a DRAM byte address, `address_name` names an address in
    messages. Raises, in this order, `ExecutionError` for an undecodable instruction or a misplaced FINISH; `TokenError`
    for more tokens in flight than `cfg.token_depth`, `DeadlockError`, `ExecutionError` for an instruction that always
    executes after FINISH, `TokenError` for tokens left over; `AccessError` for a scratchpad entry that does not exist;
    `RaceError` naming both instructions and the memory range. `ProgramError` is for unknown micro-ops, which
    the program stores itself or does not load. The work is at most one flag per instruction and scratchpad entry.
    """
    check = _Check(cfg, insn, read_uops, address_name, Left.nothing(cfg))
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
    return replace(launch, insn=insn)


class _Check:
    """The steps of a proof, in the order in which errors are raised."""

    def __init__(
        self,
        cfg: Config,
        insn: Array,
        read_uops: ReadUops,
        address_name: Callable[[int], str],
        left: Left,
        symbols: Mapping[int, Symbol] | None = None,
        origins: Origins | None = None,
    ):
        self.program = Instructions(cfg, insn, symbols, origins)
        self._read_uops, self._address_name, self._left = read_uops, address_name, left

    def order(self) -> None:
        """Run the queues, with the configuration's depth, and derive the order of instructions."""
        program = self.program
        self.found = Order(program)
        self.report = Report(program.n, self.found.pairs, self.found.in_flight)
        self.topological = np.array(self.found.topological, np.intp)
        clocks = self.found.clocks[self.topological]
        self.line = Timeline(program.of_queue[self.topological], program.position[self.topological], clocks)

    def transfers(self) -> None:
        """Check that the entries of loads and stores exist: then they have few rows in DRAM."""
        self._static = check_transfers(self.program)

    def races(self) -> None:
        """Check that every entry exists, then that conflicting accesses are ordered."""
        program = self.program
        self.dram = DramTouches(program, self.topological)
        loads = np.array([loads is not None for _, loads in micro_ops_of(program)], bool)
        loading = np.flatnonzero(loads[program.form])
        stored = self.dram.touched(self.dram.written) if len(loading) and len(self.dram.written) else ()
        for k in loading.tolist() if stored else ():
            if k in stored:
                raise ProgramError(f"{program.name(k)} loads micro-ops that the program stores: cannot be verified")
        if Queue.TERNARY in program.queues:  # its micro-ops are loaded by another queue: else they may be any
            self._ordered(buffers_of_micro_ops(program, self._static), program.form, None)
        executed = Executed(program, self.found.topological, self._static, self._read_uops, self._left)
        self.kinds, self.kind, self._words = executed.kinds, executed.kind, executed.words
        self._ordered(self.kinds, self.kind, self.dram)
        self._at_finish()

    def memory(self, buffers: Sequence[Buffer], bases: Sequence[int]) -> None:
        """Check that all accesses read written values; `races` must have found none."""
        check_scratchpads(self.program, self.topological, self.kinds, self.kind, self._left)
        check_buffers(self.program, self.topological, buffers, bases)

    def left(self) -> Left:
        """What is on chip afterwards; `races` must have found none."""
        written = {mem: entries.copy() for mem, entries in self._left.written.items()}
        for mem, entries in written.items():
            for some in self.kinds.written(mem):
                entries[some] = True
        return Left(written, self._words)

    def _at_finish(self) -> None:
        last = self.program.n - 1
        for queue, at in zip(self.program.queues, self.program.at):
            if len(at) > self.found.clocks[last, queue]:
                k, name = int(at[-1]), self.program.name
                text = f"{name(k)} may still run at {name(last)}: no token orders them (any memory)"
                raise RaceError(text, (k, last))

    def _ordered(self, kinds: Kinds, kind: Array, dram: DramTouches | None) -> None:
        """Raise `RaceError` unless a token orders every two accesses to a scratchpad, or to `dram`, that conflict."""
        found: list[tuple[Conflict, Mem | None, Array]] = []
        for mem in SCRATCHPADS:
            touches, of_entry = kinds.touches(mem, kind[self.topological])
            for events in touches.events():
                conflict = first_conflict(events, self.line)
                if conflict is not None:
                    found.append((conflict, mem, np.flatnonzero(np.isin(of_entry, conflict.classes))))
        for events in dram.events() if dram is not None else ():
            conflict = first_conflict(events, self.line)
            if conflict is not None:
                found.append((conflict, None, conflict.classes))
        if found:
            self._race(*min(found, key=lambda one: one[0][:3]))

    def _race(self, conflict: Conflict, mem: Mem | None, cells: Array) -> None:
        program = self.program
        other = int(program.at[conflict.source][conflict.position - 1])
        if mem is None:
            start, stop = self.dram.bounds[cells[0]], self.dram.bounds[cells[-1] + 1]
            where = f"DRAM {self._address_name(int(start))}..{self._address_name(int(stop) - 1)}"
        else:
            where = f"{mem.name} entries {cells[0]}..{cells[-1]}"
        first, second = sorted((other, int(self.topological[conflict.turn])))
        text = f"race on {where}: {program.name(first)} and {program.name(second)} are not ordered by any token"
        sides = [program.queues[program.queue[k]] for k in (first, second)]
        raise RaceError(f"{text}; {missing_edge(first, second, *sides)}", (first, second))
