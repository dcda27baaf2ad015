"""Caches written in place: with rows, or the block of the latest, which a product with the identity transposes."""

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
        return _refuses_rows(op, cfg)
    if op.inputs[1].shape[2] != cfg.block_in:
        return f"a block of {op.inputs[1].shape[2]} positions: must be {cfg.block_in}"
    if op.x.shape[2] % cfg.block_in:
        return f"values of {op.x.shape[2]} elements: must be whole blocks of {cfg.block_in}"
    if op.x.shape[2] > cfg.acc_depth or op.x.shape[2] > cfg.wgt_depth * cfg.block_in:
        return f"values of {op.x.shape[2]} elements: at most {min(cfg.acc_depth, cfg.wgt_depth * cfg.block_in)}"
    return ""


def _refuses_rows(op: g.WriteRows, cfg: Config) -> str:
    tokens, blocks = op.inputs[1].shape[0], -(-op.x.shape[1] // cfg.block_in)
    if op.x.shape[2] % tokens:
        return f"{op.x.shape[2]} positions: must be whole blocks of {tokens} tokens"
    if tokens * blocks > cfg.acc_depth:
        return f"{tokens} rows of {op.x.shape[1]} elements: at most {cfg.acc_depth // tokens * cfg.block_in}"
    return ""


def cycles(op: g.Write, cfg: Config) -> float:
    """Estimated cycles: what is written is loaded before."""
    count = op.inputs[1].nbytes / cfg.out_entry_bytes
    return 2 * cost.transfer(cfg, op.inputs[1].nbytes) + count + cost.round_trip()


def rows(rec: Recording, op: g.WriteRows) -> None:
    """Append the loads and the store of the rows, which lie side by side in each block of the cache's channels."""
    size, tokens, count = op.x.shape[2], op.inputs[1].shape[0], entries(rec, op.inputs[1])
    blocks = count // tokens
    at = rec.symbol(op.inputs[2], block=size // tokens, within=tokens) if size > tokens else None
    with on_chip(rec) as chip:
        acc, source = chip.region(Mem.ACC, count), rec.operand(op, 1)
        if tokens == 1:
            rec.program.load(Mem.ACC8, acc, source, 0, x_size=count)
        else:
            for k in range(blocks):
                rec.program.load(Mem.ACC8, acc + k * tokens, source, k, y_size=tokens, x_size=1, x_stride=blocks)
        out = rec.activations[op.output.name]
        rec.program.store(acc, out, 0, y_size=blocks, x_size=tokens, x_stride=size, at=at)


def columns(rec: Recording, op: g.WriteColumns) -> None:
    """Append the transposed block, one entry of the cache per element of a value."""
    cfg, program, wide = rec.cfg, rec.program, op.x.shape[2]
    block, tiles = cfg.block_in, wide // cfg.block_in
    at = rec.symbol(op.inputs[2], step=wide, block=block // op.tokens)
    with on_chip(rec) as chip:
        identity = np.eye(block, dtype=np.int8)
        inp = chip.kept(Mem.INP, f"{op.name}.identity", identity, block)
        wgt, acc = chip.region(Mem.WGT, tiles), chip.region(Mem.ACC, wide)
        program.load(Mem.WGT, wgt, rec.operand(op, 1), 0, x_size=tiles)
        program.gemm([(tiles, block, 0, 1), (block, 1, 1, 0)], acc, inp, wgt, overwrite=True)
        program.store(acc, rec.activations[op.output.name], 0, x_size=wide, at=at)
