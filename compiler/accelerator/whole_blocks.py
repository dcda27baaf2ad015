"""Images of rows as entries of weights: a copy with zeros behind rows and channels, to whole blocks of both."""

from __future__ import annotations

import math

import numpy as np

from ...hw.isa import Mem
from ...runtime.buffer import Buffer
from .. import graph as g
from .direct.on_chip import on_chip
from .recording import Recording

TILE = 512  # entries of inputs: enough to hide what an instruction costs, and few enough for a short start and end


def in_whole_blocks(rec: Recording, name: str, t: g.Tensor, y: Buffer) -> Buffer:
    """A copy of `y`, the image `t` of rows, with zeros behind its rows and channels, to whole blocks of both.

    `name` is that of the operator that reads it.
    """
    cfg = rec.cfg
    (n, channels, *size), block = t.shape, cfg.block_in
    rows = math.prod(size)
    blocks, height, lanes = -(-channels // block), -(-rows // block) * block, channels % block or block
    copy = rec.buffer(f"{name}.rows", (n, blocks, height, cfg.batch, block), kind="temp")
    most = min(TILE, cfg.inp_depth // 2, cfg.acc_depth // 2) // block * block
    together = max(1, most // height)  # blocks of channels in a tile
    if together > blocks:
        together = together // blocks * blocks
    with on_chip(rec) as chip:
        whole = np.eye(cfg.block_out, block, dtype=np.int8)
        cut = whole * (np.arange(block) < lanes)
        wgt = chip.constant(Mem.WGT, rec.constant(f"{name}.lanes", np.stack([whole, cut])), 2)
        inp, acc = chip.slots(Mem.INP, most), chip.banks(most, most, cfg.acc_depth // 2)
        parts = [
            (first, min(together, n * blocks - first), row, min(most, height - row))
            for first in range(0, n * blocks, together)
            for row in range(0, height, most if together == 1 else height)
        ]
        for k, (first, count, row, size) in enumerate(parts):
            base, dst = inp[k % 2], acc[k % 2]
            behind = max(0, row + size - rows)
            where, pads = first * rows + row, (0, 0, 0, behind)
            rec.program.load(Mem.INP, base, y, where, y_size=count, x_size=size - behind, x_stride=rows, pads=pads)
            last = [j for j in range(count) if (first + j) % blocks == blocks - 1]
            for chosen, matrix in (([j for j in range(count) if j not in last], wgt), (last, wgt + 1)):
                uops = [(dst + j * size, base + j * size, matrix) for j in chosen]
                if uops:
                    rec.program.gemm_uops(np.array(uops), [(size, 1, 1, 0)], overwrite=True)
            rec.program.store(dst, copy, first * height + row, x_size=count * size)
    return copy
