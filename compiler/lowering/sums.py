"""Sums of two tensors on the multiplier array: weights of several digits, one row of DWGEMM each.

What comes from `load` runs ahead of what the array computes, so that the operands' transfer costs no time of the
compute queue, unlike accumulator loads.
"""

from __future__ import annotations

import numpy as np

from ...hw.config import Config
from ...hw.isa import AluOp, Mem, depth
from ...runtime.buffer import Buffer
from .. import graph as g
from ..forms import WeightedSum
from .recording import Recording, entries, store_parameters

_TILE = 128  # entries: enough to hide what an instruction costs, and few enough for a short start and end


def possible(cfg: Config) -> bool:
    """Whether the configuration has what `weighted` needs."""
    return {"depthwise", "overwrite", "requant"} <= cfg.extensions


def weighted(rec: Recording, op: g.Add, form: WeightedSum) -> None:
    """Append a sum or difference whose weights are `form`."""
    cfg, program, place = rec.cfg, rec.program, rec.place
    total = entries(rec, op.output)
    tile = min(_TILE, cfg.inp_depth // 4, cfg.acc_depth // 2, total)
    values = sorted({*form.x, *form.y} - {0})
    rows = np.zeros((-(-len(values) // cfg.block_in), cfg.block_in, cfg.block_out), np.int8)
    rows.reshape(-1, cfg.block_out)[: len(values)] = np.array(values)[:, None]
    wgt = place.region(Mem.WGT, len(rows), 0, max(len(rows), cfg.wgt_depth // cfg.block_in))  # rows of micro-ops
    par = place.region(Mem.PAR, 1, 0, depth(cfg, Mem.PAR))
    half = cfg.acc_depth // 2
    accs = [place.region(Mem.ACC, tile, k * half, (k + 1) * half) for k in (0, 1)]
    inp = place.region(Mem.INP, 4 * tile, 0, cfg.inp_depth)
    program.load(Mem.WGT, wgt, rec.constant(f"{op.name}.w", rows), 0, x_size=len(rows))
    program.load(Mem.PAR, par, store_parameters(rec, op, form.store), 0)
    row = {value: wgt * cfg.block_in + k for k, value in enumerate(values)}
    operands = rec.operand(op, 0), rec.operand(op, 1)
    out: Buffer = rec.activations[op.output.name]
    for k, first in enumerate(range(0, total, tile)):
        count, acc = min(tile, total - first), accs[k % 2]
        x, y = (inp + (2 * (k % 2) + which) * tile for which in (0, 1))
        for base, operand in ((x, operands[0]), (y, operands[1])):
            program.load(Mem.INP, base, operand, first, x_size=count)
        fresh = True
        for digits in zip(form.x, form.y):
            if not fresh:
                program.alu(AluOp.SHR, [(count, 1, 0)], acc, imm=-8)
            for digit, base in zip(digits, (x, y)):
                if digit:
                    loops = [(count, 1, 1, 0)]
                    program.gemm(loops, acc, base, row[digit], overwrite=fresh, depthwise=True)
                    fresh = False
        program.store(acc, out, first, x_size=count, par=par)
    for mem, base, size in ((Mem.WGT, wgt, len(rows)), (Mem.PAR, par, 1), (Mem.INP, inp, 4 * tile)):
        place.use(mem, base, size)
    for acc in accs:
        place.use(Mem.ACC, acc, tile)
