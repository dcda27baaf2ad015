"""Transposed entries of weights, and outputs of a network whose heads are lanes, written as the host has them."""

from __future__ import annotations

import numpy as np

from ...hw.isa import Mem
from .language import Array, Kernel, Unfit, by_shape, cuts
from .stand_ins import RowsOut

_TILE = 128  # accumulators at a time: few, so that loads, products and stores overlap


@by_shape()
def heads_out(k: Kernel, op: RowsOut) -> None:
    """An output (1, heads, rows, elements): one block of heads after the other."""
    k.need("overwrite", batch=1)
    lanes, (_, heads, rows, width) = k.cfg.block_in, op.x.shape
    if heads % lanes or rows * width % lanes:
        raise Unfit(f"{heads} heads of {rows} x {width} elements: must be whole entries of {lanes}")
    blocks, tiles = heads // lanes, rows * width // lanes
    x, out = k.array(k.input(0).buffer, b=blocks, tile=tiles), k.plain(op.output, b=blocks, lane=lanes, tile=tiles)
    for block in range(blocks):
        transpose(k, x[block], out[block])


def transpose(k: Kernel, x: Array, out: Array) -> None:
    """Write every entry of weights, axis `tile`, with rows and lanes exchanged, axes `tile` and `lane` in any order.

    It times each unit vector is one of its columns.
    """
    lanes, tiles = k.cfg.block_in, x.shape["tile"]
    most = max(1, min(tiles, k.cfg.wgt_depth // 2, min(_TILE, k.bank) // lanes))
    units = k.constant(Mem.INP, "identity", np.eye(lanes, dtype=np.int8), kept=True, lane=lanes)
    with k.scope():
        ws, ys = k.slots(most, Mem.WGT), k.banks(most * lanes)
        for these in cuts(tiles, most):
            target = out.at(tile=these)
            y = ys.next(**target.shape)
            y[...] = (units @ ws.load(x[these])).over(" ".join(target.shape))
            k.store(target, y)
