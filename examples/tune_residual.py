"""An operator of one's own, tuned by measurement: a matrix product that is added to an int32 tensor.

Run it: python examples/tune_residual.py

`y = clip((x @ w.T >> 6) + r, 0, 127)`, x and w int8, r int32. No ready schedule computes it. The schedule below leaves
four decisions open; `compiler.tune` tries 12 of their combinations, counts the cycles of each in the timing model, and
keeps the fastest.
"""

from __future__ import annotations

import numpy as np

from tilewright.compiler import build
from tilewright.compiler.intrin import ACC, INP, WGT, tensorize_gemm
from tilewright.compiler.tune import Tuned, tune
from tilewright.compiler.tvm_compat import Schedule, te, tirx
from tilewright.hw.config import PRESETS
from tilewright.runtime import layout
from tilewright.runtime.loader import run

CFG = PRESETS["pynq_z1"]
ROWS, INNER, COLUMNS = 32, 256, 128  # x is (ROWS, INNER), w (COLUMNS, INNER), r (ROWS, COLUMNS)


def expression():
    """The operator on packed tensors (runtime/layout.py)."""
    rows, inner, columns = ROWS // CFG.batch, INNER // CFG.block_in, COLUMNS // CFG.block_out
    x = te.placeholder((rows, inner, CFG.batch, CFG.block_in), "int8", "x")
    w = te.placeholder((columns, inner, CFG.block_out, CFG.block_in), "int8", "w")
    r = te.placeholder((rows, columns, CFG.batch, CFG.block_out), "int32", "r")
    k, ki = te.reduce_axis((0, inner), "k"), te.reduce_axis((0, CFG.block_in), "ki")

    def product(i, j, bi, bj):
        return te.sum(x[i, k, bi, ki].astype("int32") * w[j, k, bj, ki].astype("int32"), axis=[k, ki])

    acc = te.compute((rows, columns, CFG.batch, CFG.block_out), product, name="acc")
    shifted = te.compute(acc.shape, lambda *i: acc(*i) >> tirx.const(6, "int32"), name="shifted")
    added = te.compute(acc.shape, lambda *i: shifted(*i) + r(*i), name="added")
    positive = te.compute(acc.shape, lambda *i: te.max(added(*i), tirx.const(0, "int32")), name="positive")
    clipped = te.compute(acc.shape, lambda *i: te.min(positive(*i), tirx.const(127, "int32")), name="clipped")
    y = te.compute(acc.shape, lambda *i: clipped(*i).astype("int8"), name="y")
    return te.create_prim_func([x, w, r, y])


def space(sch: Schedule) -> None:
    """The schedule; `sample_*` returns another decision in every trial."""
    acc = sch.get_sblock("acc")
    x, w = sch.cache_read(acc, 0, INP), sch.cache_read(acc, 1, WGT)
    stages = ("shifted", "added", "positive", "clipped")
    for name in ("acc", *stages):
        sch.set_scope(sch.get_sblock(name), 0, ACC)
    i, j, bi, bj, k, ki = sch.get_loops(acc)
    # The decisions: virtual threads over the columns, and the sizes of a tile.
    threads = sch.sample_categorical([1, 2], [0.5, 0.5])
    _, tile_i = sch.sample_perfect_tile(i, n=2, max_innermost_factor=64)
    _, tile_k = sch.sample_perfect_tile(k, n=2, max_innermost_factor=8)
    thread, outer_j, j = sch.split(j, [threads, None, sch.sample_categorical([1, 2, 4], [0.3, 0.4, 0.3])])
    outer_i, i = sch.split(i, [None, tile_i])
    steps, k = sch.split(k, [None, tile_k])
    sch.reorder(thread, outer_j, outer_i, steps, k, i, j, bi, bj, ki)
    if int(sch.get(threads)) > 1:
        sch.bind(thread, "vthread.x")
    for name in (*stages, "y"):
        sch.reverse_compute_at(sch.get_sblock(name), outer_i, preserve_unit_loops=True)
    sch.compute_at(sch.cache_read(sch.get_sblock("added"), 1, ACC), outer_i, preserve_unit_loops=True)
    for block in (x, w):
        sch.compute_at(block, steps, preserve_unit_loops=True)
    sch.decompose_reduction(acc, steps)
    tensorize_gemm(sch, acc, CFG)


def task(cfg):
    """The operator and its schedule, for `tilewright tune examples/tune_residual.py:task`."""
    return expression(), space


def check(tuned: Tuned) -> None:
    """Run the fastest program and compare with numpy."""
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-128, 128, (n, INNER), np.int8) for n in (ROWS, COLUMNS))
    r = rng.integers(-5000, 5000, (ROWS, COLUMNS), np.int32)
    pack = layout.pack_dense_activations
    inputs = {"x": pack(x, CFG), "w": layout.pack_dense_weights(w, CFG), "r": pack(r, CFG, block=CFG.block_out)}
    outputs, _ = run(build(tuned.schedule, CFG, name="residual"), inputs)
    expected = np.clip((x.astype(np.int32) @ w.astype(np.int32).T >> 6) + r, 0, 127)
    assert np.array_equal(layout.unpack_dense_activations(outputs["y"], COLUMNS), expected)


def main() -> None:
    """Tune, print the trials, check."""
    tuned = tune(expression(), space, CFG, trials=12, seed=1)
    ideal = ROWS * INNER * COLUMNS // CFG.macs_per_cycle
    programs = [trial.cycles for trial in tuned.trials if trial.cycles is not None]
    print(f"cycles of {len(programs)} programs: {', '.join(f'{n:,}' for n in programs)}")
    print(f"decisions of the fastest: {tuned.trials[0].decisions}")
    print(f"fastest: {tuned.cycles:,}, of which {100 * ideal / tuned.cycles:.0f} % are multiply-accumulates")
    check(tuned)
    print("its results equal numpy's")


if __name__ == "__main__":
    main()
