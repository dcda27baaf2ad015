"""A scale per channel, multiplied in the accumulators.

Planted: `x` is loaded into accumulators and multiplied there by `scale`, with one ALU instruction per tile.
Slow because the loads are in the compute queue, where nothing overlaps them, and MUL takes several cycles per entry.
Cycles: 12,280; better: 7,189; factor 1.7 (`better` is DWGEMM with a kernel of one pixel, from the input scratchpad: its
loads run ahead, and a product takes a cycle).
"""

import numpy as np

from tilewright.compiler.intrin import ACC
from tilewright.compiler.schedule.depthwise import depthwise
from tilewright.compiler.tvm_compat import Schedule, te, tirx
from tilewright.runtime import layout

SIZE, CHANNELS, TILE = 32, 32, 8


def expression(cfg):
    """`y = int8(x * scale >> 4)`."""
    shape = (1, CHANNELS // cfg.block_out, SIZE, SIZE, cfg.batch, cfg.block_out)
    x = te.placeholder(shape, "int8", "x")
    scale = te.placeholder((shape[1], cfg.batch, cfg.block_out), "int32", "scale")
    wide = te.compute(shape, lambda *i: x(*i).astype("int32"), name="wide")
    product = te.compute(shape, lambda n, c, h, w, b, j: wide(n, c, h, w, b, j) * scale(c, b, j), name="product")
    low = te.compute(shape, lambda *i: product(*i) >> tirx.const(4, "int32"), name="low")
    return te.create_prim_func([x, scale, te.compute(shape, lambda *i: low(*i).astype("int8"), name="y")])


def schedule(cfg):
    """Two virtual threads, each with rows of its own; the scales are loaded once."""
    sch = Schedule(expression(cfg))
    sch.cache_read(sch.get_sblock("product"), 1, ACC)
    _, channels, rows, *_ = sch.get_loops(sch.get_sblock("y"))
    thread, tiles, _ = sch.split(rows, [2, None, TILE])
    sch.reorder(thread, channels, tiles)
    sch.bind(thread, "vthread.x")
    for name in ("low", "product", "wide"):
        block = sch.get_sblock(name)
        sch.set_scope(block, 0, ACC)
        sch.compute_at(block, tiles, preserve_unit_loops=True)
    return sch


def better(cfg):
    """The same as a depthwise convolution."""
    return depthwise(cfg, 1, SIZE, SIZE, CHANNELS, 1, 1, epilogue=[("shr", 4)])


def values(rng):
    """(x, scale, y) in plain layout."""
    x = rng.integers(-128, 128, (1, CHANNELS, SIZE, SIZE), np.int8)
    scale = rng.integers(-16, 16, CHANNELS, np.int8)
    return x, scale, (x.astype(np.int32) * scale[:, None, None] >> 4).astype(np.int8)


def data(cfg, rng):
    """(inputs, expected outputs)."""
    x, scale, y = values(rng)
    inputs = {"x": layout.pack_activations(x, cfg, block=cfg.block_out), "scale": layout.pack_bias(scale, cfg)}
    return inputs, {"y": layout.pack_activations(y, cfg, block=cfg.block_out)}


def better_data(cfg, rng):
    """(inputs, expected outputs) of `better`."""
    x, scale, y = values(rng)
    inputs = {"x": layout.pack_activations(x, cfg), "w": layout.pack_depthwise_weights(scale[:, None, None], cfg)}
    return inputs, {"out": layout.pack_activations(y, cfg, block=cfg.block_out)}
