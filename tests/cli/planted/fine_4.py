"""A padded 3x3 convolution in tiles of rows.

Nothing planted: neighbouring tiles load two rows of the image twice, the tiles at the edges are padded, and a load has
an instruction per block of channels, but once the first tile and the weights are there, GEMM never waits for a load.
"""

import numpy as np

from tilewright.compiler.schedule.conv2d import conv2d
from tilewright.compiler.tile import Tile
from tilewright.runtime import layout

SIZE, CHANNELS, OUT_CHANNELS, KERNEL, ROWS = 16, 32, 32, 3, 4


def schedule(cfg):
    """The ready schedule with tiles of ROWS rows."""
    ci, co = CHANNELS // cfg.block_in, OUT_CHANNELS // cfg.block_out
    tile = Tile(co=co, ci=ci, oy=ROWS, ox=SIZE, thread="oy", vthreads=2)
    return conv2d(cfg, 1, SIZE, SIZE, CHANNELS, OUT_CHANNELS, KERNEL, KERNEL, (1, 1), (1, 1, 1, 1), tile=tile)


def data(cfg, rng):
    """(inputs, expected outputs)."""
    x = rng.integers(-128, 128, (1, CHANNELS, SIZE, SIZE), np.int8)
    w = rng.integers(-128, 128, (OUT_CHANNELS, CHANNELS, KERNEL, KERNEL), np.int8)
    padded = np.pad(x.astype(np.int32), ((0, 0), (0, 0), (1, 1), (1, 1)))
    y = np.zeros((1, OUT_CHANNELS, SIZE, SIZE), np.int32)
    for ky, kx in np.ndindex(KERNEL, KERNEL):
        y += np.einsum("oi,nihw->nohw", w[:, :, ky, kx].astype(np.int32), padded[:, :, ky:, kx:][:, :, :SIZE, :SIZE])
    inputs = {"x": layout.pack_activations(x, cfg), "w": layout.pack_weights(w, cfg)}
    return inputs, {"out": layout.pack_activations(y.astype(np.int8), cfg, block=cfg.block_out)}
