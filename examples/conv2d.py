"""A convolution with padding, scheduled by hand: which loops become loads, GEMM instructions and a store.

Run it: python examples/conv2d.py [FILE.npz]

`y = clip(conv(x, w) >> 8)` in int8: 3x3 kernels, stride 1, one row or column of zeros around the image. There is no
padded copy of the image in DRAM: a tensor on chip that is zero outside the image is filled by one LOAD per block of
channels, which writes the border itself. The output channels are divided between two virtual threads, so that the
weights of one are loaded while the other computes; both read the same tile of the image.
"""

from __future__ import annotations

import sys

import numpy as np

import tilewright as tw
from tilewright.compiler.intrin import ACC, INP, WGT, tensorize_gemm
from tilewright.compiler.tvm_compat import Schedule, te, tirx
from tilewright.runtime import layout
from tilewright.runtime.disasm import disassemble

CFG = tw.load_config("vta")
CI, CO, SIZE, KERNEL = 64, 64, 14, 3  # channels in and out, height and width of the image, of a kernel
ROWS = 7  # rows of the image in a tile
THREADS = 2


def expression(cfg: tw.Config):
    """The convolution and its epilogue on tensors in blocks of channels (runtime/layout.py)."""
    ci, co = CI // cfg.block_in, CO // cfg.block_out
    x = te.placeholder((1, ci, SIZE, SIZE, cfg.batch, cfg.block_in), "int8", "x")
    w = te.placeholder((co, ci, KERNEL, KERNEL, cfg.block_out, cfg.block_in), "int8", "w")

    def with_border(n, c, row, column, b, i):
        inside = tirx.all(row >= 1, row < SIZE + 1, column >= 1, column < SIZE + 1)
        return tirx.if_then_else(inside, x[n, c, row - 1, column - 1, b, i], tirx.const(0, "int8"))

    padded = te.compute((1, ci, SIZE + 2, SIZE + 2, cfg.batch, cfg.block_in), with_border, name="padded")
    c, i = te.reduce_axis((0, ci), "c"), te.reduce_axis((0, cfg.block_in), "i")
    ky, kx = te.reduce_axis((0, KERNEL), "ky"), te.reduce_axis((0, KERNEL), "kx")

    def product(n, o, row, column, b, j):
        value = padded[n, c, row + ky, column + kx, b, i].astype("int32") * w[o, c, ky, kx, j, i].astype("int32")
        return te.sum(value, axis=[c, ky, kx, i])

    def number(value):
        return tirx.const(value, "int32")

    acc = te.compute((1, co, SIZE, SIZE, cfg.batch, cfg.block_out), product, name="acc")
    shifted = te.compute(acc.shape, lambda *at: acc(*at) >> number(8), name="shifted")
    low = te.compute(acc.shape, lambda *at: te.max(shifted(*at), number(-128)), name="low")
    clipped = te.compute(acc.shape, lambda *at: te.min(low(*at), number(127)), name="clipped")
    y = te.compute(acc.shape, lambda *at: clipped(*at).astype("int8"), name="y")
    return te.create_prim_func([x, w, y])


def schedule(cfg: tw.Config = CFG, threads: int = THREADS) -> Schedule:
    """Tiles of rows, threads over output channels; in each tile a step per block of input channels."""
    sch = Schedule(expression(cfg))
    acc = sch.get_sblock("acc")
    # 1. Scopes. The padded image is never in DRAM: its block computes it in the input scratchpad, which is a LOAD.
    padded, w = sch.get_sblock("padded"), sch.cache_read(acc, 1, WGT)
    sch.set_scope(padded, 0, INP)
    for name in ("acc", "shifted", "low", "clipped"):
        sch.set_scope(sch.get_sblock(name), 0, ACC)
    # 2. Loops: tiles of rows and threads outside, then the blocks of input channels; inside, what one GEMM covers.
    n, o, row, column, b, j, c, ky, kx, i = sch.get_loops(acc)
    tile, row = sch.split(row, [None, ROWS])
    thread, o = sch.split(o, [threads, None])
    sch.reorder(n, tile, thread, c, o, ky, kx, row, column, b, j, i)
    if threads > 1:
        sch.bind(thread, "vthread.x")
    # 3. Where the loads happen: both operands in every step. The image does not depend on the thread.
    for block in (padded, w):
        sch.compute_at(block, c, preserve_unit_loops=True)
    for name in ("shifted", "low", "clipped", "y"):
        sch.reverse_compute_at(sch.get_sblock(name), thread, preserve_unit_loops=True)
    # 4. Zeros before the first step, products in every step (last: loop handles are invalid after it).
    sch.decompose_reduction(acc, c)
    tensorize_gemm(sch, acc, cfg)
    return sch


def data() -> tuple[dict[str, np.ndarray], np.ndarray]:
    """(inputs of the program, its output) by numpy."""
    rng = np.random.default_rng(0)
    x = rng.integers(-128, 128, (CFG.batch, CI, SIZE, SIZE), np.int8)
    w = rng.integers(-128, 128, (CO, CI, KERNEL, KERNEL), np.int8)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))).astype(np.int32)
    sums = np.zeros((CFG.batch, CO, SIZE, SIZE), np.int32)
    for ky, kx in np.ndindex(KERNEL, KERNEL):
        sums += np.einsum(
            "ncyx,oc->noyx", padded[:, :, ky : ky + SIZE, kx : kx + SIZE], w[:, :, ky, kx].astype(np.int32)
        )
    y = np.clip(sums >> 8, -128, 127).astype(np.int8)
    inputs = {"x": layout.pack_activations(x, CFG), "w": layout.pack_weights(w, CFG)}
    return inputs, layout.pack_activations(y, CFG, block=CFG.block_out)


def main() -> None:
    """Build, show, run, check and time; write inputs and outputs to the file that is named."""
    program = tw.build(schedule(), CFG, name="conv2d")
    lines = disassemble(program.finish())
    print(f"--- {len(lines)} instructions ---")
    print("\n".join(lines))

    inputs, expected = data()
    outputs, stats = tw.run(program, inputs)
    assert np.array_equal(outputs["y"], expected)
    print(f"--- {expected.size} results equal numpy's; {stats.macs:,} multiply-accumulates ---")

    least = stats.macs // CFG.macs_per_cycle
    for threads in (1, THREADS):
        cycles = tw.predict(tw.build(schedule(threads=threads), CFG)).cycles
        print(f"{threads} thread(s): {cycles:,} cycles; the multiply-accumulates alone are {least:,}")
    if len(sys.argv) > 1:
        np.savez(sys.argv[1], x=inputs["x"], w=inputs["w"], outputs=expected)


if __name__ == "__main__":
    main()
