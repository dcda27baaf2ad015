"""Images of rows as entries of weights: a copy with zeros behind rows and channels, to whole blocks of both."""

from __future__ import annotations

from itertools import product

import numpy as np

from .language import TILE, Array, Kernel, cuts


def in_whole_blocks(k: Kernel, number: int) -> Array:
    """A copy of the input of that number, an image of rows, that is whole blocks: axes n, b, row."""
    x, lanes = k.image(number).merged("row", "h", "w"), k.cfg.block_in
    images, blocks, rows = x.shape.values()
    height, channels = -(-rows // lanes) * lanes, k.op.inputs[number].shape[1] - (blocks - 1) * lanes
    copy = k.temporary("rows", n=images, b=blocks, row=height)
    x, out = x.merged("block", "n", "b"), copy.merged("block", "n", "b")
    most = min(2 * TILE, k.slot, k.bank) // lanes * lanes
    together = max(1, most // height)  # blocks of channels in a tile
    if together > blocks:
        together = together // blocks * blocks
    with k.scope():
        whole = np.eye(k.cfg.block_out, lanes, dtype=np.int8)
        matrices = k.matrices("lanes", np.stack([whole, whole * (np.arange(lanes) < channels)]))
        xs, ys = k.slots(most), k.banks(most)
        for these, part in product(cuts(images * blocks, together), cuts(height, most)):
            target, first = out[these, part], these.start
            count, size = target.shape.values()
            tile, y = xs.load(x.window(block=(first, count), row=(part.start, size))), ys.next(**target.shape)
            with k.together():
                for block in range(count):
                    last = (first + block) % blocks == blocks - 1
                    y[block] = tile[block] @ matrices[int(last)]
            k.store(target, y)
    return copy
