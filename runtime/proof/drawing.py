"""A race as a drawing in text: both instructions, their queues, the tokens around them, and the one that is missing."""

from __future__ import annotations

from collections.abc import Sequence

from ...hw.units import Queue, between, connected
from ..launch import Launch
from .instructions import Instructions
from .order import Order, TokenPair

_ROWS = 16  # of instructions that a drawing has, besides the two
_WIDTH = 34  # characters of a queue's column


def missing_edge(first: int, then: int, source: Queue, target: Queue) -> str:
    """The token that would order instruction `first` of queue `source` before `then` of `target`."""
    way = f"{source.name} -> {target.name}"
    if not connected(source, target):
        way = f"{source.name} -> {between(source, target).name} -> {target.name}"
    return f"missing: a token {way}, given by {first} or behind it, taken by {then} or before it"


def drawn(launch: Launch, pair: tuple[int, int]) -> str:
    """Lines that show why the instructions `pair` of `launch`, whose tokens are well counted, have no order.

    A column per queue; a row per instruction that is one of the two, or that gives or takes a token between them.
    """
    program = Instructions(launch.cfg, launch.insn, launch.patches.symbols, launch.origins)
    first, then = pair
    pairs = Order(program).pairs
    sides = program.queues[program.queue[first]], program.queues[program.queue[then]]
    ways = {*sides} | ({between(*sides)} if not connected(*sides) and sides[0] != sides[1] else set())
    shown = sorted({k for p in pairs if {p.source, p.target} <= ways for k in (p.push, p.pop) if first <= k <= then})
    left = len(shown) - _ROWS
    if left > 0:
        shown = shown[: _ROWS // 2] + shown[-_ROWS // 2 :]
    lines = [" " * 9 + "".join(f"{queue.name:<{_WIDTH}}" for queue in program.queues).rstrip()]
    for k in sorted({first, then, *shown}):
        lines.append(_row(program, k, k in pair, pairs))
    if left > 0:
        lines.insert(2 + _ROWS // 2, f"         ... {left} more that give or take tokens between them")
    return "\n".join([*lines, missing_edge(first, then, *sides)])


def _row(program: Instructions, k: int, marked: bool, pairs: Sequence[TokenPair]) -> str:
    text = program.isa.mnemonic(program.decoded(k))
    text += "".join(f" <- {p.source.name} {p.push}" for p in pairs if p.pop == k)
    text += "".join(f" -> {p.target.name} {p.pop}" for p in pairs if p.push == k)
    return f"{'>' if marked else ' '}{k:>7} {' ' * (_WIDTH * program.queue[k])}{text}"
