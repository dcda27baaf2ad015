"""Sums over 2x2 windows (average pooling), with ADD over accumulators.

Planted: the image is loaded into accumulators, and the ALU adds the four pixels of each window there.
Slow because the loads are in the compute queue, where nothing overlaps them, and an ADD whose operands are both
accumulators takes longer than a product of GEMM.
Cycles: 9,144; better: 4,813; factor 1.9 (`better` is GEMM with the identity as weights for each of the four pixels,
from the input scratchpad: its loads run ahead).
"""

import numpy as np

from tilewright.hw.isa import AluOp, Mem
from tilewright.runtime import layout
from tilewright.runtime.program import Program

SIZE, BLOCKS, WINDOW, ROWS = 32, 2, 2, 8
OUT = SIZE // WINDOW
TILES = [(block, row) for block in range(BLOCKS) for row in range(0, SIZE, ROWS)]


def program(cfg):
    """Tiles of ROWS rows in two places in turn, so that one is stored while the next is added."""
    p = Program(cfg, "pool")
    x = p.buffer("x", (1, BLOCKS, SIZE, SIZE, cfg.batch, cfg.block_out))
    y = p.buffer("y", (1, BLOCKS, OUT, OUT, cfg.batch, cfg.block_out), cfg.out_bits, kind="output")
    size, sums, rows = ROWS * SIZE, ROWS // WINDOW * OUT, ROWS // WINDOW
    for k, (block, row) in enumerate(TILES):
        image, total = k % 2 * cfg.bank_depth, k % 2 * cfg.bank_depth + size
        p.load(Mem.ACC8, image, x, (block * SIZE + row) * SIZE, x_size=size)
        p.gemm([(sums, 1, 0, 0)], total, reset=True)
        for dy, dx in np.ndindex(WINDOW, WINDOW):
            p.alu(AluOp.ADD, [(rows, OUT, WINDOW * SIZE), (OUT, 1, WINDOW)], total, image + dy * SIZE + dx)
        p.alu(AluOp.SHR, [(sums, 1, 0)], total, imm=2)
        p.store(total, y, (block * SIZE + row) * OUT // WINDOW, x_size=sums)
    return p


def better(cfg):
    """The sums by GEMM."""
    p = Program(cfg, "pool")
    x = p.buffer("x", (1, BLOCKS, SIZE, SIZE, cfg.batch, cfg.block_in))
    identity = np.eye(cfg.block_out, cfg.block_in, dtype=np.int8)[None]
    w = p.buffer("w", identity.shape, kind="constant", data=identity.view(np.uint8).reshape(-1))
    y = p.buffer("y", (1, BLOCKS, OUT, OUT, cfg.batch, cfg.block_out), cfg.out_bits, kind="output")
    p.load(Mem.WGT, 0, w, 0)
    size, sums, rows = ROWS * SIZE, ROWS // WINDOW * OUT, ROWS // WINDOW
    for k, (block, row) in enumerate(TILES):
        image, total = k % 2 * size, k % 2 * cfg.bank_depth
        p.load(Mem.INP, image, x, (block * SIZE + row) * SIZE, x_size=size)
        for tap, (dy, dx) in enumerate(np.ndindex(WINDOW, WINDOW)):
            window = [(rows, OUT, WINDOW * SIZE, 0), (OUT, 1, WINDOW, 0)]
            p.gemm(window, total, image + dy * SIZE + dx, 0, overwrite=tap == 0)
        p.alu(AluOp.SHR, [(sums, 1, 0)], total, imm=2)
        p.store(total, y, (block * SIZE + row) * OUT // WINDOW, x_size=sums)
    return p


def data(cfg, rng):
    """(inputs, expected outputs)."""
    x = rng.integers(-128, 128, (1, BLOCKS * cfg.block_out, SIZE, SIZE), np.int8)
    windows = [x[:, :, dy::WINDOW, dx::WINDOW] for dy, dx in np.ndindex(WINDOW, WINDOW)]
    y = np.sum(windows, axis=0, dtype=np.int32) >> 2
    packed = [layout.pack_activations(t.astype(np.int8), cfg, block=cfg.block_out) for t in (x, y)]
    return {"x": packed[0]}, {"y": packed[1]}
