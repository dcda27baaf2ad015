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

from .language import Array, Extents, Kernel, Tile

LARGEST = 128  # root of a mean of squares of bytes
_FEW = 3  # rows whose roots are found by comparison
_UPPER = 6  # bits that the second table leaves out
_LESS = LARGEST - 2  # which the first table's roots are lower: with both comparisons a root is 128 lower


@lru_cache(maxsize=1)
def tables_of_roots() -> tuple[np.ndarray, np.ndarray]:
    """int64 (256,) twice: by the mean, at most 255, and by its upper bits; with 126 their sum is a root or less."""
    upper = np.array([isqrt(k << _UPPER) - 15 if k << _UPPER > 255 else 0 for k in range(256)])
    return np.array([isqrt(k) for k in range(256)]) - _LESS, upper


def root_tables(k: Kernel, rows: int) -> list[int]:
    """The numbers on chip of the tables that roots of `rows` rows need."""
    named = zip(("roots", "upper"), tables_of_roots())
    return [k.table(name, values) for name, values in named] if rows > _FEW else []


def root_tiles(rows: int, lanes: int) -> tuple[Extents, Extents]:
    """What roots of `rows` rows need in each bank of accumulators.

    In one the first tile becomes 1 - r of each root r; in the other one the second and third part of the first tile
    become r and r - 128. The others are for `load_root_constants` and `integer_roots` alone.
    """
    row, steps = {"row": rows}, LARGEST // lanes
    if rows > _FEW:
        return [row, {"work": 4}], [{"copy": 3} | row]
    return [row], [{"copy": 3} | row, {"step": steps}, row | {"step": steps}]


def load_root_constants(k: Kernel, second: Sequence[Tile]) -> Array:
    """Load the squares, or unit vectors, to the tiles of the second bank; these constants in DRAM."""
    copies, *compared = second
    if compared:
        squares = -(np.arange(1, LARGEST + 1, dtype=np.int32) ** 2)
        found = k.known("squares", squares.reshape(-1, 1, k.cfg.block_in))
        k.load(compared[0], found)
    else:
        found = k.known("units", np.eye(k.cfg.block_in, dtype=np.int8), row=k.cfg.block_in)[: copies.shape["row"]]
        k.load(copies, found.repeated(copy=3))
    return found


def integer_roots(
    k: Kernel, means: Tile, tables: list[int], constants: Array, first: Sequence[Tile], second: Sequence[Tile]
) -> None:
    """Record the roots of `means` (row), each in all lanes, to the tiles of `root_tiles`."""
    factors, copies = first[0], second[0]
    roots = copies[1:]
    if tables:
        root = _in_lanes(means, copies[0], first[1], tables)
        k.load(factors, constants)
        roots *= root
        factors *= root
        roots.sum_lanes()
        factors.sum_lanes()
    else:
        root = _compared(means, *second[1:])
        factors[...] = 0
        roots[...] = 0
        factors += root
        roots += root
    copies[1].add(LARGEST)
    factors *= -1
    factors += 1 - LARGEST


def _compared(means: Tile, squares: Tile, counts: Tile) -> Tile:
    """The roots less 128: how many squares are above the mean, times -1."""
    counts[...] = 0
    counts += squares
    counts += means
    counts >>= 31
    return counts.sum_along("step").sum_lanes()


def _in_lanes(means: Tile, units: Tile, work: Tile, tables: list[int]) -> Tile:
    """An entry with the roots less 128, row k in lane k."""
    units *= means
    work[...] = 0
    mean = units.sum_along("row")
    root, upper, tries = work[0], work[1], work[2:]
    work[:2] += mean
    upper >>= _UPPER
    work[:2] += -128
    root.lookup(tables[0])
    upper.lookup(tables[1])
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
