"""Outputs of a network whose heads are lanes, (1, heads, rows, elements), written as the host has them.

Entries of a block of heads are taken as weights, and products with one-hot inputs transpose them: an entry per head.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from ...hw.isa import Mem
from .language import Kernel, Unfit, by_shape
from .stand_ins import RowsOut

_TILE = 8  # entries of each head: few, so that loads, products and stores overlap


@by_shape()
def heads_out(k: Kernel, op: RowsOut) -> None:
    """Some entries of each head at a time."""
    k.need("overwrite", batch=1)
    lanes, (_, heads, rows, width) = k.cfg.block_in, op.x.shape
    if heads % lanes or rows * width % lanes:
        raise Unfit(f"{heads} heads of {rows} x {width} elements: must be whole entries of {lanes}")
    blocks, tiles = heads // lanes, rows * width // lanes
    x = k.array(k.input(0).buffer, b=blocks, tile=tiles)
    out = k.plain(op.output, b=blocks, head=lanes, tile=tiles)
    together = min(tiles, k.cfg.wgt_depth // 4, k.bank // (2 * lanes), _TILE)
    one_hot = k.constant(Mem.INP, "identity", np.eye(lanes, dtype=np.int8), kept=True, head=lanes)
    weights, ys = k.slots(together, Mem.WGT), k.banks(together * lanes)
    for block, first in product(range(blocks), range(0, tiles, together)):
        these = slice(first, min(first + together, tiles))
        matrices = weights.load(x[block, these])
        y = ys.next(head=lanes, **matrices.shape)
        y[...] = (one_hot @ matrices).over("tile head")
        k.store(out[block, :, these], y)
