"""The matrix product that several planted schedules compute, and its data."""

from dataclasses import dataclass

import numpy as np

from tilewright.compiler.intrin import ACC, INP, WGT
from tilewright.compiler.tvm_compat import Schedule, te
from tilewright.runtime import layout


@dataclass(frozen=True)
class Matmul:
    """`y = int8(x @ w.T)` of x (rows, inner) and w (columns, inner), packed."""

    rows: int
    inner: int
    columns: int

    def expression(self, cfg):
        """The function to schedule: blocks `acc` and `y`."""
        rows, inner = self.rows // cfg.batch, self.inner // cfg.block_in
        columns = self.columns // cfg.block_out
        x = te.placeholder((rows, inner, cfg.batch, cfg.block_in), "int8", "x")
        w = te.placeholder((columns, inner, cfg.block_out, cfg.block_in), "int8", "w")
        k, ki = te.reduce_axis((0, inner), "k"), te.reduce_axis((0, cfg.block_in), "ki")

        def product(i, j, bi, bj):
            return te.sum(x[i, k, bi, ki].astype("int32") * w[j, k, bj, ki].astype("int32"), axis=[k, ki])

        acc = te.compute((rows, columns, cfg.batch, cfg.block_out), product, name="acc")
        return te.create_prim_func([x, w, te.compute(acc.shape, lambda *i: acc(*i).astype("int8"), name="y")])

    def started(self, cfg):
        """(schedule, the product's block, the blocks that load x and w, its loops i, j, bi, bj, k, ki), all on chip."""
        sch = Schedule(self.expression(cfg))
        acc = sch.get_sblock("acc")
        loads = sch.cache_read(acc, 0, INP), sch.cache_read(acc, 1, WGT)
        sch.set_scope(acc, 0, ACC)
        return sch, acc, loads, sch.get_loops(acc)

    def data(self, cfg, rng):
        """(inputs, expected outputs)."""
        x = rng.integers(-128, 128, (self.rows, self.inner), np.int8)
        w = rng.integers(-128, 128, (self.columns, self.inner), np.int8)
        y = (x.astype(np.int32) @ w.astype(np.int32).T).astype(np.int8)
        inputs = {"x": layout.pack_dense_activations(x, cfg), "w": layout.pack_dense_weights(w, cfg)}
        return inputs, {"y": layout.pack_dense_activations(y, cfg, block=cfg.block_out)}
