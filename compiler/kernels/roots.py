"""One over a square root on the ALU: the tables and steps of Newton's method of runtime/hostops/roots.py."""

from __future__ import annotations

from ...runtime.hostops import roots
from .language import Kernel, Tile

EXTENSIONS = "acc8", "lookup", "lane_reduce", "overwrite", "requant", "rescale"
COPIES = 4  # of the argument: the index of each table, and one for each step


def need_roots(k: Kernel) -> None:
    """Raise `Unfit` where the configuration computes no roots."""
    k.need(*EXTENSIONS, batch=1)


def root_tables(k: Kernel) -> tuple[int, int]:
    """The numbers of the tables of the first guess, loaded where they are not on chip."""
    return k.table("high", roots.HIGH), k.table("low", roots.LOW)


def inverse_root(arguments: Tile, tables: tuple[int, int]) -> Tile:
    """`2**20 / sqrt(s)` of accumulators s, integers 0 to 2**20.

    `arguments` (copy, entry) are `COPIES` copies of s, one after the other; they are overwritten. The first of them
    becomes the result.
    """
    root, low, *steps = (arguments[copy] for copy in range(COPIES))
    indices, rest = arguments[:2].merged("entry"), arguments[2:].merged("entry")
    root >>= roots.HIGH_SHIFT
    low >>= roots.LOW_SHIFT
    indices += -128
    root.lookup(tables[0])
    low.lookup(tables[1])
    rest *= -1
    root += low
    for square in steps:
        # Of a negative number the complement is shifted, -1 - a, so that it rounds as a does: sums, not products.
        square *= root
        _shift_negative(square, roots.SQUARE_SHIFT, 1)
        square *= root
        _shift_negative(square, roots.HALF_SHIFT, roots.THREE + 1)
        root *= square
        root >>= roots.STEP_SHIFT
    return root


def _shift_negative(y: Tile, bits: int, more: int) -> None:
    """Replace a by `~(-a >> bits) + more`."""
    y += -1
    y >>= bits
    y += more
