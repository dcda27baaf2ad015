"""Rotary embeddings: both halves of each chunk times the cosines and sines of the position, which are loaded for it."""

from __future__ import annotations

import numpy as np

from ....hw.config import Config
from ....hw.isa import AluOp, Mem
from ....hw.rtl.latencies import issue_interval, multiply_interval
from ....runtime import layout
from ....runtime.kernels.attention import TURN
from ... import cost
from ... import graph as g
from ..direct.on_chip import on_chip
from ..recording import Recording, entries
from . import root


def refusal(op: g.Rotate, cfg: Config) -> str:
    """Reason why the accelerator cannot compute the rotation; empty if it can."""
    if why := root.needs(cfg):
        return why
    if op.cosine.shape[1] % cfg.block_in:
        return f"halves of {op.cosine.shape[1]} elements: must be whole blocks of {cfg.block_in}"
    blocks, half = -(-op.x.shape[1] // cfg.block_in), cfg.acc_depth // 2
    if 2 * blocks > half:
        return f"{op.x.shape[1]} elements: at most {half // 2 * cfg.block_in}"
    return ""


def cycles(op: g.Rotate, cfg: Config) -> float:
    """Estimated cycles of compute and of the load of the angles, which nothing overlaps."""
    blocks, angles = op.x.shape[1] // cfg.block_in, cost.moved(cfg, 3 * 4 * op.cosine.shape[1])
    products = blocks * (1 + 2 * issue_interval(cfg, multiply=True)) + multiply_interval(cfg)
    return products + angles + 2 * cost.ROUND_TRIP


def lower(rec: Recording, op: g.Rotate) -> None:
    """Append the rotation."""
    cfg, program = rec.cfg, rec.program
    width, count, half = op.cosine.shape[1] // cfg.block_in, entries(rec, op.x), cfg.acc_depth // 2
    chunks = count // (2 * width)
    x, at = rec.operand(op, 0), rec.symbol(op.inputs[1], step=3 * width)
    with on_chip(rec) as chip:
        facts = {"zero_point": 0, "low": -128, "high": 127, "contract": "double"}
        turn = layout.pack_par(cfg, bias=np.zeros(cfg.block_out, int), multiplier=TURN[0], exponent=TURN[1], **facts)
        par = chip.kept(Mem.PAR, f"{op.name}.turn", turn, 1)
        # the products with the cosine in one bank, those with the sine in the other; factors in the other one each
        first, second = chip.banks(count + 2 * width, count + width, half)
        sines, cosines = first + count, second + count
        angles = rec.constant(f"{op.name}.angles", _angles(op, cfg))
        program.load(Mem.ACC, cosines, angles, 0, x_size=width, at=at)
        program.load(Mem.ACC, sines, angles, width, x_size=2 * width, at=at)
        program.load(Mem.ACC8, first, x, 0, x_size=count)
        program.load(Mem.ACC8, second, x, 0, x_size=count)
        program.alu(AluOp.MUL, [(2 * chunks, width, 0), (width, 1, 1)], first, cosines)
        program.alu(AluOp.MUL, [(chunks, 2 * width, 0), (2 * width, 1, 1)], second, sines)
        halves = np.array([(first, second + width), (first + width, second)])
        program.alu_uops(AluOp.ADD, halves, [(chunks, 2 * width, 2 * width), (width, 1, 1)])
        program.store(first, rec.activations[op.output.name], 0, x_size=count, par=par)


def _angles(op: g.Rotate, cfg: Config) -> np.ndarray:
    """int32 (positions, 3 blocks): cosines, then the sines for first halves, then those for second halves."""
    cosine, sine = op.cosine.astype(np.int32), op.sine.astype(np.int32)
    return np.stack([cosine, sine, -sine], axis=1).reshape(len(cosine), -1, 1, cfg.block_out)
