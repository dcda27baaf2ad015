"""A 3x3 depthwise convolution of stride 2, recorded row tile by row tile, always at the same addresses.

Planted: every tile is loaded to entry 0 of the inputs, and its sums are in entry 0 of the accumulators.
Slow because the load of a tile waits until the tile before is computed, and the sums until the ones before are stored:
load, DWGEMM and store take turns, although three tiles would fit.
Cycles: 19,613; better: 11,281; factor 1.7 (`better` alternates between two places of each).
"""

import numpy as np
from versions import versions

from tilewright.hw.isa import Mem
from tilewright.runtime import layout
from tilewright.runtime.program import Program

WIDTH, HEIGHT, CHANNELS, KERNEL, STRIDE, ROWS = 65, 65, 16, 3, 2, 4
COLUMNS, LINES = (WIDTH - KERNEL) // STRIDE + 1, (HEIGHT - KERNEL) // STRIDE + 1


def depthwise(cfg, slots):
    """Tiles of ROWS rows of the output, in `slots` places in turn."""
    p = Program(cfg, "depthwise")
    x = p.buffer("x", (1, 1, HEIGHT, WIDTH, cfg.batch, cfg.block_in), cfg.inp_bits)
    w = p.buffer("w", (1, cfg.block_out, cfg.block_in), cfg.wgt_bits)
    y = p.buffer("y", (1, 1, LINES, COLUMNS, cfg.batch, cfg.block_out), cfg.out_bits, kind="output")
    p.load(Mem.WGT, 0, w, 0, x_size=1)
    size = ((ROWS - 1) * STRIDE + KERNEL) * WIDTH
    outputs = [(ROWS, COLUMNS, STRIDE * WIDTH, 0), (COLUMNS, 1, STRIDE, 0)]
    for tile in range(LINES // ROWS):
        slot = tile % slots
        inp, acc = slot * size, slot * cfg.bank_depth
        p.load(Mem.INP, inp, x, tile * ROWS * STRIDE * WIDTH, x_size=size)
        for tap, (ky, kx) in enumerate(np.ndindex(KERNEL, KERNEL)):
            p.gemm(outputs, acc, inp + ky * WIDTH + kx, tap, overwrite=tap == 0, depthwise=True)
        p.store(acc, y, tile * ROWS * COLUMNS, x_size=ROWS * COLUMNS)
    return p


program, better = versions(depthwise, slots=(1, 2))


def data(cfg, rng):
    """(inputs, expected outputs)."""
    x = rng.integers(-128, 128, (1, CHANNELS, HEIGHT, WIDTH), np.int8)
    w = rng.integers(-128, 128, (CHANNELS, KERNEL, KERNEL), np.int8)
    y = np.zeros((1, CHANNELS, LINES, COLUMNS), np.int32)
    for ky, kx in np.ndindex(KERNEL, KERNEL):
        window = x[:, :, ky::STRIDE, kx::STRIDE][:, :, :LINES, :COLUMNS].astype(np.int32)
        y += window * w[:, ky, kx, None, None]
    inputs = {"x": layout.pack_activations(x, cfg), "w": layout.pack_depthwise_weights(w, cfg)}
    return inputs, {"y": layout.pack_activations(y.astype(np.int8), cfg)}
