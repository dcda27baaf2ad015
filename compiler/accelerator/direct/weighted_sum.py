"""Sums of two tensors on the multiplier array: weights of several digits, one row of DWGEMM each.

The operands are loaded into the input scratchpad, ahead of the array: unlike accumulator loads, their transfer takes no
time in the compute queue.
"""

from __future__ import annotations

import numpy as np

from ....hw.config import Config
from ....hw.isa import AluOp, Mem
from ... import graph as g
from ...graph.integer_forms import WeightedSum
from ..recording import Recording, entries, store_parameters
from .on_chip import on_chip

_TILE = 128  # entries: enough to hide what an instruction costs, and few enough for a short start and end


def possible(cfg: Config) -> bool:
    """True where the configuration has what `lower` needs."""
    return {"depthwise", "overwrite", "requant"} <= cfg.extensions


def lower(rec: Recording, op: g.Add, form: WeightedSum) -> None:
    """Append a sum or difference whose weights are `form`."""
    cfg, program, total = rec.cfg, rec.program, entries(rec, op.output)
    tile = min(_TILE, cfg.inp_depth // 4, cfg.acc_depth // 2, total)
    values = sorted({*form.x, *form.y} - {0})
    rows = np.zeros((-(-len(values) // cfg.block_in), cfg.block_in, cfg.block_out), np.int8)
    rows.reshape(-1, cfg.block_out)[: len(values)] = np.array(values)[:, None]
    reach = max(len(rows), cfg.wgt_depth // cfg.block_in)  # rows that micro-ops can address
    with on_chip(rec) as chip:
        wgt = chip.constant(Mem.WGT, rec.constant(f"{op.name}.w", rows), len(rows), reach)
        par = chip.constant(Mem.PAR, store_parameters(rec, op, form.store))
        inp, acc = chip.slots(Mem.INP, 2 * tile), chip.banks(tile, tile, cfg.acc_depth // 2)
        operands, out = (rec.operand(op, 0), rec.operand(op, 1)), rec.activations[op.output.name]
        row = {value: wgt * cfg.block_in + k for k, value in enumerate(values)}
        for k, first in enumerate(range(0, total, tile)):
            count, x, dst = min(tile, total - first), inp[k % 2], acc[k % 2]
            y = x + tile
            for base, operand in zip((x, y), operands):
                program.load(Mem.INP, base, operand, first, x_size=count)
            fresh = True
            for digits in zip(form.x, form.y):
                if not fresh:
                    program.alu(AluOp.SHR, [(count, 1, 0)], dst, imm=-8)
                for digit, base in zip(digits, (x, y)):
                    if digit:
                        program.gemm([(count, 1, 1, 0)], dst, base, row[digit], overwrite=fresh, depthwise=True)
                        fresh = False
            program.store(dst, out, first, x_size=count, par=par)
