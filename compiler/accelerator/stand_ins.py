"""Operators of a launch that stand for those of a network: tensors are not packed, or a reader pads or takes a part."""

from __future__ import annotations

from dataclasses import dataclass

from .. import graph as g


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
