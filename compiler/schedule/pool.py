"""Max and sum pooling on the ALU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...hw.config import Config
from ...hw.errors import CapacityError, ScheduleError
from ..intrin import ACC
from ..tile import Tile
from ..tvm_compat import Schedule, te, tirx
from . import epilogue as ep
from .conv2d import output_size
from .reduction import attach, bind_threads, place_epilogue, tile_outputs

_DIMS = ("n", "co", "oy", "ox")
KINDS = ("max", "sum")


def pool(
    cfg: Config,
    n: int,
    h: int,
    w: int,
    c: int,
    kh: int,
    kw: int,
    stride: tuple[int, int] = (1, 1),
    pad: tuple[int, int, int, int] = (0, 0, 0, 0),
    *,
    kind: str = "max",
    pad_value: int | None = None,
    epilogue: Sequence[ep.Stage] = (),
    planes: bool = False,
    tile: Tile | None = None,
    vthreads: int | None = None,
) -> Schedule:
    """The schedule of the maximum or sum over windows of int8 activations `x` (n, c, h, w).

    An average is a sum with an epilogue that divides, e.g. `[("shr", 2)]`. `stride` is (y, x), `pad` (top, left,
    bottom, right), filled with `pad_value` (default: the smallest input for "max", 0 for "sum"; other than 0 needs
    the extension `pad_value`). `epilogue` and `planes` are those of `dense`; a tile uses `n`, `co`, `oy` and `ox`.

    Parameters of the program, packed as in runtime/layout.py with blocks of `block_out`: input `x`, each epilogue
    name, outputs `out` or `OUT0` to `OUT3`. Loads int8 into accumulators, so it needs the extension `acc8`.

    Raises `ScheduleError` for an impossible shape, kind or tile, `CapacityError` where no tile fits.
    """
    if kind not in KINDS:
        raise ScheduleError(f"pool: kind {kind!r} must be one of {', '.join(KINDS)}")
    ep.check(epilogue, ("x",), planes)
    smallest = -128  # of what the loads give
    value = (smallest if kind == "max" else 0) if pad_value is None else pad_value
    oy, ox = output_size("pool", h, w, kh, kw, stride, pad)
    nb, cb = -(-n // cfg.batch), -(-c // cfg.block_out)
    shape = (nb, cb, oy, ox)
    window = (kh, kw, *stride)
    if tile is None:
        tile = _largest_tile(
            cfg, shape, window, len(ep.accumulator_operands(epilogue)), 2 if vthreads is None else vthreads
        )
    elif vthreads is not None:
        tile = replace(tile, vthreads=vthreads)
    x = te.placeholder((nb, cb, h, w, cfg.batch, cfg.block_out), "int8", "x")
    padded = _padded(x, pad, value)
    ky, kx = te.reduce_axis((0, kh), "ky"), te.reduce_axis((0, kw), "kx")
    reduce = te.sum if kind == "sum" else _maximum(smallest)

    def over_window(image, o, y, x, b, j):
        return reduce(padded[image, o, y * stride[0] + ky, x * stride[1] + kx, b, j], axis=[ky, kx])

    acc = te.compute((*shape, cfg.batch, cfg.block_out), over_window, name="acc")
    after = ep.build(acc, epilogue, planes, cfg, cb)
    return _schedule(te.create_prim_func([x, *after.operands, *after.outputs]), after, tile)


def _maximum(smallest: int):
    # te.max starts from the smallest int32, which takes four instructions to write; no input is below `smallest`.
    return te.comm_reducer(lambda a, b: te.max(a, b), lambda dtype: tirx.const(smallest, dtype), name="maximum")


def _padded(x, pad: tuple[int, int, int, int], value: int):
    n, blocks, h, w, batch, block = (int(size) for size in x.shape)
    top, left, bottom, right = pad

    def element(image, o, y, column, b, j):
        row, col = y - top, column - left
        inside = tirx.all(row >= 0, row < h, col >= 0, col < w)
        return tirx.if_then_else(inside, x[image, o, row, col, b, j].astype("int32"), tirx.const(value, "int32"))

    return te.compute((n, blocks, h + top + bottom, w + left + right, batch, block), element, name="input")


def _schedule(func, after: ep.Epilogue, tile: Tile) -> Schedule:
    sch = Schedule(func)
    acc, data = sch.get_sblock("acc"), sch.get_sblock("input")
    for block in (acc, data):
        sch.set_scope(block, 0, ACC)
    loops = sch.get_loops(acc)
    levels, inner = tile_outputs(sch, loops[:4], _DIMS, tile)
    sch.reorder(*(loop for _, loop in levels), *loops[6:], *inner, *loops[4:6])
    bind_threads(sch, levels, tile)
    place_epilogue(sch, after, levels)
    sch.compute_at(data, attach(sch, levels, _DIMS), preserve_unit_loops=True)
    sch.decompose_reduction(acc, sch.get_loops(acc)[len(levels)])
    return sch


def _largest_tile(cfg: Config, shape: tuple[int, ...], window: tuple[int, ...], operands: int, vthreads: int) -> Tile:
    """Whole rows of as many channel blocks as fit, else as many rows, else as many columns."""
    _, blocks, oy, ox = shape
    kh, kw, sy, sx = window
    for threads in range(vthreads, 0, -1):
        for thread, extent in (("co", blocks), ("oy", oy), ("ox", ox)):
            if extent < threads:
                continue
            most = {"co": blocks, "oy": oy, "ox": ox} | {thread: -(-extent // threads)}
            for dim in ("co", "oy", "ox"):
                for size in range(most[dim], 0, -1):
                    t = {**most, dim: size}
                    inputs = ((t["oy"] - 1) * sy + kh) * ((t["ox"] - 1) * sx + kw)
                    read = t["co"] * (inputs + operands) * threads  # by the ALU: see Storage.read_by_alu
                    written = t["co"] * t["oy"] * t["ox"] * threads
                    if read + written <= cfg.acc_depth and read <= cfg.inp_depth:
                        return Tile(co=t["co"], oy=t["oy"], ox=t["ox"], thread=thread, vthreads=threads)
                most[dim] = 1
    raise CapacityError(f"pool: a window of {kh}x{kw} does not fit the {cfg.acc_depth} accumulators of {cfg.name}")
