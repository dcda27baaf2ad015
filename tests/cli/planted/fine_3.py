"""The sum of two tensors, clipped at zero, in tiles on two virtual threads.

Nothing planted: two tensors that change are added, which only the ALU does. It waits for the loads into its
accumulators, which are contiguous, of many entries, and load every byte once; stores overlap them.
"""

import numpy as np

from tilewright.compiler.schedule.elementwise import elementwise

ENTRIES = 1024


def schedule(cfg):
    """The ready schedule."""
    return elementwise(cfg, ENTRIES, [("add", "other"), ("max", 0)], dtype="int8")


def data(cfg, rng):
    """(inputs, expected outputs)."""
    x, other = (rng.integers(-128, 128, (ENTRIES, cfg.batch, cfg.block_out), np.int8) for _ in range(2))
    out = np.maximum(x.astype(np.int32) + other, 0).astype(np.int8)
    return {"x": x, "other": other}, {"out": out}
