"""Fields of encoded instructions."""

from __future__ import annotations

import numpy as np

from ..hw.isa import Field


def put(words: np.ndarray, declared: Field, value: int) -> None:
    """Write the low bits of `value` to a field of the instruction `words`, uint64 (2,), in place."""
    at, low = divmod(declared.lo, 64)
    mask = (1 << declared.bits) - 1
    words[at] = int(words[at]) & ~(mask << low) | (value & mask) << low
