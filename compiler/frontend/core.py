"""Parts of every importer: nodes of a file, the reasons why one is refused, and the builder of the graph."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .. import graph as g
from ..graph import Names

_NAME_LENGTH = 40  # characters of a tensor's name
_KINDS = 20  # of refusals that are listed
_QUOTED, _NUMBERS = re.compile(r"'[^']*'"), re.compile(r"\d+")


@dataclass(eq=False)
class Node:
    """A node: its operator, its unique name, its tensors ("" where one is left out) and attributes."""

    op: str
    name: str
    inputs: list[str]
    outputs: list[str]
    attrs: dict[str, Any] = field(default_factory=dict)
    domain: str = ""
    of: str = ""  # the operator of the file that it is part of, if that is another

    def input(self, k: int) -> str:
        """Input number `k`, empty where it is left out."""
        return self.inputs[k] if k < len(self.inputs) else ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}"

    @property
    def kind(self) -> str:
        """The operator that the file has."""
        return self.of or self.op


class Refused(Exception):
    """Raised for an operator that cannot be imported; the text is the reason, to print after the operator's name."""


class Misfit(Refused):
    """Raised for numbers that contradict each other; where a tensor was substituted, its numbers prove nothing."""


class Problem(Refused):
    """Raised for a node that is not supported, which may be another than the one that is read; `why` is the reason."""

    def __init__(self, node: Node, why: str):
        super().__init__(why)
        self.node, self.why = node, why


@dataclass(frozen=True)
class Refusal:
    """A reason, and the operator it is about: kind, name and the tensor it writes; empty for inputs and outputs."""

    reason: str
    kind: str = ""
    name: str = ""
    tensor: str = ""

    @property
    def like(self) -> tuple[str, str]:
        """Key of a group of refusals: the operator and the reason without names and numbers."""
        return self.kind, _NUMBERS.sub("", _QUOTED.sub("", self.reason))

    def __str__(self) -> str:
        reason = _QUOTED.sub(lambda found: f"'{shortened(found[0][1:-1])}'", self.reason)
        output = f"(output {shortened(self.tensor)!r}) " if self.tensor else ""
        return f"{self.kind} {self.name!r} {output}{reason}" if self.kind else reason


def shortened(name: str) -> str:
    """The end of a long name, which says more than its beginning."""
    return name if len(name) <= _NAME_LENGTH else f"...{name[3 - _NAME_LENGTH :]}"


def summary(refusals: Sequence[Refusal], what: str = "construct") -> str:
    """The number of refused `what`s, then the first refusal of each kind with its count, frequent kinds first."""
    groups: dict[tuple[str, str], list[Refusal]] = {}
    for refusal in refusals:
        groups.setdefault(refusal.like, []).append(refusal)
    ordered = sorted(groups.values(), key=len, reverse=True)
    parts = [f"{len(group)} times: {group[0]}" if len(group) > 1 else str(group[0]) for group in ordered[:_KINDS]]
    if rest := ordered[_KINDS:]:
        parts.append(f"and {sum(map(len, rest))} more of {len(rest)} other kinds")
    return f"{len(refusals)} unsupported {what}{'s' * (len(refusals) > 1)}: {'; '.join(parts)}"


class Builder:
    """The graph in the making: its inputs and operators so far; `unused` gives a name that no tensor has."""

    def __init__(self, taken: Iterable[str] = ()):
        self.inputs: list[g.Tensor] = []
        self.ops: list[g.Operator] = []
        self.tensors = Names(taken)
        self.unused = self.tensors.unused

    def emit(self, op: g.Operator) -> g.Tensor:
        """Append an operator as it is. Returns its output."""
        self.ops.append(op)
        return op.output

    def add(
        self, kind: Callable[..., g.Operator], inputs: tuple[g.Tensor, ...], y: g.Tensor, *facts: Any,
        wanted: str = "", **more: Any,
    ) -> g.Tensor:  # fmt: skip
        """Append an operator that the file does not have, named as its output: `wanted`, or as `y` if that is free."""
        y = replace(y, name=wanted or self.unused(y.name), data=None)
        return self.emit(kind(y.name, inputs, y, *facts, **more))

    def constant(self, name: str, array: np.ndarray, like: g.Tensor | None = None) -> g.Tensor:
        """A constant operand of the array's type, or int8 quantised as `like`; of rank 1 where it is a scalar."""
        data = np.ascontiguousarray(np.atleast_1d(array))
        if like is not None:
            return g.Tensor(self.unused(name), data.shape, "int8", like.scale, like.zero_point, data)
        return g.Tensor(self.unused(name), data.shape, str(data.dtype), data=data)

    def reshape(self, name: str, x: g.Tensor, shape: Sequence[int], wanted: str = "") -> g.Tensor:
        """`x` in another shape; `x` itself where that is its shape and no name is wanted."""
        if x.shape == tuple(shape) and not wanted:
            return x
        return self.add(g.Reshape, (x,), like(x, name, shape), wanted=wanted)


def like(x: g.Tensor, name: str, shape: Iterable[int]) -> g.Tensor:
    """A tensor of the type and quantisation of `x`, computed."""
    return replace(x, name=name, shape=tuple(shape), data=None)
