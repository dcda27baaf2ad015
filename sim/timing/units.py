"""Command queues, tokens, and the load unit in the timing model (hw/rtl/fifo.py, hw/rtl/load.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ...hw.rtl.latencies import TOKEN_LATENCY
from ...hw.units import POP_PREV, PUSH_PREV, Queue
from .mover import Mover
from .program import Columns
from .read_port import NEVER


class Channel:
    """Tokens from one unit to another: cycles from which each can be taken."""

    def __init__(self) -> None:
        self.ready: list[int] = []
        self.taken = 0
        self.consumer: Unit | None = None

    def push(self, cycle: int) -> None:
        """A token is given in `cycle`."""
        self.ready.append(cycle + TOKEN_LATENCY)
        if self.consumer is not None and len(self.ready) == self.taken + 1:
            self.consumer.wake()


class Log:
    """Cycles of every instruction, -1 where nothing happened."""

    def __init__(self, count: int):
        self.arrive, self.issue, self.start, self.end = ([-1] * count for _ in range(4))
        self.token_prev, self.token_next, self.unit, self.memory, self.bank = ([0] * count for _ in range(5))


class Resumable(Protocol):
    """A part that waits for room in a queue."""

    def resume(self) -> None:
        """Continue: there is room."""
        ...


class Unit:
    """A command queue and its unit. `next` is the cycle in which the next instruction is taken, `NEVER` if unknown."""

    def __init__(self, program: Columns, queue: int, log: Log, moves: Callable[[object], bool]):
        self.order, self.work, self.log = program.order[queue], program.work, log
        self.pop_prev, self.pop_next, self.push_prev, self.push_next = program.flags
        self.moving = [moves(self.work[k]) for k in self.order]
        self.next_move = [NEVER] * (len(self.order) + 1)  # from each position on
        for at in range(len(self.order) - 1, -1, -1):
            self.next_move[at] = at if self.moving[at] else self.next_move[at + 1]
        self.arrivals: list[int] = []
        self.taken: list[int] = []  # cycle in which each was taken from the queue
        self.at = 0  # of the next one in `order`
        self.next, self.latest = NEVER, -1
        self.from_prev, self.from_next, self.to_prev, self.to_next = (Channel() for _ in range(4))
        self.busy, self._busy_to, self.token_wait, self.memory_wait = 0, 0, 0, 0
        self.idle = 0
        self.fetch: Resumable | None = None  # waits for room in the queue

    def take_from(self, channel: Channel, flag: str) -> None:
        """Instructions with the `flag` take a token of `channel`."""
        channel.consumer = self
        if flag == POP_PREV:
            self.from_prev = channel
        else:
            self.from_next = channel

    def give_to(self, channel: Channel, flag: str) -> None:
        """Instructions with the `flag` give a token to `channel`."""
        if flag == PUSH_PREV:
            self.to_prev = channel
        else:
            self.to_next = channel

    def free(self, k: int) -> int:
        """First cycle in which the unit can take instruction `k`, `NEVER` if unknown."""
        raise NotImplementedError

    def plan(self) -> None:
        """Compute `next`."""
        self.next = NEVER
        at = self.at
        if at >= len(self.arrivals):
            return
        k, head = self.order[at], self.arrivals[at]
        if head <= self.latest:
            head = self.latest + 1
        prev = tokens = head
        if self.pop_prev[k]:
            channel = self.from_prev
            if channel.taken == len(channel.ready):
                return
            if channel.ready[channel.taken] > tokens:
                prev = tokens = channel.ready[channel.taken]
        if self.pop_next[k]:
            channel = self.from_next
            if channel.taken == len(channel.ready):
                return
            if channel.ready[channel.taken] > tokens:
                tokens = channel.ready[channel.taken]
        free = self.free(k)
        if free == NEVER:
            return
        self.next = free if free > tokens else tokens
        log = self.log
        log.arrive[k] = head
        log.token_prev[k], log.token_next[k], log.unit[k] = prev - head, tokens - prev, self.next - tokens

    def lacks_prev(self) -> bool:
        """True if the next instruction waits for a token of the preceding queue."""
        if self.at >= len(self.arrivals) or not self.pop_prev[self.order[self.at]]:
            return False
        return self.from_prev.taken >= len(self.from_prev.ready)

    def lacks_next(self) -> bool:
        """True if the next instruction waits for a token of the following queue."""
        if self.at >= len(self.arrivals) or not self.pop_next[self.order[self.at]]:
            return False
        return self.from_next.taken >= len(self.from_next.ready)

    def wake(self) -> None:
        """Compute `next`, which may be known now."""
        if self.next == NEVER:
            self.plan()

    def take(self) -> int:
        """Take the next instruction with its tokens; its position."""
        k, cycle = self.order[self.at], self.next
        self.at += 1
        self.latest, self.next = cycle, NEVER
        self.taken.append(cycle)
        if self.pop_prev[k]:
            self.from_prev.taken += 1
        if self.pop_next[k]:
            self.from_next.taken += 1
        if self.fetch is not None:
            fetch, self.fetch = self.fetch, None
            fetch.resume()
        log = self.log
        log.issue[k] = cycle
        self.token_wait += log.token_prev[k] + log.token_next[k]
        return k

    def give(self, k: int, cycle: int) -> None:
        """Instruction `k` ends: its tokens."""
        if self.push_prev[k]:
            self.to_prev.push(cycle)
        if self.push_next[k]:
            self.to_next.push(cycle)

    def waited(self) -> int:
        """Cycles in which the unit waited for memory, at the end."""
        return self.memory_wait

    def occupy(self, begin: int, end: int) -> None:
        """The unit executes from `begin` to `end`, both included."""
        if end > self._busy_to:
            self.busy += end - max(begin - 1, self._busy_to)
            self._busy_to = end
            self.idle = end + 1


class Load(Unit):
    """Loads of inputs and weights."""

    def __init__(self, program: Columns, log: Log, buffer: int):
        super().__init__(program, Queue.LOAD, log, lambda _: True)
        self.mover = Mover(buffer, self._done, self.wake)

    def free(self, k: int) -> int:
        """When the mover's front is free."""
        return self.mover.free

    def step(self) -> None:
        """Take an instruction."""
        cycle = self.next
        k = self.take()
        self.mover.take(k, self.work[k], cycle)
        self.plan()

    def _done(self, k: int, first: int, cycle: int, waited: int) -> None:
        log = self.log
        log.start[k], log.end[k], log.memory[k] = first, cycle, waited
        self.memory_wait += waited
        self.occupy(log.issue[k] + 1, cycle)
        self.give(k, cycle)
