"""A matrix product that loads its weights again for every tile of rows.

Planted: the weights are loaded inside the loop over tiles of rows, step by step, although all of them fit on chip.
Slow because the same 128 entries are read from memory eight times: with 16 rows in a tile, their load takes longer than
the products that use them, so GEMM waits for weights that it had before.
Cycles: 41,819; better: 23,444; factor 1.8 (`better` loads them once, before all loops).
"""

import numpy as np

from tilewright.compiler.intrin import ACC, INP, SLOTS, WGT, tensorize_gemm
from tilewright.compiler.tvm_compat import Schedule, te
from tilewright.runtime import layout

ROWS, INNER, COLUMNS = 128, 512, 64
TILE, STEP = 16, 4


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


def matmul(cfg, once):
    """Tiles of rows, in each steps of the reduction, two slots for what is loaded inside them."""
    sch = Schedule(expression(cfg))
    acc = sch.get_sblock("acc")
    x, w = sch.cache_read(acc, 0, INP), sch.cache_read(acc, 1, WGT)
    sch.set_scope(acc, 0, ACC)
    i, j, bi, bj, k, ki = sch.get_loops(acc)
    tiles, i = sch.split(i, [None, TILE])
    steps, k = sch.split(k, [None, STEP])
    sch.reorder(tiles, steps, k, i, j, bi, bj, ki)
    sch.compute_at(x, tiles)
    sch.annotate(x, SLOTS, 2)
    if not once:
        sch.compute_at(w, steps)
        sch.annotate(w, SLOTS, 2)
    sch.reverse_compute_at(sch.get_sblock("y"), tiles)
    sch.decompose_reduction(acc, steps)
    tensorize_gemm(sch, acc, cfg)
    return sch


def schedule(cfg):
    """Weights per tile and step."""
    return matmul(cfg, once=False)


def better(cfg):
    """Weights once."""
    return matmul(cfg, once=True)


def data(cfg, rng):
    """(inputs, expected outputs)."""
    x, w = rng.integers(-128, 128, (ROWS, INNER), np.int8), rng.integers(-128, 128, (COLUMNS, INNER), np.int8)
    y = (x.astype(np.int32) @ w.astype(np.int32).T).astype(np.int8)
    inputs = {"x": layout.pack_dense_activations(x, cfg), "w": layout.pack_dense_weights(w, cfg)}
    return inputs, {"y": layout.pack_dense_activations(y, cfg, block=cfg.block_out)}
