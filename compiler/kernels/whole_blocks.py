"""Images of rows as entries of weights: a copy with zeros behind rows and channels, to whole blocks of both."""

from __future__ import annotations

from itertools import product

import numpy as np

from .language import Array, Kernel

TILE = 512  # entries of inputs: enough to hide what an instruction costs, and few enough for a short start and end


def in_whole_blocks(k: Kernel, x: Array, channels: int) -> Array:
    """A copy of the packed image `x`, of so many channels, on axes `block` (of all images) and `row`."""
    lanes, per_image = k.cfg.block_in, x.shape["b"]
    x = x.merged("row", *[name for name in x.shape if name not in ("n", "b")]).merged("block", "n", "b")
    blocks, rows = x.shape.values()
    height = -(-rows // lanes) * lanes
    copy = k.temporary("rows", block=blocks, row=height)
    most = min(TILE, k.slot, k.bank) // lanes * lanes
    together = max(1, most // height)
    if together > per_image:
        together = together // per_image * per_image
    with k.scope():
        whole = np.eye(k.cfg.block_out, lanes, dtype=np.int8)
        cut = whole * (np.arange(lanes) < (channels % lanes or lanes))
        matrices, inputs, ys = k.matrices("lanes", np.stack([whole, cut])), k.slots(most), k.banks(most)
        step = most if together == 1 else height
        for first, row in product(range(0, blocks, together), range(0, height, step)):
            count, size = min(together, blocks - first), min(step, height - row)
            part = inputs.load(x.window(block=(first, count), row=(row, size)))
            y = ys.next(block=count, row=size)
            for last in (False, True):  # block of an image, which alone has lanes without channels
                with k.together():
                    for number in range(count):
                        if ((first + number) % per_image == per_image - 1) is last:
                            y[number] = part[number] @ matrices[int(last)]
            k.store(copy[first : first + count, row : row + size], y)
    return copy
