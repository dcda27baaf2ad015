"""Depthwise 2-D convolutions: every channel has a kernel of its own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ...hw.config import Config
from ...hw.errors import CapacityError, ScheduleError
from ..intrin import ACC, INP, SLOTS, WGT, tensorize_depthwise, tensorize_reset
from ..tile import OUTPUT_DIMS, Tile, Work
from ..tvm_compat import Schedule, te
from . import epilogue as ep
from .conv2d import output_size, padded_input
from .layer import Layer, TileSearch
from .reduction import attach, bind_threads, place_epilogue, tile_outputs


def depthwise(
    cfg: Config,
    n: int,
    h: int,
    w: int,
    c: int,
    kh: int,
    kw: int,
    stride: tuple[int, int] = (1, 1),
    pad: tuple[int, int, int, int] = (0, 0, 0, 0),
    dilation: tuple[int, int] = (1, 1),
    *,
    pad_value: int = 0,
    epilogue: Sequence[ep.Stage] = (),
    planes: bool = False,
    tile: Tile | None = None,
    vthreads: int | None = None,
    search: TileSearch | None = None,
) -> Schedule:
    """The schedule of a convolution of `x` (n, c, h, w) with one kernel per channel, `w` (c, kh, kw), in int32.

    Needs the extension `depthwise`. Arguments, parameters of the program and errors are those of `conv2d`; `w` is
    packed by `pack_depthwise_weights` and stays on chip as a whole, `ci` of a tile is not used.
    """
    ep.check(epilogue, ("x", "w"), planes)
    if "depthwise" not in cfg.extensions:
        raise ScheduleError(f"depthwise: extension depthwise is not in configuration {cfg.name}; use conv2d")
    oy, ox = output_size("depthwise", h, w, kh, kw, stride, pad, dilation)
    nb, cb, block = -(-n // cfg.batch), -(-c // cfg.block_out), cfg.block_out
    entries = -(-cb * kh * kw // cfg.block_in)
    if cb * kh * kw > cfg.wgt_depth:
        raise CapacityError(
            f"depthwise: {cb} blocks of {kh}x{kw} weights are {cb * kh * kw} rows; micro-ops of {cfg.name} reach "
            f"{cfg.wgt_depth}; split the channels"
        )
    x = te.placeholder((nb, cb, h, w, cfg.batch, block), "int8", "x")
    weight = te.placeholder((entries, block, block), "int8", "w")
    padded, row_step = padded_input(x, oy, (kh, stride[0]), pad, pad_value)
    rows = te.compute((entries, block, block), lambda *axes: weight(*axes), name="rows")
    ky, kx = te.reduce_axis((0, kh), "ky"), te.reduce_axis((0, kw), "kx")

    def product(image, o, y, column, b, j):
        line, place = y * row_step + ky * dilation[0], column * stride[1] + kx * dilation[1]
        row = (o * kh + ky) * kw + kx
        value = padded[image, o, line, place, b, j].astype("int32") * rows[row // block, row % block, j].astype("int32")
        return te.sum(value, axis=[ky, kx])

    acc = te.compute((nb, cb, oy, ox, cfg.batch, block), product, name="acc")
    after = ep.build(acc, epilogue, planes, cfg, cb)
    func = te.create_prim_func([x, weight, *after.operands, *after.outputs])
    work = Work(nb, cb, 1, oy, ox, kh, kw, stride, dilation, depthwise=True)
    work = ep.with_epilogue(work, epilogue, planes)
    return Layer(cfg, func, work, partial(_arrange, cfg, after)).scheduled(tile, vthreads, search)


def _arrange(cfg: Config, after: ep.Epilogue, sch: Schedule, tile: Tile) -> None:
    acc, data, rows = (sch.get_sblock(name) for name in ("acc", "input", "rows"))
    for block, scope in ((acc, ACC), (data, INP), (rows, WGT)):
        sch.set_scope(block, 0, scope)
    loops = sch.get_loops(acc)
    levels, inner = tile_outputs(sch, loops[:4], OUTPUT_DIMS, tile)
    sch.reorder(*(loop for _, loop in levels), *loops[6:], *inner, *loops[4:6])
    bind_threads(sch, levels, tile)
    place_epilogue(sch, after, levels)
    sch.compute_at(data, attach(sch, levels, OUTPUT_DIMS), preserve_unit_loops=True)
    sch.annotate(data, SLOTS, tile.inp_slots)
    init = sch.decompose_reduction(acc, sch.get_loops(acc)[len(levels)])
    tensorize_reset(sch, init, cfg)
    tensorize_depthwise(sch, acc, cfg)
