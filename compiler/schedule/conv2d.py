"""The ready schedule of 2-D convolutions with one group, on the GEMM unit.

Padding is part of the loads. Any shape, stride, dilation and tile will do; depthwise.py has convolutions by channel.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ...hw.config import Config
from ..conv_shape import ConvShape, Pads, Pair
from ..tile import OUTPUT_DIMS
from ..tvm_compat import Schedule, te, tirx
from .layer import Expression, Options, PaddedOptions, arrange_reduction
from .tiling import Work

if TYPE_CHECKING:
    from typing_extensions import Unpack


def conv2d(
    cfg: Config,
    n: int,
    h: int,
    w: int,
    ci: int,
    co: int,
    kh: int,
    kw: int,
    stride: Pair = (1, 1),
    pad: Pads = (0, 0, 0, 0),
    dilation: Pair = (1, 1),
    **options: Unpack[PaddedOptions],
) -> Schedule:
    """The schedule of a convolution of `x` (n, ci, h, w) with `w` (co, ci, kh, kw), accumulated in int32.

    `stride` and `dilation` are (y, x), `pad` is (top, left, bottom, right) and is filled with the option `pad_value`
    (default 0; another needs the extension `pad_value`). The other options are `epilogue`, `planes`, `tile`, `vthreads`
    and `search` as in `dense`; a tile has `oy` and `ox`, too, and none of its sizes needs to divide the layer's.

    Parameters of the program, packed as in runtime/layout.py: inputs `x` (activations), `w` (weights), each
    epilogue name (bias); outputs `out`, or `OUT0` to `OUT3` (lowest byte first) with blocks of `block_out`.

    Raises `ScheduleError` for an impossible shape, epilogue or tile, `CapacityError` if no tile fits.
    """
    shape = ConvShape(n, ci, h, w, co, (kh, kw), stride, pad, dilation)
    return conv2d_of(cfg, shape, **options)


def conv2d_of(cfg: Config, shape: ConvShape, *, pad_value: int = 0, **options: Unpack[Options]) -> Schedule:
    """`conv2d` of a shape with one group."""
    work, block = Work.of(shape.checked("conv2d"), cfg), (cfg.batch, cfg.block_in)
    (kh, kw), (_, sx), (dy, dx) = shape.kernel, shape.strides, shape.dilations
    data = te.placeholder((work.n, work.ci, shape.h, shape.w, *block), "int8", "x")
    weight = te.placeholder((work.co, work.ci, kh, kw, cfg.block_out, cfg.block_in), "int8", "w")
    padded, row_step = padded_input(data, shape, pad_value)
    c, i = te.reduce_axis((0, work.ci), "ci"), te.reduce_axis((0, cfg.block_in), "i")
    ky, kx = te.reduce_axis((0, kh), "ky"), te.reduce_axis((0, kw), "kx")

    def product(image, o, y, x, b, j):
        row, column = y * row_step + ky * dy, x * sx + kx * dx
        value = padded[image, c, row, column, b, i].astype("int32") * weight[o, c, ky, kx, j, i].astype("int32")
        return te.sum(value, axis=[c, ky, kx, i])

    acc = te.compute((work.n, work.co, work.oy, work.ox, cfg.batch, cfg.block_out), product, name="acc")
    return Expression(cfg, work, (data, weight), acc, partial(arrange_reduction, cfg, OUTPUT_DIMS)).scheduled(**options)


def padded_input(data, shape: ConvShape, pad_value: int):
    """(block `input`, which pads `data` by the shape's padding; its rows from one output row to the next)."""
    n, ib, h, w, batch, block = (int(size) for size in data.shape)
    top, left, bottom, right = shape.pads
    # A kernel of one row skips the rows between its strides; they need not be loaded.
    single = shape.kernel[0] == 1
    skip, step = (shape.strides[0], 1) if single else (1, shape.strides[0])
    height = shape.output[0] if single else h + top + bottom

    def element(image, c, y, x, b, i):
        row, column = y * skip - top, x - left
        inside = tirx.all(row >= 0, row < h, column >= 0, column < w)
        return tirx.if_then_else(inside, data[image, c, row, column, b, i], tirx.const(pad_value, "int8"))

    return te.compute((n, ib, height, w + left + right, batch, block), element, name="input"), step
