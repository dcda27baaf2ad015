"""The second operand of a product of matrices as entries of weights: copied, transposed, or as it lies."""

from __future__ import annotations

import math

import numpy as np

from ....hw.isa import Mem
from ....runtime.buffer import Buffer
from ... import graph as g
from ..direct.on_chip import on_chip
from ..recording import Recording, place
from .plan import Plan

_TILE = 512  # entries of inputs: enough to hide what an instruction costs, and few enough for a short start and end


def weights_of(rec: Recording, op: g.BatchMatMul, plan: Plan, y: Buffer) -> Buffer:
    """Entries of weights of the operand `y`: by blocks of sums, then of columns; if it is not transposed vice versa."""
    if plan.copied or place(y)[1] % rec.cfg.wgt_entry_bytes:
        y = in_whole_blocks(rec, op.name, op.inputs[1], y)
    return y if plan.transposed else _transposed(rec, op, plan, y)


def in_whole_blocks(rec: Recording, name: str, t: g.Tensor, y: Buffer) -> Buffer:
    """A copy of `y`, the image `t` of rows, with zeros behind its rows and channels, to whole blocks of both.

    `name` is that of the operator that reads it.
    """
    cfg = rec.cfg
    (n, channels, *size), block = t.shape, cfg.block_in
    rows = math.prod(size)
    blocks, height, lanes = -(-channels // block), -(-rows // block) * block, channels % block or block
    copy = rec.buffer(f"{name}.rows", (n, blocks, height, cfg.batch, block), kind="temp")
    most = min(_TILE, cfg.inp_depth // 2, cfg.acc_depth // 2) // block * block
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


def _transposed(rec: Recording, op: g.BatchMatMul, plan: Plan, y: Buffer) -> Buffer:
    """Every entry of weights of `y` with rows and lanes exchanged: it times each unit vector is one of its columns."""
    cfg, block = rec.cfg, rec.cfg.block_in
    turned = rec.buffer(f"{op.name}.columns", (plan.entries, cfg.block_out, block), kind="temp")
    most = max(1, min(_TILE, cfg.acc_depth // 2, cfg.wgt_depth // 2 * block) // block)
    with on_chip(rec) as chip:
        units = rec.constant(f"{op.name}.units", np.eye(block, dtype=np.int8)[:, None])
        inp = chip.constant(Mem.INP, units, block)
        wgt, acc = chip.slots(Mem.WGT, most), chip.banks(most * block, most * block, cfg.acc_depth // 2)
        for k, first in enumerate(range(0, plan.entries, most)):
            count = min(most, plan.entries - first)
            rec.program.load(Mem.WGT, wgt[k % 2], y, first, x_size=count)
            loops = [(count, block, 0, 1), (block, 1, 1, 0)]
            rec.program.gemm(loops, acc[k % 2], inp, wgt[k % 2], overwrite=True)
            rec.program.store(acc[k % 2], turned, first * block, x_size=count * block)
    return turned
