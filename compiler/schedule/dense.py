"""The ready schedule of dense layers, matrix products on the GEMM unit; its docstring has the options of all others."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ...hw.config import Config
from ..conv_shape import ConvShape
from ..tvm_compat import Schedule, te
from .layer import Expression, Options, arrange_reduction
from .tiling import Work

if TYPE_CHECKING:
    from typing_extensions import Unpack


def dense(cfg: Config, n: int, ci: int, co: int, **options: Unpack[Options]) -> Schedule:
    """The schedule of `x (n, ci) @ w (co, ci).T`, accumulated in int32.

    The options are those that all ready schedules take:

    - `epilogue`, a chain of operations on the accumulators, e.g. `[("shr", 8), ("add", "b"), ("max", 0)]`: add, sub,
      mul, max, min, shr or shl with a number (16 bits) or the name of a per-channel parameter. The low 8 bits of the
      result are stored (they wrap), or with `planes=True` all four bytes as tensors of their own, with a number of 2 to
      4 that many, the lowest first.
    - `tile` (default: searched), which uses `n`, `co`, `ci`, and `vthreads` (default: the tile's, 2 in a search), 1
      to 4. `search` times the cost model's best tiles and takes the fastest.

    Parameters of the program, packed as in runtime/layout.py: inputs `x` (dense activations), `w` (dense
    weights), each epilogue name (bias); outputs `out`, or `OUT0` to `OUT3` (lowest byte first) with blocks of
    `block_out`. `n`, `ci` and `co` need not be multiples of the blocks.

    Raises `ScheduleError` for an impossible epilogue or tile, `CapacityError` if no tile fits.
    """
    return dense_of(cfg, ConvShape(n, ci, 1, 1, co), **options)


def dense_of(cfg: Config, shape: ConvShape, **options: Unpack[Options]) -> Schedule:
    """`dense` of a shape of one pixel."""
    work = Work.of(shape.checked("dense"), cfg)
    x = te.placeholder((work.n, work.ci, cfg.batch, cfg.block_in), "int8", "x")
    w = te.placeholder((work.co, work.ci, cfg.block_out, cfg.block_in), "int8", "w")
    c, i = te.reduce_axis((0, work.ci), "ci"), te.reduce_axis((0, cfg.block_in), "i")

    def product(row, o, b, j):
        return te.sum(x[row, c, b, i].astype("int32") * w[o, c, j, i].astype("int32"), axis=[c, i])

    acc = te.compute((work.n, work.co, cfg.batch, cfg.block_out), product, name="acc")
    return Expression(cfg, work, (x, w), acc, partial(arrange_reduction, cfg, ("n", "co"))).scheduled(**options)
