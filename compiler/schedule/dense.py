"""Dense layers (matrix products)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ...hw.config import Config
from ..tile import Tile, Work
from ..tvm_compat import Schedule, te
from . import epilogue as ep
from .layer import Layer, TileSearch
from .reduction import Reduction, arrange_reduction


def dense(
    cfg: Config,
    n: int,
    ci: int,
    co: int,
    *,
    epilogue: Sequence[ep.Stage] = (),
    planes: bool = False,
    tile: Tile | None = None,
    vthreads: int | None = None,
    search: TileSearch | None = None,
) -> Schedule:
    """The schedule of `x (n, ci) @ w (co, ci).T`, accumulated in int32.

    `epilogue` is a chain of operations on the accumulators, e.g. `[("shr", 8), ("add", "b"), ("max", 0)]`: add,
    sub, mul, max, min, shr or shl with a number (16 bits) or the name of a per-channel parameter. The low 8 bits of
    the result are stored (they wrap), or with `planes` all four bytes as tensors of their own.

    Parameters of the program, packed as in runtime/layout.py: inputs `x` (dense activations), `w` (dense
    weights), each epilogue name (bias); outputs `out`, or `OUT0` to `OUT3` (lowest byte first) with blocks of
    `block_out`. `n`, `ci` and `co` need not be multiples of the blocks.

    `tile` (default: searched) uses `n`, `co`, `ci`; `vthreads` (default: the tile's, 2 in a search) is 1 to 4. With
    `search` the cost model's best tiles are timed and the fastest is taken.
    Raises `ScheduleError` for an impossible epilogue or tile, `CapacityError` where no tile fits.
    """
    ep.check(epilogue, ("x", "w"), planes)
    nb, ib, ob = -(-n // cfg.batch), -(-ci // cfg.block_in), -(-co // cfg.block_out)
    x = te.placeholder((nb, ib, cfg.batch, cfg.block_in), "int8", "x")
    w = te.placeholder((ob, ib, cfg.block_out, cfg.block_in), "int8", "w")
    c, i = te.reduce_axis((0, ib), "ci"), te.reduce_axis((0, cfg.block_in), "i")

    def product(row, o, b, j):
        return te.sum(x[row, c, b, i].astype("int32") * w[o, c, j, i].astype("int32"), axis=[c, i])

    acc = te.compute((nb, ob, cfg.batch, cfg.block_out), product, name="acc")
    after = ep.build(acc, epilogue, planes, cfg, ob)
    func = te.create_prim_func([x, w, *after.operands, *after.outputs])
    arrange = partial(arrange_reduction, cfg, Reduction(after, ("n", "co"), padded=False))
    work = ep.with_epilogue(Work(nb, ob, ib), epilogue, planes)
    return Layer(cfg, func, work, arrange).scheduled(tile, vthreads, search)
