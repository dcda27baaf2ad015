"""Operators of a launch that stand for those of a network: tensors are not packed, or a reader does the work."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TypeVar

from .. import graph as g

_Kind = TypeVar("_Kind", bound=g.Operator)


@dataclass(frozen=True, eq=False)
class RowsJoined(g.Concat):
    """A cache (1, H, N, D) and a row (1, H, 1, D) of each head: the cache and what it becomes are not packed."""

    @property
    def plain(self) -> tuple[g.Tensor, ...]:
        """The cache, and what it becomes; its image is an output, too."""
        return self.x, self.output


@dataclass(frozen=True, eq=False)
class RowsOut(g.StridedSlice):
    """All of an image, as an output that is not unpacked."""

    @property
    def plain(self) -> tuple[g.Tensor, ...]:
        """The output."""
        return (self.output,)


@dataclass(frozen=True, eq=False)
class Absorbed(g.Operator):
    """An operator whose work its only reader does, so that nothing computes it."""

    @property
    def viewed(self) -> g.Tensor:
        """The output, which lies in the input."""
        return self.output


@dataclass(frozen=True, eq=False)
class AbsorbedPad(g.Pad, Absorbed):
    """A padding of channels that a sum makes: on the device its output is its input."""


@dataclass(frozen=True, eq=False)
class AbsorbedSlice(g.StridedSlice, Absorbed):
    """A slice of channels that a depthwise convolution takes: its output lies in its input."""


def stand_in(kind: type[_Kind], op: g.Operator, **changes: Any) -> _Kind:
    """An operator of `kind` with the facts of `op`, but for `changes`."""
    return kind(**{**{each.name: getattr(op, each.name) for each in fields(op)}, **changes})
