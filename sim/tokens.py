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
from ..hw.isa import Queue
from ..runtime.tokens import CHANNELS, deadlock_text, left_over_text, popped, pushed


class Node(NamedTuple):
    """What ordering needs of an instruction: its queue, and the channels (by number) that it pops and pushes."""

    queue: Queue
    pops: tuple[int, ...]
    pushes: tuple[int, ...]


def node(queue: Queue, f: dict[str, int]) -> Node:
    """The node of the decoded instruction `f`."""
    return Node(queue, tuple(map(CHANNELS.index, popped(queue, f))), tuple(map(CHANNELS.index, pushed(queue, f))))


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
        waiting = [queue[head] if head < len(queue) else None for queue, head in zip(queues, heads)]
        text = deadlock_text(waiting, lambda k: [CHANNELS[c] for c in nodes[k].pops if not tokens[c]], at)
        raise DeadlockError(text, min(k for k in waiting if k is not None))
    if order[-1] != len(nodes) - 1:
        raise ExecutionError(f"{at(order[-1])} executes after FINISH: nothing orders FINISH behind it", order[-1])
    for c, left in enumerate(tokens):
        if left:
            last = max(k for k, n in enumerate(nodes) if c in n.pushes)
            raise TokenError(left_over_text(CHANNELS[c], left, at(last)), last)
    return order
