"""A 1x1 convolution that keeps its partial sums in DRAM.

Planted: for every block of input channels the accumulators are loaded, added to, and stored again.
Slow because the sums are written and read once per step of the reduction instead of written once at its end, and as
each step needs the sums of the one before, nothing overlaps: load, GEMM and store wait for each other.
Cycles: 21,308; better: 6,495; factor 3.3 (`better` stores after the last step).
"""

import numpy as np
from versions import versions

from tilewright.hw.isa import Mem
from tilewright.runtime import layout
from tilewright.runtime.program import Program

SIZE, CHANNELS, OUT_CHANNELS = 16, 128, 32


def convolution(cfg, kept):
    """All inputs and weights on chip; sums stay there, too, if `kept`; 8 bits of them are enough, as results wrap."""
    pixels, ci, co = SIZE * SIZE, CHANNELS // cfg.block_in, OUT_CHANNELS // cfg.block_out
    p = Program(cfg, "convolution")
    x = p.buffer("x", (1, ci, SIZE, SIZE, cfg.batch, cfg.block_in), cfg.inp_bits)
    w = p.buffer("w", (co, ci, 1, 1, cfg.block_out, cfg.block_in), cfg.wgt_bits)
    y = p.buffer("y", (1, co, SIZE, SIZE, cfg.batch, cfg.block_out), cfg.out_bits, kind="output")
    p.load(Mem.WGT, 0, w, 0, x_size=co * ci)
    for c in range(ci):
        slot = c % 2 * pixels
        p.load(Mem.INP, slot, x, c * pixels, x_size=pixels)
        if c and not kept:
            p.load(Mem.ACC8, 0, y, 0, x_size=co * pixels)
        p.gemm([(co, pixels, 0, ci), (pixels, 1, 1, 0)], src=slot, wgt=c, overwrite=c == 0)
        if not kept:
            p.store(0, y, 0, x_size=co * pixels)
    if kept:
        p.store(0, y, 0, x_size=co * pixels)
    return p


program, better = versions(convolution, kept=(False, True))


def data(cfg, rng):
    """(inputs, expected outputs)."""
    x = rng.integers(-128, 128, (1, CHANNELS, SIZE, SIZE), np.int8)
    w = rng.integers(-128, 128, (OUT_CHANNELS, CHANNELS, 1, 1), np.int8)
    y = np.einsum("oi,nihw->nohw", w[:, :, 0, 0].astype(np.int32), x.astype(np.int32)).astype(np.int8)
    inputs = {"x": layout.pack_activations(x, cfg), "w": layout.pack_weights(w, cfg)}
    return inputs, {"y": layout.pack_activations(y, cfg, block=cfg.block_out)}
