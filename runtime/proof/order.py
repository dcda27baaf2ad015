"""The order that holds in every legal execution of a program: vector clocks, from one run of its queues and tokens."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import NamedTuple

import numpy as np

from ...hw.errors import DeadlockError, ExecutionError, TokenError
from ...hw.units import Channel, Queue
from ..tokens import deadlock_text
from .instructions import Instructions


class TokenPair(NamedTuple):
    """A push by instruction `push` and the pop by instruction `pop` that takes it.

    `implied`: the order it makes also follows from the rest of the program.
    """

    source: Queue
    target: Queue
    push: int
    pop: int
    implied: bool


class Order:
    """One execution of `program`, and what holds in all of them.

    `topological` is the order in which the instructions ran; `clocks`, int64 (n, queues), how many instructions of each
    queue are known to be done when one is, itself included. `in_flight` are the most tokens of each channel.

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
        """Execute what can be; returns how many instructions were fetched."""
        program, heads, depth = self.program, self._heads, self.program.cfg.queue_depth
        queue_of, n = program.queue, program.n
        mine = [at.tolist() for at in program.at]
        fetched, there = 0, [0] * len(mine)
        known = [(0,) * len(mine) for _ in mine]
        before = -1
        while before != fetched + len(self.topological):
            before = fetched + len(self.topological)
            while fetched < n and there[queue_of[fetched]] - heads[queue_of[fetched]] < depth:
                there[queue_of[fetched]] += 1
                fetched += 1
            for queue, instructions in enumerate(mine):
                known[queue] = self._drain(queue, instructions, there[queue], known[queue])
        return fetched

    def _drain(self, queue: int, mine: list[int], stop: int, known: tuple[int, ...]) -> tuple[int, ...]:
        """Execute those of `mine`, the instructions of `queue`, in front of number `stop` until one waits.

        Returns what is known then.
        """
        pops, pushes, tokens, clock = self.program.pops, self.program.pushes, self._tokens, self._clock
        topological, head = self.topological, self._heads[queue]
        while head < stop:
            k = mine[head]
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
        """What is known behind the tokens that instruction `k` takes, where `known` was before."""
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
        found, cfg = {}, self.program.cfg
        positions = self.program.position
        for c, channel in enumerate(self.program.channels):
            taken = positions[self._pops[c]].tolist()
            most, worst = 0, 0
            for n, push in enumerate(self._pushes[c], 1):  # pops that must be done by then do not count
                in_flight = n - bisect_right(taken, self._clock[push][channel.target])
                if in_flight > most:
                    most, worst = in_flight, push
            found[f"{channel.source.name}->{channel.target.name}"] = most
            if most > cfg.token_depth:
                raise TokenError(
                    f"{most} tokens {channel} can be in flight at {self.program.name(worst)}; "
                    f"{cfg.name} holds at most {cfg.token_depth}",
                    worst,
                )
        return found

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
