"""Sums of two tensors on the multiplier array: weights of several digits, one row of DWGEMM each.

The operands are loaded into the input scratchpad, ahead of the array: unlike accumulator loads, their transfer takes no
time in the compute queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np

from ....hw.config import Config
from ....hw.isa import AluOp, Mem
from ....runtime.buffer import Buffer
from ... import graph as g
from ...graph.integer_forms import WeightedSum
from ..recording import Recording, entries
from .on_chip import on_chip

_TILE = 128  # entries: enough to hide what an instruction costs, and few enough for a short start and end


def possible(cfg: Config) -> bool:
    """True where the configuration has what `lower` needs: two slots for an entry of each operand among them."""
    return {"depthwise", "overwrite", "requant"} <= cfg.extensions and cfg.inp_depth >= 4


def lower(rec: Recording, op: g.Add, form: WeightedSum) -> None:
    """Append a sum or difference whose weights are `form`; operands may have fewer channels than `rec.padded` says."""
    cfg, program = rec.cfg, rec.program
    pieces = _pieces(rec, op)
    kinds = [*dict.fromkeys(lanes for *_, lanes in pieces)]
    rows, row = _rows(cfg, form, kinds)
    tile = min(_TILE, cfg.inp_depth // 4, cfg.acc_depth // 2, max(count for _, count, _ in pieces))
    reach = max(len(rows), cfg.wgt_depth // cfg.block_in)  # rows that micro-ops can address
    with on_chip(rec) as chip:
        wgt = chip.constant(Mem.WGT, rec.constant(f"{op.name}.w", rows), len(rows), reach)
        par = chip.constant(Mem.PAR, _parameters(rec, op, form, kinds), len(kinds))
        inp, acc = chip.slots(Mem.INP, 2 * tile), chip.banks(tile, tile, cfg.acc_depth // 2)
        operands, out = (rec.operand(op, 0), rec.operand(op, 1)), rec.activations[op.output.name]
        parts = [
            (first, min(tile, start + total - first), lanes)
            for start, total, lanes in pieces
            for first in range(start, start + total, tile)
        ]
        for k, (first, count, lanes) in enumerate(parts):
            bases, dst = (inp[k % 2], inp[k % 2] + tile), acc[k % 2]
            for base, operand, many in zip(bases, operands, lanes):
                if many:
                    program.load(Mem.INP, base, operand, first, x_size=count)
            fresh = True
            for digits in zip(form.x, form.y):
                if not fresh:
                    program.alu(AluOp.SHR, [(count, 1, 0)], dst, imm=-8)
                for digit, base, many in zip(digits, bases, lanes):
                    if digit and many:
                        at = wgt * cfg.block_in + row[digit, many]
                        program.gemm([(count, 1, 1, 0)], dst, base, at, overwrite=fresh, depthwise=True)
                        fresh = False
            program.store(dst, out, first, x_size=count, par=par + kinds.index(lanes))


def _pieces(rec: Recording, op: g.Add) -> list[tuple[int, int, tuple[int, int]]]:
    """(first entry, entries, lanes that each operand has there) of the parts of the output that are alike."""
    block, total = rec.cfg.block_in, entries(rec, op.output)
    if not any(t.name in rec.padded for t in op.inputs):
        return [(0, total, (block, block))]
    blocks = -(-op.output.shape[1] // block)
    found: list[tuple[int, int, tuple[int, int]]] = []
    for k in range(blocks):
        first, second = (
            min(block, max(0, rec.padded[t.name].x.shape[1] - k * block)) if t.name in rec.padded else block
            for t in op.inputs
        )
        start, count, lanes = found[-1] if found else (0, 0, (0, 0))
        if found and lanes == (first, second):
            found[-1] = start, count + total // blocks, lanes
        else:
            found.append((start + count, total // blocks, (first, second)))
    return found


def _rows(
    cfg: Config, form: WeightedSum, kinds: Sequence[tuple[int, int]]
) -> tuple[np.ndarray, dict[tuple[int, int], int]]:
    """(the weights' entries, the row of each digit for so many lanes)."""
    wanted = {(d, many) for lanes in kinds for digits, many in zip((form.x, form.y), lanes) for d in digits if d * many}
    row = {one: k for k, one in enumerate(sorted(wanted))}
    rows = np.zeros((-(-len(row) // cfg.block_in), cfg.block_in, cfg.block_out), np.int8)
    for (digit, many), k in row.items():
        rows.reshape(-1, cfg.block_out)[k, :many] = digit
    return rows, row


def _parameters(rec: Recording, op: g.Add, form: WeightedSum, kinds: Sequence[tuple[int, int]]) -> Buffer:
    """The parameters of a store of each kind: in the lanes that an operand lacks, its padding is part of the bias."""
    block = rec.cfg.block_out
    bias = np.full((len(kinds), block), form.store.bias, np.int64)
    for lane_bias, lanes in zip(bias, kinds):
        for t, digits, many in zip(op.inputs, (form.x, form.y), lanes):
            if many < block:
                lane_bias[many:] += rec.padded[t.name].value * sum(d << 8 * k for k, d in enumerate(reversed(digits)))
    values = asdict(form.store) | {"bias": bias.reshape(-1)}
    return rec.parameters(f"{op.name}.par", **values)
