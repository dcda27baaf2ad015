"""What the integers of an operator reach, whatever its int8 inputs are."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

Ends = tuple[int, int]  # the least and the largest of some values


class Reach(NamedTuple):
    """What an operator's accumulators reach, int64, and the factors that scale them, float64; one per channel, or
    one for all.

    `biases` are those of the channels of layers. `exponents` are those of R, where the factors do not give them.
    """

    low: np.ndarray
    high: np.ndarray
    factors: np.ndarray
    biases: np.ndarray | None = None
    exponents: np.ndarray | None = None

    @classmethod
    def one(cls, ends: Ends, factor: float) -> Reach:
        """Accumulators of `ends`, scaled by one factor."""
        return cls(np.array([ends[0]]), np.array([ends[1]]), np.array([factor], np.float64))


def times(ends: Ends, count: int) -> Ends:
    """The ends of sums of `count` values."""
    return ends[0] * count, ends[1] * count


def products(x: Ends, y: Ends) -> Ends:
    """The ends of products of two values."""
    found = [a * b for a in x for b in y]
    return min(found), max(found)


def sums(weight: np.ndarray, bias: np.ndarray, x: Ends) -> tuple[np.ndarray, np.ndarray]:
    """(least, largest), int64 (O,): `bias + sum(weight * x)`, weights with the output channel first.

    The padding of a convolution, which adds nothing, is between them.
    """
    rows = weight.reshape(len(weight), -1)
    rising, falling = (part.sum(1, dtype=np.int64) for part in (np.maximum(rows, 0), np.minimum(rows, 0)))
    return bias + rising * x[0] + falling * x[1], bias + rising * x[1] + falling * x[0]
