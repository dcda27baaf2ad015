"""Tables on chip: they stay in their places from operator to operator of a launch, the latest ones at a time."""

from __future__ import annotations

import numpy as np

from ....hw.isa import Mem, table_span
from ....runtime.layout import pack_table
from ..recording import Recording


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
