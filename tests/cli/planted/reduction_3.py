"""A depthwise convolution whose reduction is decomposed at the wrong loop.

Planted: the kernel's loops are left inside those of the output, and `decompose_reduction` is called there.
Slow because the accumulators are initialised pixel by pixel, with an instruction each, and between two of these only
the nine products of one pixel are left for DWGEMM.
Cycles: 9,398; better: 2,159; factor 4.4 (`better` has the kernel's loops outside those of the output, and decomposes
there, once).
"""

import numpy as np
from versions import versions

from tilewright.compiler.intrin import ACC, INP, WGT, tensorize_depthwise
from tilewright.compiler.tvm_compat import Schedule, te
from tilewright.runtime import layout

SIZE, CHANNELS, KERNEL = 14, 16, 3
OUT = SIZE - KERNEL + 1


def expression(cfg):
    """`y = int8(sum of x times w over windows)`, packed, for channels of one block."""
    block = cfg.block_out
    x = te.placeholder((SIZE, SIZE, cfg.batch, block), "int8", "x")
    w = te.placeholder((1, block, block), "int8", "w")
    ky, kx = te.reduce_axis((0, KERNEL), "ky"), te.reduce_axis((0, KERNEL), "kx")

    def product(row, column, b, j):
        tap = ky * KERNEL + kx
        return te.sum(x[row + ky, column + kx, b, j].astype("int32") * w[0, tap, j].astype("int32"), axis=[ky, kx])

    acc = te.compute((OUT, OUT, cfg.batch, block), product, name="acc")
    return te.create_prim_func([x, w, te.compute(acc.shape, lambda *i: acc(*i).astype("int8"), name="y")])


def depthwise(cfg, outside):
    """Everything on chip; the kernel's loops `outside` those of the output, or inside."""
    sch = Schedule(expression(cfg))
    acc = sch.get_sblock("acc")
    sch.cache_read(acc, 0, INP)
    sch.cache_read(acc, 1, WGT)
    sch.set_scope(acc, 0, ACC)
    row, column, b, j, ky, kx = sch.get_loops(acc)
    if outside:
        sch.reorder(ky, kx, row, column, b, j)
    else:
        sch.reorder(row, column, ky, kx, b, j)
    sch.decompose_reduction(acc, ky)
    tensorize_depthwise(sch, acc, cfg)
    return sch


schedule, better = versions(depthwise, outside=(False, True))


def data(cfg, rng):
    """(inputs, expected outputs)."""
    x = rng.integers(-128, 128, (1, CHANNELS, SIZE, SIZE), np.int8)
    w = rng.integers(-128, 128, (CHANNELS, KERNEL, KERNEL), np.int8)
    y = np.zeros((1, CHANNELS, OUT, OUT), np.int32)
    for ky, kx in np.ndindex(KERNEL, KERNEL):
        y += x[:, :, ky : ky + OUT, kx : kx + OUT].astype(np.int32) * w[:, ky, kx, None, None]
    inputs = {"x": layout.pack_activations(x, cfg)[0, 0], "w": layout.pack_depthwise_weights(w, cfg)}
    return inputs, {"y": layout.pack_activations(y.astype(np.int8), cfg)[0, 0]}
