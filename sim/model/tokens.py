"""Queues and dependence tokens, the fast form of `order` in sim/spec.py: channels by number, each queue by its head.

Each instruction waits at the head of its queue until every channel that it pops holds a token, pops one of each,
executes, and pushes one to every channel that it names. Waiting does not depend on data, so the order is found before
anything executes, and only once for a program that runs again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ...hw.config import Config
from ...hw.errors import DeadlockError, ExecutionError, TokenError
from ...hw.units import Channel, Queue, channels, queues
from ...runtime.tokens import deadlock_text, left_over_text, popped, pushed

Choice = Callable[[list[int]], int]


class Node(NamedTuple):
    """An instruction for ordering: its queue, and the channels (by number) that it pops and pushes."""

    queue: Queue
    pops: tuple[int, ...]
    pushes: tuple[int, ...]


def node(every: Sequence[Channel], queue: Queue, f: dict[str, int]) -> Node:
    """The node of the decoded instruction `f`; a channel's number is its index in `every`."""
    return Node(queue, *(tuple(map(every.index, named(every, queue, f))) for named in (popped, pushed)))


def at_random(rng: np.random.Generator) -> Choice:
    """Any of those that may execute, so that every legal interleaving can come about."""
    return lambda ready: ready[int(rng.integers(len(ready)))]


def schedule(cfg: Config, nodes: Sequence[Node], at: Callable[[int], str], choose: Choice = min) -> list[int]:
    """The order in which `nodes` execute, the last of which is FINISH.

    `choose` picks one of those that may execute next: by default the first in the program. `at(k)` names instruction k.
    Raises `DeadlockError`, `TokenError` for more tokens in a channel than it holds or for tokens left over,
    `ExecutionError` where something executes after FINISH.
    """
    every, named = channels(cfg), queues(cfg)
    waiting: list[list[int]] = [[] for _ in named]
    for k, n in enumerate(nodes):
        waiting[n.queue].append(k)
    heads, tokens, order = [0] * len(named), [0] * len(every), []
    while True:
        ready = []
        for queue, head in zip(waiting, heads):
            if head < len(queue):
                k = queue[head]
                if all(tokens[c] for c in nodes[k].pops):
                    ready.append(k)
        if not ready:
            break
        k = choose(ready)
        n = nodes[k]
        heads[n.queue] += 1
        order.append(k)
        for c in n.pops:
            tokens[c] -= 1
        for c in n.pushes:
            tokens[c] += 1
            if tokens[c] > cfg.token_depth:
                raise TokenError(f"{at(k)}: {tokens[c]} tokens {every[c]}; the channel holds {cfg.token_depth}", k)
    if len(order) < len(nodes):
        stuck = [queue[head] if head < len(queue) else None for queue, head in zip(waiting, heads)]
        text = deadlock_text(zip(named, stuck), lambda k: [every[c] for c in nodes[k].pops if not tokens[c]], at)
        raise DeadlockError(text, min(k for k in stuck if k is not None))
    if order[-1] != len(nodes) - 1:
        raise ExecutionError(f"{at(order[-1])} executes after FINISH: nothing orders FINISH behind it", order[-1])
    for c, left in enumerate(tokens):
        if left:
            last = max(k for k, n in enumerate(nodes) if c in n.pushes)
            raise TokenError(left_over_text(every[c], left, at(last)), last)
    return order
