"""A matrix product whose reduction is not decomposed.

Planted: `schedule` reorders the reduction outermost and tensorizes, but never calls `decompose_reduction`.
Slow because the initialisation stays inside the nest, under a condition on the reduction's loop. So no perfect nest is
left but that of a single entry, and each of its steps becomes an instruction (and a load of micro-ops) of its own,
with a reset of its own in the first step.
Cycles: 18,201; better: 2,060; factor 8.8 (`better` decomposes at the loop `k`, around all outputs).
"""

import numpy as np

from tilewright.compiler.intrin import ACC, INP, WGT, tensorize_gemm
from tilewright.compiler.tvm_compat import Schedule, te
from tilewright.runtime import layout

ROWS, INNER, COLUMNS = 16, 128, 64


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


def matmul(cfg, decomposed):
    """Operands on chip as a whole, steps of the reduction outermost."""
    sch = Schedule(expression(cfg))
    acc = sch.get_sblock("acc")
    sch.cache_read(acc, 0, INP)
    sch.cache_read(acc, 1, WGT)
    sch.set_scope(acc, 0, ACC)
    i, j, bi, bj, k, ki = sch.get_loops(acc)
    sch.reorder(k, i, j, bi, bj, ki)
    if decomposed:
        sch.decompose_reduction(acc, k)
    tensorize_gemm(sch, acc, cfg)
    return sch


def schedule(cfg):
    """Without `decompose_reduction`."""
    return matmul(cfg, decomposed=False)


def better(cfg):
    """With it."""
    return matmul(cfg, decomposed=True)


def data(cfg, rng):
    """(inputs, expected outputs)."""
    x, w = rng.integers(-128, 128, (ROWS, INNER), np.int8), rng.integers(-128, 128, (COLUMNS, INNER), np.int8)
    y = (x.astype(np.int32) @ w.astype(np.int32).T).astype(np.int8)
    inputs = {"x": layout.pack_dense_activations(x, cfg), "w": layout.pack_dense_weights(w, cfg)}
    return inputs, {"y": layout.pack_dense_activations(y, cfg, block=cfg.block_out)}
