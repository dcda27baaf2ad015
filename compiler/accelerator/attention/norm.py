"""Root mean square norms of rows of channels: squares, their sum over lanes and blocks, one over its root, products."""

from __future__ import annotations

from ....hw.config import Config
from ....hw.isa import AluOp, Mem
from ....hw.rtl.latencies import issue_interval, multiply_interval
from ... import cost
from ... import graph as g
from ..direct.on_chip import on_chip
from ..recording import Recording, packed_shape
from . import root

_ROWS = 16  # together: enough to hide the latency of products


def refusal(op: g.RmsNorm, cfg: Config) -> str:
    """Reason why the accelerator cannot compute the norm; empty if it can."""
    if why := root.needs(cfg):
        return why
    if len(op.x.shape) != 2:
        return f"{len(op.x.shape)} dimensions: only rows of channels"
    blocks, room = -(-op.x.shape[1] // cfg.block_in), min(cfg.acc_depth // 2 - root.COPIES, cfg.par_entries)
    if blocks > room:
        return f"rows of {op.x.shape[1]} elements: at most {room * cfg.block_in}"
    return ""


def cycles(op: g.RmsNorm, cfg: Config) -> float:
    """Estimated cycles of compute and of the load of the gains, which nothing overlaps."""
    rows, blocks = packed_shape(op.x.shape, cfg)[:2]
    products, tiles = 2 * rows * blocks * issue_interval(cfg, multiply=True), -(-rows // _ROWS)
    waits = 6 * multiply_interval(cfg) + 2 * cost.round_trip()
    gains = cost.moved(cfg, blocks * cfg.par_entry_bytes)
    return products + rows * blocks + tiles * (root.cycles(min(rows, _ROWS), cfg) + waits) + gains


def lower(rec: Recording, op: g.RmsNorm) -> None:
    """Append the norm, some rows at a time."""
    cfg, program = rec.cfg, rec.program
    rows, blocks = packed_shape(op.x.shape, cfg)[:2]
    multiplier, exponent = op.multipliers
    values = {"bias": multiplier * 0, "multiplier": multiplier, "exponent": exponent, "zero_point": 0}
    parameters = rec.parameters(f"{op.name}.par", **values, low=-128, high=127, contract="double")
    tables = root.tables(rec, op.name)
    most = min(rows, _ROWS, cfg.acc_depth // 2 // (blocks + root.COPIES))
    x, out = rec.operand(op, 0), rec.activations[op.output.name]
    with on_chip(rec) as chip:
        par = chip.constant(Mem.PAR, parameters, blocks)
        size = most * blocks
        for first in range(0, rows, most):
            count = min(most, rows - first)
            values, squares = chip.banks(size, size + root.COPIES * most, cfg.acc_depth // 2)
            sums = squares + size
            program.gemm([(root.COPIES * count, 1, 0, 0)], sums, reset=True)
            program.load(Mem.ACC8, squares, x, first * blocks, x_size=count * blocks)
            program.load(Mem.ACC8, values, x, first * blocks, x_size=count * blocks)
            program.alu(AluOp.MUL, [(count * blocks, 1, 1)], squares, values)
            if blocks > 1:
                program.alu(AluOp.ADD, [(count, blocks, blocks), (blocks - 1, 0, 1)], squares, squares + 1)
            program.alu(AluOp.REDUCE, [(count, blocks, 0)], squares, imm=0)
            if op.shift:
                program.alu(AluOp.SHR, [(count, blocks, 0)], squares, imm=op.shift)
            program.alu(AluOp.ADD, [(root.COPIES, count, 0), (count, 1, blocks)], sums, squares)
            inverse = root.inverse_root(rec, tables, sums, count)
            program.alu(AluOp.MUL, [(count, blocks, 1), (blocks, 1, 0)], values, inverse)
            for row in range(count):
                program.store(values + row * blocks, out, (first + row) * blocks, y_size=blocks, par=par, par_step=1)
