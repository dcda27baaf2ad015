"""The second operand of a product of matrices as entries of weights: copied, transposed, or as it lies."""

from __future__ import annotations

import numpy as np

from ....hw.isa import Mem
from ....runtime.buffer import Buffer
from ... import graph as g
from ..direct.on_chip import on_chip
from ..recording import Recording, place
from ..whole_blocks import TILE, in_whole_blocks
from .plan import Plan


def weights_of(rec: Recording, op: g.BatchMatMul, plan: Plan, y: Buffer) -> Buffer:
    """Entries of weights of the operand `y`: by blocks of sums, then of columns; if it is not transposed vice versa."""
    if plan.copied or place(y)[1] % rec.cfg.wgt_entry_bytes:
        y = in_whole_blocks(rec, op.name, op.inputs[1], y)
    return y if plan.transposed else _transposed(rec, op, plan, y)


def _transposed(rec: Recording, op: g.BatchMatMul, plan: Plan, y: Buffer) -> Buffer:
    """Every entry of weights of `y` with rows and lanes exchanged: it times each unit vector is one of its columns."""
    cfg, block = rec.cfg, rec.cfg.block_in
    turned = rec.buffer(f"{op.name}.columns", (plan.entries, cfg.block_out, block), kind="temp")
    most = max(1, min(TILE, cfg.acc_depth // 2, cfg.wgt_depth // 2 * block) // block)
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
