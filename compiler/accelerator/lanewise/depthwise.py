"""Products of matrices, one per lane, on the multiplier array, which multiplies and adds channel by channel (DWGEMM).

The first operand is copied to whole entries of weights, whose rows are its elements; the second one is read as inputs.
Where elements that are added follow one another in both, several are added in a cycle.
"""

from __future__ import annotations

import numpy as np

from ....hw.config import Config
from ....hw.isa import Mem
from ... import cost
from ... import graph as g
from ..direct.on_chip import KEPT, on_chip
from ..recording import Recording


def together(op: g.BatchMatMul, cfg: Config) -> int:
    """How many rows of the result fit the scratchpads at a time; 0 if `cfg` cannot compute it so."""
    needs = {"acc8", "depthwise", "overwrite", "requant"}
    if needs - cfg.extensions or any(t.zero_point for t in op.inputs):
        return 0
    rows, inner, width = op.x.shape[2], op.inner, op.output.shape[-1]
    own, room = len(op.x.shape) == 5, cfg.inp_depth - cfg.inp_depth // KEPT
    if inner * width > room:
        return 0
    fits = [rows, cfg.wgt_depth // inner, cfg.acc_depth // 2 // width, room // (inner * width) if own else rows]
    return min(fits)


def cycles(op: g.BatchMatMul, cfg: Config) -> float:
    """Estimated cycles: products, and the waits for the copy and for loads."""
    rows, inner, width = op.x.shape[2], op.inner, op.output.shape[-1]
    own, tiles = len(op.x.shape) == 5, -(-rows // together(op, cfg))
    products = rows * inner * width / _taps(op, cfg)
    read = inner * (rows * 3 + width * (rows if own else tiles))
    loads = cost.moved(cfg, read * cfg.inp_entry_bytes)
    store = cost.moved(cfg, rows * width * cfg.out_entry_bytes)
    return -(-op.x.shape[1] // cfg.block_in) * (max(products, loads) + store + tiles * 4 * cost.round_trip())


def lower(rec: Recording, op: g.BatchMatMul) -> None:
    """Append the product, some rows at a time."""
    cfg, (_, channels, rows, *_), inner, width = rec.cfg, op.x.shape, op.inner, op.output.shape[-1]
    multiplier, exponent = op.multipliers
    facts = {"multiplier": multiplier, "exponent": exponent, "zero_point": op.output.zero_point, "contract": "double"}
    parameters = rec.parameters(f"{op.name}.par", bias=0, **facts, low=-128, high=127)
    x, y, out = rec.operand(op, 0), rec.operand(op, 1), rec.activations[op.output.name]
    most, own, entries = together(op, cfg), len(op.x.shape) == 5, inner * width
    for block in range(-(-channels // cfg.block_in)):
        for row in range(0, rows, most):
            count, first = min(most, rows - row), block * rows + row
            with on_chip(rec) as chip:
                par = chip.constant(Mem.PAR, parameters)
                tiles = -(-count * inner // cfg.block_in)
                copied = tiles * cfg.block_in  # whole entries of weights
                copy, acc = chip.banks(copied, count * width, cfg.acc_depth // 2)
                wgt = chip.region(Mem.WGT, tiles, 0, cfg.wgt_depth // cfg.block_in)
                inp = chip.region(Mem.INP, entries * (count if own else 1))
                weights = rec.buffer(f"{op.name}.{first}.weights", (copied, 1, cfg.block_in), kind="temp")
                pads = (0, 0, 0, copied - count * inner)
                rec.program.load(Mem.ACC8, copy, x, first * inner, x_size=count * inner, pads=pads)
                rec.program.store(copy, weights, 0, x_size=copied)
                place = (first if own else block) * entries
                rec.program.load(Mem.INP, inp, y, place, x_size=entries * (count if own else 1))
                rec.program.load(Mem.WGT, wgt, weights, 0, x_size=tiles)
                _products(rec, op, (acc, inp, wgt), count)
                rec.program.store(acc, out, first * width, x_size=count * width, par=par)


def _products(rec: Recording, op: g.BatchMatMul, bases: tuple[int, int, int], count: int) -> None:
    """Append the sums of `count` rows; the first products replace what the accumulators hold."""
    cfg, inner, width = rec.cfg, op.inner, op.output.shape[-1]
    taps, entries = _taps(op, cfg), inner * width
    acc, inp, wgt = bases
    base, steps = (acc, inp, wgt * cfg.block_in // taps), inner // taps
    down, across = (
        (inner, 1) if op.transposed else (1, width)
    )  # from a column of the result, or an element, to the next
    rows = (count, width, entries if len(op.x.shape) == 5 else 0, steps)
    step = np.array([0, taps * across, 1])
    columns = np.array([(1, down, 0)]) * np.arange(width)[:, None]
    rec.program.gemm_uops(columns + base, [rows], depthwise=True, overwrite=True, taps=taps)
    if steps > 1:
        rec.program.gemm_uops(columns + base + step, [rows, (steps - 1, *step)], depthwise=True, taps=taps)


def _taps(op: g.BatchMatMul, cfg: Config) -> int:
    """Products of each element of the result in a cycle."""
    return cfg.row_taps if op.transposed and "depthwise_rows" in cfg.extensions and not op.inner % cfg.row_taps else 1
