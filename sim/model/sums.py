"""Sums of products that are not in the accumulators yet.

A convolution adds many short products to the same accumulators, one instruction after the other. They are added up as
float32, in the order in which they are made, and put into the accumulators when something else uses these: that saves
rounding to integers and changing the order for each of them. Sums of float32 are exact while no more products of
elements are added than their rounding allows.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

import numpy as np

Put = Callable[[np.ndarray], None]


@dataclass(slots=True)
class _Sum:
    """The sum of results of `depth` products per element, which `put` takes to accumulators `low` to `high`."""

    total: np.ndarray
    depth: int
    put: Put
    low: int
    high: int


class Sums:
    """The open sums of one model; no two of them share accumulators."""

    def __init__(self) -> None:
        self._open: dict[Hashable, _Sum] = {}

    def add(
        self,
        key: Hashable,
        limits: tuple[int, int],
        put: Put,
        result: np.ndarray,
        depth: int,
        most: int,
        starts: bool = False,
    ) -> None:
        """Take `result`, float32 of `depth` products per element, to the accumulators that `put` knows, now or later.

        `limits` are the first and the last of these. Equal keys stand for the same accumulators, to which results are
        added in the same order. Sums have up to `most` products per element. One that `starts` is new: `put` does not
        add it but overwrites.
        """
        found = self._open.get(key)
        if found is not None and not starts and found.depth + depth <= most:
            np.add(found.total, result, found.total)
            found.depth += depth
            return
        self.settle(*limits)
        self._open[key] = _Sum(result, depth, put, *limits)

    def settle(self, low: int, high: int) -> None:
        """Put the sums for any of the accumulators `low` to `high` there."""
        if not self._open:
            return
        ended = []
        for key, one in self._open.items():
            if one.low <= high and low <= one.high:
                ended.append(key)
        for key in ended:
            one = self._open.pop(key)
            one.put(one.total)

    def settle_all(self) -> None:
        """Put all sums into their accumulators."""
        while self._open:
            _, one = self._open.popitem()
            one.put(one.total)
