"""One over a square root in int32, without division: two tables and two steps of Newton's method.

Programs for the accelerator compute with the same tables and constants.
"""

from __future__ import annotations

import numpy as np

from .arrays import Int32, Int64

ROOT_BITS = 20  # fractional bits of the result; arguments are at most 1 << ROOT_BITS, so that no product leaves int32
HIGH_SHIFT, LOW_SHIFT = 12, 6  # right shifts of the argument that give the index into each table, at most 255
SQUARE_SHIFT, HALF_SHIFT, STEP_SHIFT = 10, 19, 12  # right shifts in a step `r = r * (3 - s * r**2) / 2`
THREE = 3 << 11  # the 3 in a step
STEPS = 2
_ENTRIES = 256


def _roots(arguments: np.ndarray) -> Int32:
    return np.round((1 << ROOT_BITS) / np.sqrt(arguments)).astype(np.int32)


def _tables() -> tuple[Int32, Int32]:
    """(HIGH, LOW): HIGH has the result for the middle of each wide interval, LOW corrects it for narrow ones."""
    middles = np.arange(_ENTRIES) + 0.5
    narrow, wide = middles * (1 << LOW_SHIFT), middles * (1 << HIGH_SHIFT)
    narrow[0] = (1 << LOW_SHIFT) - 1  # so small that Newton's method converges from it for the larger half
    wide[wide < _ENTRIES << LOW_SHIFT] = narrow[-1]
    high = _roots(wide)
    return high, _roots(narrow) - high[0]


HIGH, LOW = _tables()  # int32 (256,): the first guess is the sum of an entry of each


def inverse_root(s: Int64) -> Int64:
    """int64 `2**20 / sqrt(s)` of integers 0 to 2**20: within 0.1 % from 128 on, too small below 64.

    0 gives a finite number, too. Every intermediate value is an int32.
    """
    s = np.asarray(s, np.int64)
    last = _ENTRIES - 1
    r = HIGH[np.minimum(s >> HIGH_SHIFT, last)].astype(np.int64) + LOW[np.minimum(s >> LOW_SHIFT, last)]
    for _ in range(STEPS):
        square = ((s * r) >> SQUARE_SHIFT) * r
        r = (r * (THREE - (square >> HALF_SHIFT))) >> STEP_SHIFT
    return r
