"""Rows of a constant table, chosen by numbers that are known when a run begins: their addresses are symbols."""

from __future__ import annotations

from ....hw.config import Config
from ....hw.isa import Mem
from ....runtime import layout
from ... import cost
from ... import graph as g
from ..direct.on_chip import on_chip
from ..recording import Recording, entries
from . import root


def refusal(op: g.Gather, cfg: Config) -> str:
    """Reason why the accelerator cannot look the rows up; empty if it can."""
    if why := root.needs(cfg):
        return why
    table, where = op.inputs
    if table.data is None or table.dtype != "int8" or len(table.shape) != 2 or op.axis:
        return "it is not a row of a constant int8 matrix"
    if where.dtype != "int32" or len(where.shape) != 1 or where.shape[0] > cfg.block_in or where.data is not None:
        return f"it takes {where.dtype} {where.shape} of rows: must be an int32 input of at most {cfg.block_in}"
    most = cfg.acc_depth // where.shape[0] * cfg.block_in
    return f"{where.shape[0]} rows of {table.shape[1]} elements: at most {most}" if table.shape[1] > most else ""


def cycles(op: g.Gather, cfg: Config) -> float:
    """Estimated cycles: rows in and out."""
    return 2 * cost.transfer(cfg, op.output.nbytes) + cost.round_trip()


def lower(rec: Recording, op: g.Gather) -> None:
    """Append a load per row and the store of all."""
    table, where = op.inputs
    rows, count = where.shape[0], entries(rec, op.output)
    row = count // rows
    assert table.data is not None  # `refusal` said so
    words = rec.constant(f"{op.name}.table", layout.pack_blocks(table.data, rec.cfg.batch, rec.cfg.block_in))
    with on_chip(rec) as chip:
        acc = chip.region(Mem.ACC, count)
        for k in range(rows):
            rec.program.load(Mem.ACC8, acc + k * row, words, 0, x_size=row, at=rec.symbol(where, k, step=row))
        rec.program.store(acc, rec.activations[op.output.name], 0, x_size=count)
