"""Functions of one int8 value, by a table on chip, where it stays for the operators that follow in a launch."""

from __future__ import annotations

from .. import graph as g
from .elementwise import need_one_shape
from .language import TILE, Kernel, by_shape

_TILES = 4  # on chip, two in each bank, and at least as many in all: loads, look-ups and stores overlap


@by_shape(lambda op: ())
def lookup(k: Kernel, op: g.Lookup | g.Requantize) -> None:
    """Bytes to the accumulators, one LOOKUP per entry, stores of the low bytes."""
    k.need("lookup", "acc8")
    need_one_shape(op)
    x, out = k.input(0).merged("entry"), k.output.merged("entry")
    size = min(TILE, k.cfg.acc_depth // _TILES, max(16, -(-x.size // _TILES)))
    table = k.table("table", op.table)
    ys = k.banks(size, places=_TILES // 2)
    for part, target in zip(x.parts(size), out.parts(size)):
        y = ys.load(part)
        y.lookup(table)
        k.store(target, y)
