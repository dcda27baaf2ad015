"""Products of matrices, block by block: functions to schedule, and what their programs must give."""

import numpy as np

from tilewright.compiler import build
from tilewright.compiler.tvm_compat import te
from tilewright.runtime import layout
from tilewright.runtime.loader import run
from tilewright.runtime.verify import verify

RNG = np.random.default_rng(0)


def block_product(cfg, rows, columns, steps):
    """The function out = int8(x @ w.T) of `rows` entries, `columns` blocks of outputs and `steps` of inputs."""
    x = te.placeholder((rows, steps, cfg.batch, cfg.block_in), "int8", "x")
    w = te.placeholder((columns, steps, cfg.block_out, cfg.block_in), "int8", "w")
    k, ki = te.reduce_axis((0, steps), "k"), te.reduce_axis((0, cfg.block_in), "ki")

    def product(i, j, a, b):
        return te.sum(x[i, k, a, ki].astype("int32") * w[j, k, b, ki].astype("int32"), axis=[k, ki])

    acc = te.compute((rows, columns, cfg.batch, cfg.block_out), product, name="acc")
    return te.create_prim_func([x, w, te.compute(acc.shape, lambda *i: acc(*i).astype("int8"), name="out")])


def check_block_product(scheduled, cfg, rows, columns, steps):
    """Build, verify, run on random matrices, compare with numpy's product; the run's statistics."""
    program = build(scheduled, cfg)
    verify(program.finish())
    sizes = (rows * cfg.batch, steps * cfg.block_in), (columns * cfg.block_out, steps * cfg.block_in)
    x, w = (RNG.integers(-128, 128, size).astype(np.int8) for size in sizes)
    out, stats = run(program, {"x": layout.pack_dense_activations(x, cfg), "w": layout.pack_dense_weights(w, cfg)})
    expected = (x.astype(np.int64) @ w.astype(np.int64).T).astype(np.int8)
    assert np.array_equal(layout.unpack_dense_activations(out["out"], len(w)), expected)
    return stats
