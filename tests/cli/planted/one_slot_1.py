"""A blocked matrix product with one slot for each operand.

Planted: inputs and weights are loaded per step of the reduction into a single tile each, without virtual threads.
Slow because a load has to wait until GEMM has read the tile before, and GEMM for the load: the two alternate, although
the scratchpads have room for several tiles.
Cycles: 12,654; better: 7,771; factor 1.6 (`better` asks for two slots, by annotation).
"""

import numpy as np

from tilewright.compiler.intrin import ACC, INP, SLOTS, WGT, tensorize_gemm
from tilewright.compiler.tvm_compat import Schedule, te
from tilewright.runtime import layout

ROWS, INNER, COLUMNS = 40, 512, 64
STEP = 4


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


def matmul(cfg, slots):
    """Steps of the reduction outermost; both operands are loaded in each."""
    sch = Schedule(expression(cfg))
    acc = sch.get_sblock("acc")
    x, w = sch.cache_read(acc, 0, INP), sch.cache_read(acc, 1, WGT)
    sch.set_scope(acc, 0, ACC)
    i, j, bi, bj, k, ki = sch.get_loops(acc)
    steps, k = sch.split(k, [None, STEP])
    sch.reorder(steps, k, i, j, bi, bj, ki)
    for block in (x, w):
        sch.compute_at(block, steps)
        if slots > 1:
            sch.annotate(block, SLOTS, slots)
    sch.decompose_reduction(acc, steps)
    tensorize_gemm(sch, acc, cfg)
    return sch


def schedule(cfg):
    """One tile of each operand."""
    return matmul(cfg, 1)


def better(cfg):
    """Two."""
    return matmul(cfg, 2)


def data(cfg, rng):
    """(inputs, expected outputs)."""
    x, w = rng.integers(-128, 128, (ROWS, INNER), np.int8), rng.integers(-128, 128, (COLUMNS, INNER), np.int8)
    y = (x.astype(np.int32) @ w.astype(np.int32).T).astype(np.int8)
    inputs = {"x": layout.pack_dense_activations(x, cfg), "w": layout.pack_dense_weights(w, cfg)}
    return inputs, {"y": layout.pack_dense_activations(y, cfg, block=cfg.block_out)}
