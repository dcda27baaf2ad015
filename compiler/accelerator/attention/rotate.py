"""Rotary embeddings: both halves of each chunk times the cosines and sines of the position, which are loaded for it."""

from __future__ import annotations

import numpy as np

from ....hw.config import Config
from ....hw.isa import AluOp, Mem
from ....hw.rtl.latencies import issue_interval, multiply_interval
from ....runtime import layout
from ....runtime.buffer import Buffer
from ....runtime.kernels.attention import TURN
from ... import cost
from ... import graph as g
from ..direct.on_chip import OnChip, on_chip
from ..recording import Recording, entries
from . import root


def refusal(op: g.Rotate, cfg: Config) -> str:
    """Reason why the accelerator cannot compute the rotation; empty if it can."""
    if why := root.needs(cfg):
        return why
    if op.cosine.shape[1] % cfg.block_in:
        return f"halves of {op.cosine.shape[1]} elements: must be whole blocks of {cfg.block_in}"
    if not _at_once(op, cfg):
        most = cfg.acc_depth // 2 * cfg.block_in - 2 * op.cosine.shape[1]
        return f"{op.x.shape[1]} elements: at most {most}"
    return ""


def _at_once(op: g.Rotate, cfg: Config) -> int:
    """How many rows fit a bank, with their angles."""
    row = -(-op.x.shape[1] // cfg.block_in) + 2 * op.cosine.shape[1] // cfg.block_in
    return min(op.x.shape[0], cfg.acc_depth // 2 // row)


def cycles(op: g.Rotate, cfg: Config) -> float:
    """Estimated cycles of compute and of the load of the angles, which nothing overlaps."""
    tokens, elements = op.x.shape
    blocks, angles = tokens * elements // cfg.block_in, cost.moved(cfg, tokens * 3 * 4 * op.cosine.shape[1])
    products = blocks * (1 + 2 * issue_interval(cfg, multiply=True)) + multiply_interval(cfg)
    return products + angles + 2 * cost.round_trip() * -(-tokens // _at_once(op, cfg))


def lower(rec: Recording, op: g.Rotate) -> None:
    """Append the rotation, some rows at a time."""
    cfg = rec.cfg
    angles = rec.constant(f"{op.name}.angles", _angles(op, cfg))
    with on_chip(rec) as chip:
        facts = {"zero_point": 0, "low": -128, "high": 127, "contract": "double"}
        turn = layout.pack_par(cfg, bias=np.zeros(cfg.block_out, int), multiplier=TURN[0], exponent=TURN[1], **facts)
        par = chip.kept(Mem.PAR, f"{op.name}.turn", turn, 1)
        tokens, most = op.x.shape[0], _at_once(op, cfg)
        for first in range(0, tokens, most):
            _rows(rec, op, chip, angles, par, range(first, min(first + most, tokens)))


def _rows(rec: Recording, op: g.Rotate, chip: OnChip, angles: Buffer, par: int, rows: range) -> None:
    """Append the rotation of `rows`."""
    program, width = rec.program, op.cosine.shape[1] // rec.cfg.block_in
    blocks = entries(rec, op.x) // op.x.shape[0]
    count, turned, chunks = len(rows) * blocks, len(rows) * width, blocks // (2 * width)
    # the products with the cosine in one bank, those with the sine in the other; factors in the other one each
    first, second = chip.banks(count + 2 * turned, count + turned, rec.cfg.acc_depth // 2)
    sines, cosines = first + count, second + count
    at, pitch = rec.symbol(op.inputs[1], step=op.x.shape[0] * 3 * width), 3 * width
    for acc, place, size in ((cosines, 0, width), (sines, width, 2 * width)):
        at_row = rows.start * pitch + place
        program.load(Mem.ACC, acc, angles, at_row, y_size=len(rows), x_size=size, x_stride=pitch, at=at)
    for acc in (first, second):
        program.load(Mem.ACC8, acc, rec.operand(op, 0), rows.start * blocks, x_size=count)
    by_cosine, by_sine = (
        np.array([(acc + k * blocks, factor + k * size) for k in range(len(rows))])
        for acc, factor, size in ((first, cosines, width), (second, sines, 2 * width))
    )
    program.alu_uops(AluOp.MUL, by_cosine, [(2 * chunks, width, 0), (width, 1, 1)])
    program.alu_uops(AluOp.MUL, by_sine, [(chunks, 2 * width, 0), (2 * width, 1, 1)])
    halves = np.array([(first, second + width), (first + width, second)])
    program.alu_uops(AluOp.ADD, halves, [(len(rows) * chunks, 2 * width, 2 * width), (width, 1, 1)])
    program.store(first, rec.activations[op.output.name], rows.start * blocks, x_size=count, par=par)


def _angles(op: g.Rotate, cfg: Config) -> np.ndarray:
    """int32 (positions, 3 blocks): cosines, then the sines for first halves, then those for second halves."""
    cosine, sine = op.cosine.astype(np.int32), op.sine.astype(np.int32)
    return np.stack([cosine, sine, -sine], axis=1).reshape(len(cosine), -1, 1, cfg.block_out)
