"""Operators of a launch that stand for those of a network: tensors are not packed, or a reader pads or cuts."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TypeVar

from .. import graph as g

_Kind = TypeVar("_Kind", bound=g.Operator)


@dataclass(frozen=True, eq=False)
class RowsJoined(g.Concat):
    """A cache (1, H, N, D) and a row (1, H, 1, D) of each head: the cache and what it becomes are not packed."""


@dataclass(frozen=True, eq=False)
class RowsOut(g.StridedSlice):
    """All of an image, as an output that is not unpacked."""


@dataclass(frozen=True, eq=False)
class AbsorbedPad(g.Pad):
    """A padding of channels whose only reader, a sum, makes it: on the device its output is its input."""


@dataclass(frozen=True, eq=False)
class AbsorbedSlice(g.StridedSlice):
    """A slice of channels whose only reader, a depthwise convolution, takes them: its output lies in its input."""


# paddings and slices that are no step of their own, and their readers
ABSORBED: dict[type[g.Operator], str] = {
    AbsorbedPad: "the sum that makes it",
    AbsorbedSlice: "the convolution that reads it",
}


def stand_in(kind: type[_Kind], op: g.Operator, **changes: Any) -> _Kind:
    """An operator of `kind` with the facts of `op`, but for `changes`."""
    return kind(**{**{each.name: getattr(op, each.name) for each in fields(op)}, **changes})


def plain_of(op: g.Operator) -> tuple[g.Tensor, ...]:
    """The tensors of `op` that its kernel reads or writes as the host has them. The output may be an image, too."""
    if isinstance(op, (RowsJoined, RowsOut)):
        return (op.x, op.output) if isinstance(op, RowsJoined) else (op.output,)
    return ()
