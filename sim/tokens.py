"""Queues and dependence tokens: the order in which a program's instructions execute.

Each instruction waits at the head of its queue until every channel that it pops holds a token, takes one of each,
executes, and gives one to every channel that it pushes. No datum decides what waits, so the order is found before
anything executes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ..hw.errors import DeadlockError, ExecutionError, TokenError
from ..hw.isa import POP_NEXT, POP_PREV, PUSH_NEXT, PUSH_PREV, Queue


class Channel(NamedTuple):
    """Counted tokens from one queue to its neighbour."""

    source: Queue
    target: Queue

    def __str__(self) -> str:
        return f"{self.source.name} -> {self.target.name}"


CHANNELS = (
    Channel(Queue.LOAD, Queue.COMPUTE),
    Channel(Queue.COMPUTE, Queue.LOAD),
    Channel(Queue.COMPUTE, Queue.STORE),
    Channel(Queue.STORE, Queue.COMPUTE),
)


class Node(NamedTuple):
    """What ordering needs of an instruction: its queue, and the channels (by number) that it pops and pushes."""

    queue: Queue
    pops: tuple[int, ...]
    pushes: tuple[int, ...]


def node(queue: Queue, f: dict[str, int]) -> Node:
    """The node of the decoded instruction `f`."""
    previous, following = Queue(queue - 1) if queue else None, Queue(queue + 1) if queue < Queue.STORE else None
    pops = [(POP_PREV, previous), (POP_NEXT, following)]
    pushes = [(PUSH_PREV, previous), (PUSH_NEXT, following)]
    return Node(
        queue,
        tuple(CHANNELS.index((q, queue)) for flag, q in pops if f[flag] and q is not None),
        tuple(CHANNELS.index((queue, q)) for flag, q in pushes if f[flag] and q is not None),
    )


def schedule(
    nodes: Sequence[Node], depth: int, at: Callable[[int], str], rng: np.random.Generator | None = None
) -> list[int]:
    """The order in which `nodes` execute, the last of which is FINISH.

    The first in the program goes first among those that may; with `rng` any of them, so that every legal
    interleaving can come about. `at(k)` names instruction k. Raises `DeadlockError`, `TokenError` for more than `depth`
    tokens in a channel or for tokens left over, `ExecutionError` where something executes after FINISH.
    """
    queues: list[list[int]] = [[], [], []]
    for k, n in enumerate(nodes):
        queues[n.queue].append(k)
    heads, tokens, order = [0, 0, 0], [0] * len(CHANNELS), []
    while True:
        ready = []
        for queue, head in zip(queues, heads):
            if head < len(queue):
                k = queue[head]
                if all(tokens[c] for c in nodes[k].pops):
                    ready.append(k)
        if not ready:
            break
        k = min(ready) if rng is None else ready[int(rng.integers(len(ready)))]
        n = nodes[k]
        heads[n.queue] += 1
        order.append(k)
        for c in n.pops:
            tokens[c] -= 1
        for c in n.pushes:
            tokens[c] += 1
            if tokens[c] > depth:
                raise TokenError(f"{at(k)}: {tokens[c]} tokens {CHANNELS[c]}; the channel holds {depth}", k)
    if len(order) < len(nodes):
        _deadlock(nodes, queues, heads, tokens, at)
    if order[-1] != len(nodes) - 1:
        raise ExecutionError(f"{at(order[-1])} executes after FINISH: nothing orders FINISH behind it", order[-1])
    for c, left in enumerate(tokens):
        if left:
            last = max(k for k, n in enumerate(nodes) if c in n.pushes)
            raise TokenError(f"{left} tokens {CHANNELS[c]} are left over; the last is pushed by {at(last)}", last)
    return order


def _deadlock(nodes: Sequence[Node], queues: list, heads: list, tokens: list, at: Callable[[int], str]) -> None:
    parts, stuck = [], []
    for name, queue, head in zip(Queue, queues, heads):
        if head == len(queue):
            parts.append(f"{name.name} is empty")
            continue
        k = queue[head]
        stuck.append(k)
        missing = " and ".join(str(CHANNELS[c]) for c in nodes[k].pops if not tokens[c])
        parts.append(f"{name.name} waits for a token {missing} at {at(k)}")
    raise DeadlockError(f"deadlock: {'; '.join(parts)}", min(stuck))
