"""The ready schedule of depthwise 2-D convolutions, for configurations with the extension `depthwise`.

Every channel has a kernel of its own. All weights stay on chip, in rows that micro-ops must reach: that limits the
number of channels.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ...hw.config import Config
from ...hw.errors import CapacityError, ScheduleError
from ...runtime.layout import depthwise_pitch
from ..conv_shape import ConvShape, Pads, Pair
from ..intrin import INP, SLOTS, WGT, tensorize_depthwise, tensorize_reset
from ..tile import Tile
from ..tvm_compat import Schedule, te
from .conv2d import padded_input
from .epilogue import Epilogue
from .layer import Expression, Options, PaddedOptions, arrange_windows
from .tiling import Work

if TYPE_CHECKING:
    from typing_extensions import Unpack


def depthwise(
    cfg: Config,
    n: int,
    h: int,
    w: int,
    c: int,
    kh: int,
    kw: int,
    *,
    pad: Pads = (0, 0, 0, 0),
    stride: Pair = (1, 1),
    dilation: Pair = (1, 1),
    **options: Unpack[PaddedOptions],
) -> Schedule:
    """The schedule of a convolution of `x` (n, c, h, w) with one kernel per channel, `w` (c, kh, kw), in int32.

    Needs the extension `depthwise`. Arguments, parameters of the program and errors as in `conv2d`; `w` is packed
    by `pack_depthwise_weights` and stays on chip as a whole, `ci` of a tile is not used.
    """
    shape = ConvShape(n, c, h, w, c, (kh, kw), stride, pad, dilation, groups=c)
    return depthwise_of(cfg, shape, **options)


def depthwise_of(cfg: Config, shape: ConvShape, *, pad_value: int = 0, **options: Unpack[Options]) -> Schedule:
    """`depthwise` of a shape with as many groups and output channels as input channels."""
    if "depthwise" not in cfg.extensions:
        raise ScheduleError(f"depthwise: extension depthwise is not in configuration {cfg.name}; use conv2d")
    work, block = Work.of(shape.checked("depthwise"), cfg, depthwise=True), cfg.block_out
    (kh, kw), (_, sx), (dy, dx) = shape.kernel, shape.strides, shape.dilations
    pitch = depthwise_pitch(cfg, kw)
    work = replace(work, row_taps=cfg.row_taps if dx == 1 else 1, pitch=pitch)
    count, most = work.co * work.weight_rows, reach(cfg, kw, dx)
    entries = -(-count // cfg.block_in)
    if count > most:
        raise CapacityError(
            f"depthwise: {work.co} blocks of {kh}x{kw} weights are {count} rows; micro-ops of {cfg.name} reach "
            f"{most}; split the channels"
        )
    x = te.placeholder((work.n, work.co, shape.h, shape.w, cfg.batch, block), "int8", "x")
    weight = te.placeholder((entries, block, block), "int8", "w")
    padded, row_step = padded_input(x, shape, pad_value)
    rows = te.compute((entries, block, block), lambda *axes: weight(*axes), name="rows")
    ky, kx = te.reduce_axis((0, kh), "ky"), te.reduce_axis((0, kw), "kx")

    def product(image, o, y, column, b, j):
        line, at = y * row_step + ky * dy, column * sx + kx * dx
        row = (o * kh + ky) * pitch + kx
        value = padded[image, o, line, at, b, j].astype("int32") * rows[row // block, row % block, j].astype("int32")
        return te.sum(value, axis=[ky, kx])

    acc = te.compute((work.n, work.co, work.oy, work.ox, cfg.batch, block), product, name="acc")
    return Expression(cfg, work, (x, weight), acc, partial(_arrange, cfg)).scheduled(**options)


def reach(cfg: Config, kw: int, dx: int) -> int:
    """Rows of weights that micro-ops can address, for kernels of width `kw` with horizontal dilation `dx`.

    Micro-ops count groups of `row_taps` rows, unless one of them takes a single tap.
    """
    single = dx > 1 or kw % cfg.row_taps == 1 or kw == 1
    return cfg.wgt_depth * (1 if single else cfg.row_taps)


def _arrange(cfg: Config, after: Epilogue, sch: Schedule, tile: Tile) -> None:
    sch.set_scope(sch.get_sblock("rows"), 0, WGT)
    init = arrange_windows(INP, after, sch, tile)
    sch.annotate(sch.get_sblock("input"), SLOTS, tile.inp_slots)
    tensorize_reset(sch, init, cfg)
    tensorize_depthwise(sch, sch.get_sblock("acc_update"), cfg)
