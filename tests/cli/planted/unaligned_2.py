"""A bias added to a matrix, one block of its columns after the other.

Planted: in memory the blocks of a row lie side by side, but a tile is one block of all rows, as a block has one bias:
rows of a single entry, 256 bytes apart, to load and to store.
Slow because each of these rows is a burst of its own, of 2 beats. Accumulators are loaded in the compute queue, so the
ALU waits for all of it.
Cycles: 18,490; better: 8,575; factor 2.2 (`better` has tiles of 8 whole rows).
"""

import numpy as np
from versions import versions

from tilewright.compiler.intrin import ACC
from tilewright.compiler.tvm_compat import Schedule, te
from tilewright.runtime import layout

ROWS, CHANNELS = 128, 256


def expression(cfg):
    """`y = int8(x + bias)`; `x` is (rows, blocks of channels, batch, block)."""
    shape = (ROWS // cfg.batch, CHANNELS // cfg.block_out, cfg.batch, cfg.block_out)
    x, bias = te.placeholder(shape, "int8", "x"), te.placeholder(shape[1:], "int32", "bias")
    wide = te.compute(shape, lambda *i: x(*i).astype("int32"), name="wide")
    total = te.compute(shape, lambda i, *c: wide(i, *c) + bias(*c), name="total")
    return te.create_prim_func([x, bias, te.compute(shape, lambda *i: total(*i).astype("int8"), name="y")])


def add_bias(cfg, by_rows):
    """Tiles of 8 whole rows, or of one block of all rows; two virtual threads."""
    sch = Schedule(expression(cfg))
    sch.cache_read(sch.get_sblock("total"), 1, ACC)  # all biases, once
    rows, channels, *_ = sch.get_loops(sch.get_sblock("y"))
    if by_rows:
        thread, tiles, _ = sch.split(rows, [2, None, 8])
    else:
        thread, tiles = sch.split(channels, [2, None])
        sch.reorder(thread, tiles, rows)
    sch.bind(thread, "vthread.x")
    for name in ("total", "wide"):
        block = sch.get_sblock(name)
        sch.set_scope(block, 0, ACC)
        sch.compute_at(block, tiles, preserve_unit_loops=True)
    return sch


schedule, better = versions(add_bias, by_rows=(False, True))


def data(cfg, rng):
    """(inputs, expected outputs)."""
    x, bias = rng.integers(-128, 128, (ROWS, CHANNELS), np.int8), rng.integers(-1000, 1000, CHANNELS, np.int32)
    y = (x + bias).astype(np.int8)
    inputs = {"x": layout.pack_dense_activations(x, cfg, block=cfg.block_out), "bias": layout.pack_bias(bias, cfg)}
    return inputs, {"y": layout.pack_dense_activations(y, cfg, block=cfg.block_out)}
