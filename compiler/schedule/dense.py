"""Dense layers (matrix products)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ...hw.config import Config
from ..search import Search
from ..tile import Tile, Work, best_tile
from ..tvm_compat import Schedule, te
from . import epilogue as ep
from .reduction import Reduction, schedule_reduction


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
    search: Search | None = None,
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
    work = Work(nb, ob, ib, operands=len(ep.accumulator_operands(epilogue)), alu_ops=ep.alu_ops(epilogue, planes))
    work = replace(work, planes=4 if planes else 1, packed=len(ep.operand_names(epilogue)) - work.operands)
    if search is not None and tile is None:
        facts = {"n": n, "ci": ci, "co": co, "epilogue": tuple(epilogue), "planes": planes}
        tile = search.tile(work, cfg, vthreads, partial(dense, cfg, **facts))
    tile = chosen_tile(work, cfg, tile, vthreads)
    x = te.placeholder((nb, ib, cfg.batch, cfg.block_in), "int8", "x")
    w = te.placeholder((ob, ib, cfg.block_out, cfg.block_in), "int8", "w")
    c, i = te.reduce_axis((0, ib), "ci"), te.reduce_axis((0, cfg.block_in), "i")

    def product(row, o, b, j):
        return te.sum(x[row, c, b, i].astype("int32") * w[o, c, j, i].astype("int32"), axis=[c, i])

    acc = te.compute((nb, ob, cfg.batch, cfg.block_out), product, name="acc")
    after = ep.build(acc, epilogue, planes, cfg, ob)
    return schedule_reduction(cfg, Reduction([x, w], after, ("n", "co"), False), tile)


def chosen_tile(work: Work, cfg: Config, tile: Tile | None, vthreads: int | None) -> Tile:
    """`tile` with `vthreads` where both are given, else the best one."""
    if tile is None:
        return best_tile(work, cfg, 2 if vthreads is None else vthreads)
    return tile if vthreads is None else replace(tile, vthreads=vthreads)
