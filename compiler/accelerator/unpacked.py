"""Operators whose tensors stay as the host has them, not in blocks of channels (lanewise/)."""

from __future__ import annotations

from dataclasses import dataclass

from .. import graph as g


@dataclass(frozen=True, eq=False)
class RowsJoined(g.Concat):
    """A cache (1, H, N, D) and a row (1, H, 1, D) of each head: the cache and what it becomes are not packed."""


@dataclass(frozen=True, eq=False)
class RowsOut(g.StridedSlice):
    """All of an image, as an output that is not unpacked."""
