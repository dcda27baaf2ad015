"""What every importer is made of: nodes, refusals, and the graph in the making."""

from __future__ import annotations

import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .. import graph as g
from ..graph import ranges
from ..names import Names

_NAME_LENGTH = 40  # characters of a tensor's name
_KINDS = 12  # of refusals that are listed
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
    """Raised for numbers that are wrong together; those of a substituted tensor say nothing."""


class Problem(Exception):
    """Raised for a node that is not supported; the text says why, to print after the node."""

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
        """What refusals of one kind have in common: everything but names and numbers."""
        return self.kind, _NUMBERS.sub("", _QUOTED.sub("", self.reason))

    def __str__(self) -> str:
        reason = _QUOTED.sub(lambda found: f"'{shortened(found[0][1:-1])}'", self.reason)
        about = f"{self.kind} {self.name!r} (output {shortened(self.tensor)!r}) " if self.kind else ""
        return about + reason


def shortened(name: str) -> str:
    """The end of a long name, which says more than its beginning."""
    return name if len(name) <= _NAME_LENGTH else f"...{name[3 - _NAME_LENGTH :]}"


def summary(refusals: list[Refusal]) -> str:
    """Their number, then the first of each kind, with how many there are, the most frequent kinds first."""
    groups: dict[tuple[str, str], list[Refusal]] = {}
    for refusal in refusals:
        groups.setdefault(refusal.like, []).append(refusal)
    ordered = sorted(groups.values(), key=len, reverse=True)
    parts = [f"{len(group)} times: {group[0]}" if len(group) > 1 else str(group[0]) for group in ordered[:_KINDS]]
    if rest := ordered[_KINDS:]:
        parts.append(f"and {sum(map(len, rest))} more of {len(rest)} other kinds")
    return f"{len(refusals)} unsupported construct{'s' * (len(refusals) > 1)}: {'; '.join(parts)}"


class Builder:
    """Operators so far. `reserved` are the names of the graph's outputs: only `wanted` tensors get them."""

    def __init__(self, reserved: AbstractSet[str]):
        self.reserved = reserved
        self.inputs: list[g.Tensor] = []
        self.ops: list[g.Operator] = []
        self._tensors, self._names = Names(reserved), Names()

    def append(self, op: g.Operator, wanted: str = "") -> g.Tensor:
        """Append an operator, whose output is named `wanted`, or after the operator. Returns that output."""
        free = op.name if op.name not in self._tensors else f"{op.name}.out"
        output = replace(op.output, name=wanted or self._tensors.unused(free))
        op = replace(op, name=self._names.unused(op.name), output=output)
        self.ops.append(op)
        return op.output

    def constant(self, name: str, array: np.ndarray, like: g.Tensor | None = None) -> g.Tensor:
        """A constant operand, float32 or quantised as `like`; of rank 1 where it is a scalar."""
        array = np.ascontiguousarray(np.atleast_1d(array))
        name = self._tensors.unused(name)
        if like is None:
            return g.Tensor(name, array.shape, "float32", data=array.astype(np.float32))
        return g.Tensor(name, array.shape, "int8", like.scale, like.zero_point, array)

    def checked(self, node: Node, op: g.Operator, wanted: str = "", shape: Sequence[int] | None = None) -> g.Tensor:
        """As `append`, or with `shape` as `plain`. Raises `Problem` if integers of the operator can leave int32."""
        if text := ranges.problem(op):
            raise Problem(node, text)
        return self.plain(op, op.output.shape if shape is None else shape, wanted)

    def reshape(self, name: str, x: g.Tensor, shape: Sequence[int], wanted: str = "") -> g.Tensor:
        """`x` in another shape; `x` itself where that is its shape and no name is wanted."""
        if x.shape == tuple(shape) and not wanted:
            return x
        return self.append(g.Reshape(name, (x,), replace(x, name="", shape=tuple(shape), data=None)), wanted)

    def image_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Four dimensions: a row of pixels is an image of one row."""
        return (*shape[:2], 1, *shape[2:]) if len(shape) == 3 else tuple(shape)

    def image(self, name: str, x: g.Tensor) -> g.Tensor:
        """`x` with four dimensions."""
        return self.reshape(f"{name}.image", x, self.image_shape(x.shape))

    def plain(self, op: g.Operator, shape: Sequence[int], wanted: str = "") -> g.Tensor:
        """Append an operator and bring its output to `shape`."""
        if op.output.shape == tuple(shape):
            return self.append(op, wanted)
        return self.reshape(f"{op.name}.shape", self.append(op), shape, wanted)
