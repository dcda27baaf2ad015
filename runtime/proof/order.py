"""The order that holds in every legal execution of a program: vector clocks, from one run of its queues and tokens.

Instructions that differ only in tokens or address are decoded once. `drawn` shows a race as text: both instructions,
their queues, the tokens around them, and the missing token.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ...hw.config import Config
from ...hw.errors import DeadlockError, ExecutionError, TokenError
from ...hw.isa import FLAGS, Op, instruction, known_isa
from ...hw.units import Channel, Queue, absent_flags, between, channels, connected, queues
from ..arrays import Array
from ..device import TRANSFERS
from ..launch import Launch, Origins
from ..symbols import Symbol
from ..tokens import deadlock_text

_ROWS = [[instruction(op, mem) for mem in range(8)] for op in range(8)]
_QUEUES = np.array([[-1 if row is None else row.queue for row in rows] for rows in _ROWS], np.int64)
_DRAWN = 16  # instructions between the two in a drawing
_WIDTH = 34  # characters of a queue's column


class Instructions:
    """The instructions `insn`, uint64 (n, 2), of a program that ends with its only FINISH.

    Per instruction: `form` is its number in `forms`, decoded instructions without token flags and DRAM address; `queue`
    its queue and `position` its place there, from 1; `pops` and `pushes` the numbers of its channels in `channels`;
    `op` its opcode; `mem` (memory id) and `dram_base` are meaningless without an address. `at` are the instructions of
    each queue. `origins` name operators in messages.

    Raises `ExecutionError` for an instruction that cannot be decoded, and for a missing or misplaced FINISH.
    """

    def __init__(
        self,
        cfg: Config,
        insn: Array,
        symbols: Mapping[int, Symbol] | None = None,
        origins: Origins | None = None,
    ):
        self.cfg, self.isa, self.insn, self.symbols = cfg, known_isa(cfg), insn, symbols or {}
        self._origins = origins
        self.queues, self.channels = queues(cfg), channels(cfg)
        self.n = len(insn)
        low = insn[:, 0]
        fields = self.isa.formats["LOAD"].fields
        flag_bits = [fields[flag].lo for flag in FLAGS]
        mask = np.uint64(sum(1 << bit for bit in flag_bits))
        address = np.uint64(((1 << fields["dram_base"].bits) - 1) << fields["dram_base"].lo)
        dropped = np.where(TRANSFERS[(low & np.uint64(7)).astype(np.intp)], mask | address, mask)
        self.dram_base = (low & address) >> np.uint64(fields["dram_base"].lo)
        self.form, words = _numbered(low & ~dropped, insn[:, 1])
        self.forms = self.isa.decode(words)
        flags = np.zeros(self.n, np.int64)
        for k, bit in enumerate(flag_bits):
            flags |= (low >> np.uint64(bit) & np.uint64(1)).astype(np.int64) << k
        self._check_decodable(flags)
        self.op = (low & np.uint64(7)).astype(np.intp)
        self.mem = (low >> np.uint64(fields["mem"].lo) & np.uint64(7)).astype(np.intp)
        self.of_queue = _QUEUES[self.op, self.mem]
        self._check_finish()
        self.queue: list[int] = self.of_queue.tolist()
        self.at = [np.flatnonzero(self.of_queue == queue) for queue in self.queues]
        self.position = np.zeros(self.n, np.int64)
        for mine in self.at:
            self.position[mine] = np.arange(1, len(mine) + 1)
        key: list[int] = (self.of_queue * (1 << len(FLAGS)) + flags).tolist()
        pops, pushes = self._named()
        self.pops = [pops[k] for k in key]
        self.pushes = [pushes[k] for k in key]

    def _named(self) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
        """The channels that an instruction pops, and pushes, by its queue and flags."""
        sides: tuple[list[tuple[int, ...]], list[tuple[int, ...]]] = ([], [])
        channels = [
            (n, c.source, c.target, FLAGS.index(c.push), FLAGS.index(c.pop)) for n, c in enumerate(self.channels)
        ]
        for queue in self.queues:
            for flags in range(1 << len(FLAGS)):
                sides[0].append(tuple(n for n, _, target, _, pop in channels if target == queue and flags >> pop & 1))
                sides[1].append(tuple(n for n, source, _, push, _ in channels if source == queue and flags >> push & 1))
        return sides

    def _check_decodable(self, flags: Array) -> None:
        wrong = np.array([self.isa.undecodable(f) is not None for f in self.forms], bool)
        absent, nowhere = np.zeros(len(self.forms), np.int64), {q: absent_flags(self.cfg, q) for q in self.queues}
        bits = {q: sum(1 << n for n, flag in enumerate(FLAGS) if flag in nowhere[q]) for q in self.queues}
        for k in np.flatnonzero(~wrong).tolist():
            absent[k] = bits[Queue(_QUEUES[self.forms[k]["op"], self.forms[k].get("mem", 0)])]
        for k in np.flatnonzero(wrong[self.form] | (flags & absent[self.form] != 0)).tolist():
            raise ExecutionError(f"{self.name(k)}: {self.isa.undecodable(self.decoded(k))}", k)

    def _check_finish(self) -> None:
        ends = np.array([f["op"] == Op.FINISH for f in self.forms], bool)
        finishes = np.flatnonzero(ends[self.form]).tolist() if self.n else []
        if finishes != [self.n - 1]:
            found = f"FINISH at {finishes}" if finishes else "no FINISH"
            raise ExecutionError(f"program has {found}: must have exactly one, as its last instruction")

    def decoded(self, k: int) -> dict[str, int]:
        """The fields of instruction `k`."""
        return self.isa.decode(self.insn[k : k + 1])[0]

    def name(self, k: int) -> str:
        """Instruction `k` for a message, with the operator that it is for."""
        moved = f" + {self.symbols[k]}" if k in self.symbols else ""
        path = self._origins.paths[int(self._origins.of[k])] if self._origins else ()
        of = f" of {path[0]}" if path else ""
        return f"instruction {k} ({self.isa.disassemble(self.decoded(k))}{moved}){of}"


def _numbered(low: Array, high: Array) -> tuple[Array, Array]:
    """(the number of each pair of words, from 0 in the order of first appearance; the pairs, uint64 (m, 2))."""
    known: dict[tuple[int, int], int] = {}
    number = [known.setdefault(pair, len(known)) for pair in zip(low.tolist(), high.tolist())]
    return np.array(number, np.intp), np.array(list(known), np.uint64).reshape(-1, 2)


class TokenPair(NamedTuple):
    """A push by instruction `push` and the pop by instruction `pop` that takes it.

    `implied`: the rest of the program has the same order without it.
    """

    source: Queue
    target: Queue
    push: int
    pop: int
    implied: bool


class Order:
    """One execution of `program`, and the order that all executions share.

    `topological` is the order in which the instructions ran; `clocks`, int64 (n, queues), the number of instructions of
    each queue that are done when an instruction is done, itself included. `in_flight` are the most tokens per channel.

    Raises, with the depths of the program's configuration, `TokenError` for more tokens in flight, `DeadlockError`,
    `ExecutionError` for an instruction that always executes after FINISH, `TokenError` for tokens left over.
    """

    def __init__(self, program: Instructions):
        self.program = program
        self.topological: list[int] = []
        self.pairs: list[TokenPair] = []
        self._clock: list[tuple[int, ...]] = [()] * program.n  # without the instruction itself
        self._tokens: list[deque[int]] = [deque() for _ in program.channels]
        self._pushes: list[list[int]] = [[] for _ in program.channels]
        self._pops: list[list[int]] = [[] for _ in program.channels]
        self._heads = [0] * len(program.queues)
        self._positions: list[int] = program.position.tolist()
        fetched = self._run()
        self.in_flight = self._most_in_flight()
        if len(self.topological) < program.n:
            self._deadlock(fetched)
        self.clocks = np.array(self._clock, np.int64).reshape(program.n, -1)
        self.clocks[np.arange(program.n), program.of_queue] = program.position
        self._after_finish()
        self._left_over()

    def _run(self) -> int:
        """Execute until no queue can go on. Returns the number of fetched instructions."""
        program, heads, depth = self.program, self._heads, self.program.cfg.queue_depth
        queue_of, n = program.queue, program.n
        instructions_of = [at.tolist() for at in program.at]
        fetched, arrived = 0, [0] * len(instructions_of)
        known = [(0,) * len(instructions_of) for _ in instructions_of]
        before = -1
        while before != fetched + len(self.topological):
            before = fetched + len(self.topological)
            while fetched < n and arrived[queue_of[fetched]] - heads[queue_of[fetched]] < depth:
                arrived[queue_of[fetched]] += 1
                fetched += 1
            for queue, instructions in enumerate(instructions_of):
                known[queue] = self._drain(queue, instructions, arrived[queue], known[queue])
        return fetched

    def _drain(self, queue: int, instructions: list[int], stop: int, known: tuple[int, ...]) -> tuple[int, ...]:
        """Execute `instructions` of `queue` up to number `stop`, exclusive, until one waits. Returns the clock then."""
        pops, pushes, tokens, clock = self.program.pops, self.program.pushes, self._tokens, self._clock
        topological, head = self.topological, self._heads[queue]
        while head < stop:
            k = instructions[head]
            takes = pops[k]
            if takes:
                if not all(tokens[c] for c in takes):
                    break
                known = self._take(k, takes, known)
            head += 1
            clock[k] = known
            topological.append(k)
            for c in pushes[k]:
                tokens[c].append(k)
                self._pushes[c].append(k)
        self._heads[queue] = head
        return known

    def _take(self, k: int, takes: tuple[int, ...], known: tuple[int, ...]) -> tuple[int, ...]:
        """The clock after instruction `k` took its tokens; `known` is the clock before."""
        program, clock, positions = self.program, self._clock, self._positions
        pushers = [self._tokens[c].popleft() for c in takes]
        learnt = list(map(max, known, *(clock[push] for push in pushers)))
        for c, push in zip(takes, pushers):
            self._pops[c].append(k)
            source, target = program.channels[c]
            position = positions[push]
            implied = known[source] >= position or any(clock[p][source] >= position for p in pushers if p != push)
            self.pairs.append(TokenPair(source, target, push, k, implied))
            learnt[source] = max(learnt[source], position)
        return tuple(learnt)

    def _deadlock(self, fetched: int) -> None:
        program = self.program

        def missing(k: int) -> list[Channel]:
            return [program.channels[c] for c in program.pops[k] if not self._tokens[c]]

        heads = [
            int(at[head]) if head < len(at) and at[head] < fetched else None
            for at, head in zip(program.at, self._heads)
        ]
        text = deadlock_text(zip(program.queues, heads), missing, program.name)
        if fetched < program.n:
            full = program.queues[program.queue[fetched]].name
            text += f"; fetch waits for space in queue {full}, which holds {program.cfg.queue_depth}"
        raise DeadlockError(text, min(k for k in heads if k is not None))

    def _most_in_flight(self) -> dict[str, int]:
        most_by_channel, cfg = dict[str, int](), self.program.cfg
        positions = self.program.position
        for c, channel in enumerate(self.program.channels):
            taken = positions[self._pops[c]].tolist()
            most, worst = 0, 0
            for n, push in enumerate(self._pushes[c], 1):  # pops that must be done by then do not count
                in_flight = n - bisect_right(taken, self._clock[push][channel.target])
                if in_flight > most:
                    most, worst = in_flight, push
            most_by_channel[f"{channel.source.name}->{channel.target.name}"] = most
            if most > cfg.token_depth:
                raise TokenError(
                    f"{most} tokens {channel} can be in flight at {self.program.name(worst)}; "
                    f"{cfg.name} holds at most {cfg.token_depth}",
                    worst,
                )
        return most_by_channel

    def _after_finish(self) -> None:
        last = self.program.n - 1
        behind = self.clocks[:, self.program.queue[last]] >= self.program.position[last]
        if behind.sum() > 1:
            k = next(k for k in self.topological if k != last and behind[k])
            text = f"{self.program.name(k)} executes after FINISH: it waits for a token that FINISH pushes"
            raise ExecutionError(text, k)

    def _left_over(self) -> None:
        for channel, left in zip(self.program.channels, self._tokens):
            if left:
                k = left[0]
                text = f"{len(left)} tokens {channel} are never taken; first pushed by {self.program.name(k)}"
                raise TokenError(text, k)


def missing_edge(first: int, then: int, source: Queue, target: Queue) -> str:
    """The token that would order instruction `first` of queue `source` before `then` of `target`."""
    way = f"{source.name} -> {target.name}"
    if not connected(source, target):
        way = f"{source.name} -> {between(source, target).name} -> {target.name}"
    return f"missing: a token {way}, given by {first} or behind it, taken by {then} or before it"


def drawn(launch: Launch, pair: tuple[int, int]) -> str:
    """Lines that show why the instructions `pair` of `launch`, whose tokens are well counted, have no order.

    A column per queue; a row for both instructions, and for each instruction that gives or takes a token between them.
    """
    program = Instructions(launch.cfg, launch.insn, launch.patches.symbols, launch.origins)
    first, then = pair
    pairs = Order(program).pairs
    sides = program.queues[program.queue[first]], program.queues[program.queue[then]]
    ways = {*sides}
    if not connected(*sides) and sides[0] != sides[1]:
        ways.add(between(*sides))
    shown = sorted({k for p in pairs if {p.source, p.target} <= ways for k in (p.push, p.pop) if first <= k <= then})
    left = len(shown) - _DRAWN
    if left > 0:
        shown = shown[: _DRAWN // 2] + shown[-_DRAWN // 2 :]
    lines = [" " * 9 + "".join(f"{queue.name:<{_WIDTH}}" for queue in program.queues).rstrip()]
    for k in sorted({first, then, *shown}):
        lines.append(_row(program, k, k in pair, pairs))
    if left > 0:
        lines.insert(2 + _DRAWN // 2, f"         ... {left} more that give or take tokens between them")
    return "\n".join([*lines, missing_edge(first, then, *sides)])


def _row(program: Instructions, k: int, marked: bool, pairs: Sequence[TokenPair]) -> str:
    text = program.isa.mnemonic(program.decoded(k))
    text += "".join(f" <- {p.source.name} {p.push}" for p in pairs if p.pop == k)
    text += "".join(f" -> {p.target.name} {p.pop}" for p in pairs if p.push == k)
    return f"{'>' if marked else ' '}{k:>7} {' ' * (_WIDTH * program.queue[k])}{text}"
