"""Functions of one int8 value: bytes to the accumulators, one LOOKUP per entry, stores of the low bytes.

Tables stay in their places from operator to operator of a launch, the latest ones at a time.
"""

from __future__ import annotations

import numpy as np

from ....hw.config import Config
from ....hw.isa import AluOp, Mem, table_span
from ....hw.rtl.latencies import issue_interval
from ....runtime.layout import pack_table
from ... import cost
from ... import graph as g
from ..recording import Recording, entries
from .on_chip import on_chip

_TILE = 256  # entries: enough to hide what an instruction costs
_SLOTS = 4  # tiles on chip, in turns in both banks, and at least as many tiles: loads, LOOKUP and stores overlap


def possible(cfg: Config) -> bool:
    """True where the configuration has what `lower` needs."""
    return {"lookup", "acc8"} <= cfg.extensions


def cycles(count: int, cfg: Config) -> float:
    """Estimate for `count` entries: their micro-ops, and the load of the table, which nothing may hide."""
    table = cost.transfer(cfg, cfg.table_entries * cfg.par_entry_bytes) + cost.latency()
    return count * issue_interval(cfg, multiply=True) + table


def lower(rec: Recording, op: g.Lookup | g.Requantize) -> None:
    """Append the function, tile by tile."""
    cfg, program, total = rec.cfg, rec.program, entries(rec, op.output)
    tile = min(_TILE, cfg.acc_depth // _SLOTS, max(16, -(-total // _SLOTS)))
    table = loaded(rec, f"{op.name}.table", op.table)
    with on_chip(rec) as chip:
        banks = chip.banks(_SLOTS // 2 * tile, _SLOTS // 2 * tile, cfg.acc_depth // 2)
        x, out = rec.operand(op, 0), rec.activations[op.output.name]
        for k, first in enumerate(range(0, total, tile)):
            count, acc = min(tile, total - first), banks[k % 2] + k // 2 % (_SLOTS // 2) * tile
            program.load(Mem.ACC8, acc, x, first, x_size=count)
            program.alu(AluOp.LOOKUP, [(count, 1, 0)], acc, imm=table)
            program.store(acc, out, first, x_size=count)


def loaded(rec: Recording, name: str, table: np.ndarray) -> int:
    """The number of `table`, 256 integers, loaded in the place of the one that was used longest ago if it is not there.

    `name` is that of its constant. `rec.tables` has the numbers by content, the latest last.
    """
    cfg, content = rec.cfg, table.tobytes()
    number = rec.tables.pop(content, None)
    if number is None:
        number = len(rec.tables)
        if number == cfg.tables:
            number = rec.tables.pop(next(iter(rec.tables)))
        source = rec.constant(name, pack_table(table, cfg))
        rec.program.load(Mem.PAR, table_span(cfg, number).start, source, 0, x_size=cfg.table_entries)
    rec.tables[content] = number
    return number
