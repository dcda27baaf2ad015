"""ReLU and a shift, element-wise, in tiles of a single entry.

Planted: everything is computed at the innermost loop over entries, so a tile has 16 numbers.
Slow because every load, ALU and store instruction does one entry. Each load of 16 bytes waits for the memory's latency,
and the ALU waits for each load.
Cycles: 24,159; better: 1,946; factor 12.4 (`better` has tiles of 64 entries).
"""

import numpy as np
from versions import versions

from tilewright.compiler.intrin import ACC
from tilewright.compiler.tvm_compat import Schedule, te, tirx

ENTRIES, TILE = 256, 64


def expression(cfg):
    """`y = int8(max(x, 0) >> 1)`."""
    shape = (ENTRIES // TILE, TILE, cfg.batch, cfg.block_out)
    x = te.placeholder(shape, "int8", "x")
    wide = te.compute(shape, lambda *i: x(*i).astype("int32"), name="wide")
    relu = te.compute(shape, lambda *i: te.max(wide(*i), tirx.const(0, "int32")), name="relu")
    half = te.compute(shape, lambda *i: relu(*i) >> tirx.const(1, "int32"), name="half")
    return te.create_prim_func([x, te.compute(shape, lambda *i: half(*i).astype("int8"), name="y")])


def relu(cfg, depth):
    """Everything inside loop number `depth`: 0 goes over tiles, 1 over entries."""
    sch = Schedule(expression(cfg))
    at = sch.get_loops(sch.get_sblock("y"))[depth]
    for name in ("half", "relu", "wide"):
        block = sch.get_sblock(name)
        sch.set_scope(block, 0, ACC)
        sch.compute_at(block, at, preserve_unit_loops=True)
    return sch


schedule, better = versions(relu, depth=(1, 0))


def data(cfg, rng):
    """(inputs, expected outputs)."""
    x = rng.integers(-128, 128, (ENTRIES // TILE, TILE, cfg.batch, cfg.block_out), np.int8)
    return {"x": x}, {"y": np.maximum(x, 0) >> 1}
