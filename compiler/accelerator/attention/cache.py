"""Caches written in place: with a row, or the block of the latest, which a product with the identity transposes."""

from __future__ import annotations

import numpy as np

from ....hw.config import Config
from ....hw.isa import Mem
from ... import cost
from ... import graph as g
from ..direct.on_chip import on_chip
from ..recording import Recording, entries
from . import root


def refusal(op: g.Write, cfg: Config) -> str:
    """Reason why the accelerator cannot write the cache; empty if it can."""
    if why := root.needs(cfg):
        return why
    if isinstance(op, g.WriteRows):
        return ""
    if op.inputs[1].shape[2] != cfg.block_in:
        return f"a block of {op.inputs[1].shape[2]} positions: must be {cfg.block_in}"
    if op.x.shape[2] % cfg.block_in:
        return f"values of {op.x.shape[2]} elements: must be whole blocks of {cfg.block_in}"
    if op.x.shape[2] > cfg.acc_depth or op.x.shape[2] > cfg.wgt_depth * cfg.block_in:
        return f"values of {op.x.shape[2]} elements: at most {min(cfg.acc_depth, cfg.wgt_depth * cfg.block_in)}"
    return ""


def cycles(op: g.Write, cfg: Config) -> float:
    """Estimated cycles: what is written is loaded before."""
    count = op.inputs[1].nbytes / cfg.out_entry_bytes
    return 2 * cost.transfer(cfg, op.inputs[1].nbytes) + count + cost.ROUND_TRIP


def rows(rec: Recording, op: g.WriteRows) -> None:
    """Append the load and the store of a row."""
    size, count = op.x.shape[2], entries(rec, op.inputs[1])
    at = rec.symbol(op.inputs[2], block=size, within=1)
    with on_chip(rec) as chip:
        acc = chip.region(Mem.ACC, count)
        rec.program.load(Mem.ACC8, acc, rec.operand(op, 1), 0, x_size=count)
        rec.program.store(acc, rec.activations[op.output.name], 0, y_size=count, x_stride=size, at=at)


def columns(rec: Recording, op: g.WriteColumns) -> None:
    """Append the transposed block, one entry of the cache per element of a value."""
    cfg, program, wide = rec.cfg, rec.program, op.x.shape[2]
    block, tiles = cfg.block_in, wide // cfg.block_in
    at = rec.symbol(op.inputs[2], step=wide, block=block)
    with on_chip(rec) as chip:
        identity = np.eye(block, dtype=np.int8)
        inp = chip.kept(Mem.INP, f"{op.name}.identity", identity, block)
        wgt, acc = chip.region(Mem.WGT, tiles), chip.region(Mem.ACC, wide)
        program.load(Mem.WGT, wgt, rec.operand(op, 1), 0, x_size=tiles)
        program.gemm([(tiles, block, 0, 1), (block, 1, 1, 0)], acc, inp, wgt, overwrite=True)
        program.store(acc, rec.activations[op.output.name], 0, x_size=wide, at=at)
