"""Rows of a constant table, chosen by a number that is known when a run begins: their address is a symbol."""

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
    """Reason why the accelerator cannot look the row up; empty if it can."""
    if why := root.needs(cfg):
        return why
    table, where = op.inputs
    if table.data is None or table.dtype != "int8" or len(table.shape) != 2 or op.axis:
        return "it is not a row of a constant int8 matrix"
    if (where.dtype, where.shape) != ("int32", (1,)) or where.data is not None:
        return f"it takes {where.dtype} {where.shape} of rows: must be one, an int32 input"
    return ""


def cycles(op: g.Gather, cfg: Config) -> float:
    """Estimated cycles: a row in and out."""
    return 2 * cost.transfer(cfg, op.output.nbytes) + cost.ROUND_TRIP


def lower(rec: Recording, op: g.Gather) -> None:
    """Append the load and the store of a row."""
    table, where = op.inputs
    count = entries(rec, op.output)
    assert table.data is not None  # `refusal` said so
    words = rec.constant(f"{op.name}.table", layout.pack_blocks(table.data, rec.cfg.batch, rec.cfg.block_in))
    with on_chip(rec) as chip:
        acc = chip.region(Mem.ACC, count)
        rec.program.load(Mem.ACC8, acc, words, 0, x_size=count, at=rec.symbol(where, step=count))
        rec.program.store(acc, rec.activations[op.output.name], 0, x_size=count)
