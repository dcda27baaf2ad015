"""Operators of a launch that stand for those of a network: tensors are not packed, or a reader does the work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .. import graph as g


@dataclass(frozen=True, eq=False)
class RowsJoined(g.Concat):
    """A cache (1, H, N, D) and a row (1, H, 1, D) of each head: the cache and what it becomes are not packed."""


@dataclass(frozen=True, eq=False)
class RowsOut(g.StridedSlice):
    """All of an image, as an output that is not unpacked."""


@dataclass(frozen=True, eq=False)
class Absorbed(g.Operator):
    """An operator whose work its only reader does, so that nothing computes it."""

    reader: ClassVar[str]  # what messages call it


@dataclass(frozen=True, eq=False)
class AbsorbedPad(g.Pad, Absorbed):
    """A padding of channels that a sum makes: on the device its output is its input."""

    reader = "the sum that pads it"


@dataclass(frozen=True, eq=False)
class AbsorbedSlice(g.StridedSlice, Absorbed):
    """A slice of channels that a depthwise convolution takes: its output lies in its input."""

    reader = "the convolution that reads it"
