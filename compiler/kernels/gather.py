"""Rows of a constant table, as embeddings of words: symbols, known when a run begins, are their addresses."""

from __future__ import annotations

from ...hw.isa import Mem
from ...runtime.symbols import MOST_LIMIT
from .. import graph as g
from .language import Kernel, Unfit, by_shape
from .roots import need_roots


@by_shape()
def gather(k: Kernel, op: g.Gather) -> None:
    """A load for each row, and one store of all. It pays where norms and attention follow on the accelerator."""
    need_roots(k)
    table, where = op.inputs
    if table.data is None or table.dtype != "int8" or len(table.shape) != 2 or op.axis:
        raise Unfit("it is not a row of a constant int8 matrix")
    if where.dtype != "int32" or len(where.shape) != 1 or where.shape[0] > k.cfg.block_in or where.data is not None:
        raise Unfit(f"it takes {where.dtype} {where.shape} of rows: must be an int32 input of at most {k.cfg.block_in}")
    if table.shape[0] > MOST_LIMIT:
        raise Unfit(f"a table of {table.shape[0]} rows: at most {MOST_LIMIT}")
    rows, out = k.packed_constant("table", table.data), k.output
    found = k.tile(Mem.ACC, **out.shape)
    for number in range(where.shape[0]):
        k.load(found[number], rows[0].moved(k.symbol(1, number, step=rows.axis("n").step)))
    k.store(out, found)
