"""A small matrix product in a single tile: everything is loaded, computed and stored once.

Nothing planted: no load can overlap the only GEMM, which needs all of it, and one slot is all that a single tile uses.
"""

import numpy as np

from tilewright.compiler.intrin import ACC, INP, WGT, tensorize_gemm
from tilewright.compiler.tvm_compat import Schedule, te
from tilewright.runtime import layout

ROWS, INNER, COLUMNS = 32, 64, 32


def expression(cfg):
    """`y = int8(x @ w.T)`, packed."""
    rows, inner, columns = ROWS // cfg.batch, INNER // cfg.block_in, COLUMNS // cfg.block_out
    x = te.placeholder((rows, inner, cfg.batch, cfg.block_in), "int8", "x")
    w = te.placeholder((columns, inner, cfg.block_out, cfg.block_in), "int8", "w")
    k, ki = te.reduce_axis((0, inner), "k"), te.reduce_axis((0, cfg.block_in), "ki")

    def product(i, j, bi, bj):
        return te.sum(x[i, k, bi, ki].astype("int32") * w[j, k, bj, ki].astype("int32"), axis=[k, ki])

    acc = te.compute((rows, columns, cfg.batch, cfg.block_out), product, name="acc")
    return te.create_prim_func([x, w, te.compute(acc.shape, lambda *i: acc(*i).astype("int8"), name="y")])


def schedule(cfg):
    """No tiles."""
    sch = Schedule(expression(cfg))
    acc = sch.get_sblock("acc")
    sch.cache_read(acc, 0, INP)
    sch.cache_read(acc, 1, WGT)
    sch.set_scope(acc, 0, ACC)
    i, j, bi, bj, k, ki = sch.get_loops(acc)
    sch.reorder(k, i, j, bi, bj, ki)
    sch.decompose_reduction(acc, k)
    tensorize_gemm(sch, acc, cfg)
    return sch


def data(cfg, rng):
    """(inputs, expected outputs)."""
    x, w = rng.integers(-128, 128, (ROWS, INNER), np.int8), rng.integers(-128, 128, (COLUMNS, INNER), np.int8)
    y = (x.astype(np.int32) @ w.astype(np.int32).T).astype(np.int8)
    inputs = {"x": layout.pack_dense_activations(x, cfg), "w": layout.pack_dense_weights(w, cfg)}
    return inputs, {"y": layout.pack_dense_activations(y, cfg, block=cfg.block_out)}
