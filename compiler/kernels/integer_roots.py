"""Integer roots of means of squares of bytes, one per row, exactly: by comparison with all squares, or from tables.

Of few rows a root is the number of squares that are not above the mean. Of several, the means become the lanes of one
entry. A table of the first 255 and one of the next ones' upper bits then give a root that is at most two too low, which
two squares decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import isqrt

import numpy as np

from .language import Extents, Kernel, Tile

LARGEST = 128  # root of a mean of squares of bytes
_FEW = 3  # rows whose roots are found by comparison
_UPPER = 6  # bits that the second table leaves out
_LESS = LARGEST - 2  # which the first table's roots are lower: with both comparisons a root is 128 lower


@lru_cache(maxsize=1)
def tables_of_roots() -> tuple[np.ndarray, np.ndarray]:
    """int64 (256,) twice: by the mean, at most 255, and by its upper bits; with 126 their sum is a root or less."""
    upper = np.array([isqrt(k << _UPPER) - 15 if k << _UPPER > 255 else 0 for k in range(256)])
    return np.array([isqrt(k) for k in range(256)]) - _LESS, upper


def root_tiles(rows: int, lanes: int) -> tuple[Extents, Extents]:
    """What roots of `rows` rows need in each bank of accumulators, for `Roots`."""
    row, copies = {"row": rows}, {"copy": 3, "row": rows}
    if rows > _FEW:
        return [row, {"work": 4}], [copies]
    return [row], [copies, row | {"step": LARGEST // lanes}]


class Roots:
    """Integer roots, one per row, in the tiles of `root_tiles`; constants are loaded as soon as it is made."""

    def __init__(self, k: Kernel, first: Sequence[Tile], second: Sequence[Tile]):
        self.k, (self.factors, *self.work), (self.copies, *self.above) = k, first, second
        rows, lanes = self.factors.size, k.cfg.block_in
        if self.work:
            self.tables = [k.table(name, values) for name, values in zip(("roots", "upper"), tables_of_roots())]
            self.units = k.known("units", np.eye(lanes, dtype=np.int8), row=lanes)[:rows]
            k.load(self.copies, self.units.repeated(copy=3))
        else:
            squares = -(np.arange(1, LARGEST + 1, dtype=np.int32) ** 2)
            k.load(self.above[0], k.known("squares", squares.reshape(-1, 1, lanes)).repeated(row=rows))

    def record(self, means: Tile) -> tuple[Tile, Tile]:
        """Record the roots r of `means` (row), each in all lanes: r and r - 128; `factors` become 1 - r."""
        factors, roots = self.factors, self.copies[1:]
        if self.work:
            root = self._in_lanes(means, self.copies[0], self.work[0])
            self.k.load(factors, self.units)
            for y in (roots, factors):
                y *= root
                y.sum_lanes()
        else:
            above = self.above[0]
            above += means
            above >>= 31
            root = above.sum_along("step").sum_lanes()  # less 128: how many squares are above the mean, times -1
            for y in (factors, roots):
                y[...] = 0
                y += root
        roots[0].add(LARGEST)
        factors *= -1
        factors += 1 - LARGEST
        return roots[0], roots[1]

    def _in_lanes(self, means: Tile, units: Tile, work: Tile) -> Tile:
        """An entry with the roots less 128, row k in lane k."""
        units *= means
        work[...] = 0
        mean = units.sum_along("row")
        root, upper, tries = work[0], work[1], work[2:]
        work[:2] += mean
        upper >>= _UPPER
        work[:2] += -128
        for y, table in zip((root, upper), self.tables):
            y.lookup(table)
        root += upper
        tries += root
        tries += _LESS + 1
        tries[1].add(1)
        tries *= tries
        tries *= -1
        tries += mean
        tries >>= 31
        root += tries[0]
        root += tries[1]
        return root
