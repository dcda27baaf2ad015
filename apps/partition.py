"""The partitioner of the delegate and of the Relax pipeline: maximal sets of nodes whose graph the compiler takes.

A node is what the other runtime computes in a step: an operator of a file, a variable of a module. An importer says
which nodes can be taken. These are grouped, every group is compiled, and a group that is refused stays, which changes
the others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)
Part = TypeVar("Part")


Groups = list[tuple[bool, list[Node]]]  # whether it is taken, nodes


def grouped(
    nodes: Iterable[Node],
    needs: Callable[[Node, bool], Collection[Node | None]],
    taken: Collection[Node],
    first: bool | None = None,
) -> Groups[Node]:
    """The groups in which nodes can run one after the other: none waits for itself or for a later one.

    `needs` are the nodes that a node reads, also by whether it is taken; one that reads None is never ready, and in no
    group. Taken and other groups take turns, and each has every node of its kind that is ready by then. The first group
    is of the kind `first`, and may be empty; without it of the kind of the first node that is ready, as TFLite's
    interpreters group.
    """
    left, done, kind = list(nodes), set[Node | None](), first
    groups: Groups[Node] = []
    while left:
        group, before = list[Node](), -1
        while len(group) > before:  # again where the order of the nodes is not that of their data
            before = len(group)
            for node in list(left):
                mine = node in taken
                if kind in (None, mine) and done.issuperset(needs(node, mine)):
                    kind = mine
                    group.append(node)
                    left.remove(node)
                    done.add(node)
        if kind is None or (groups and not group):
            break  # what is left is never ready
        groups.append((kind, group))
        kind = not kind
    return groups


def partition(
    nodes: Sequence[Node],
    needs: Callable[[Node, bool], Collection[Node | None]],
    taken: Collection[Node],
    compiled: Callable[[Groups[Node]], Mapping[int, Part | str]],
    refused: Callable[[list[Node], str], None],
    first: bool | None = None,
) -> tuple[Groups[Node], dict[int, Part]]:
    """The groups of `grouped`, and the parts of those that are taken, by position.

    `compiled` makes the parts, or says why a group stays; `refused` hears of these, and all is grouped anew.
    """
    claimed = set(taken)
    while True:
        groups = grouped(nodes, needs, claimed, first)
        found = compiled(groups)
        parts = {k: part for k, part in found.items() if not isinstance(part, str)}
        if len(parts) == len(found):
            return groups, parts
        for k, why in found.items():
            if isinstance(why, str):
                refused(groups[k][1], why)
                claimed.difference_update(groups[k][1])
