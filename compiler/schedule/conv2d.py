"""2-D convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ...hw.config import Config
from ...hw.errors import ScheduleError
from ..tile import OUTPUT_DIMS, Tile, Work
from ..tvm_compat import Schedule, te, tirx
from . import epilogue as ep
from .layer import Layer, TileSearch
from .reduction import Reduction, arrange_reduction


def conv2d(
    cfg: Config,
    n: int,
    h: int,
    w: int,
    ci: int,
    co: int,
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
    """The schedule of a convolution of `x` (n, ci, h, w) with `w` (co, ci, kh, kw), accumulated in int32.

    `stride` and `dilation` are (y, x), `pad` is (top, left, bottom, right) and is filled with `pad_value` (other
    than 0 needs the extension `pad_value`). `epilogue`, `planes`, `tile`, `vthreads` and `search` are those of
    `dense`; a tile has `oy` and `ox`, too, and none of its sizes needs to divide the layer's.

    Parameters of the program, packed as in runtime/layout.py: inputs `x` (activations), `w` (weights), each
    epilogue name (bias); outputs `out`, or `OUT0` to `OUT3` (lowest byte first) with blocks of `block_out`.

    Raises `ScheduleError` for an impossible shape, epilogue or tile, `CapacityError` where no tile fits.
    """
    ep.check(epilogue, ("x", "w"), planes)
    oy, ox = output_size("conv2d", h, w, kh, kw, stride, pad, dilation)
    nb, ib, ob = -(-n // cfg.batch), -(-ci // cfg.block_in), -(-co // cfg.block_out)
    data = te.placeholder((nb, ib, h, w, cfg.batch, cfg.block_in), "int8", "x")
    weight = te.placeholder((ob, ib, kh, kw, cfg.block_out, cfg.block_in), "int8", "w")
    padded, row_step = padded_input(data, oy, (kh, stride[0]), pad, pad_value)
    c, i = te.reduce_axis((0, ib), "ci"), te.reduce_axis((0, cfg.block_in), "i")
    ky, kx = te.reduce_axis((0, kh), "ky"), te.reduce_axis((0, kw), "kx")

    def product(image, o, y, x, b, j):
        row, column = y * row_step + ky * dilation[0], x * stride[1] + kx * dilation[1]
        value = padded[image, c, row, column, b, i].astype("int32") * weight[o, c, ky, kx, j, i].astype("int32")
        return te.sum(value, axis=[c, ky, kx, i])

    acc = te.compute((nb, ob, oy, ox, cfg.batch, cfg.block_out), product, name="acc")
    after = ep.build(acc, epilogue, planes, cfg, ob)
    func = te.create_prim_func([data, weight, *after.operands, *after.outputs])
    arrange = partial(arrange_reduction, cfg, Reduction(after, OUTPUT_DIMS, padded=True))
    work = ep.with_epilogue(Work(nb, ob, ib, oy, ox, kh, kw, stride, dilation), epilogue, planes)
    return Layer(cfg, func, work, arrange).scheduled(tile, vthreads, search)


def output_size(
    layer: str,
    h: int,
    w: int,
    kh: int,
    kw: int,
    stride: tuple[int, int],
    pad: tuple[int, int, int, int],
    dilation: tuple[int, int] = (1, 1),
) -> tuple[int, int]:
    """(rows, columns) of the output. Raises `ScheduleError`, which calls the layer `layer`, where there are none."""
    dilated = f" with dilation {dilation}" if dilation != (1, 1) else ""
    if min(h, w, kh, kw, *stride, *dilation) < 1 or min(pad) < 0:
        sizes = f"input {h}x{w}, kernel {kh}x{kw}{dilated}, stride {stride}, pad {pad}"
        raise ScheduleError(f"{layer}: {sizes}: pad must be at least 0, everything else at least 1")
    top, left, bottom, right = pad
    ky, kx = (kh - 1) * dilation[0] + 1, (kw - 1) * dilation[1] + 1
    oy, ox = (h + top + bottom - ky) // stride[0] + 1, (w + left + right - kx) // stride[1] + 1
    if oy < 1 or ox < 1:
        spans = f"{dilated}, which spans {ky}x{kx}" if dilated else ""
        raise ScheduleError(
            f"{layer}: an input of {h}x{w} with pad {pad} is smaller than the kernel of {kh}x{kw}{spans}"
        )
    return oy, ox


def padded_input(data, oy: int, rows: tuple[int, int], pad: tuple[int, int, int, int], pad_value: int):
    """(the padded input, input rows from output row to output row in it)."""
    n, ib, h, w, batch, block = (int(size) for size in data.shape)
    top, left, bottom, right = pad
    kh, step = rows
    # A kernel of one row skips the rows between its strides; they need not be loaded.
    skip = step if kh == 1 else 1
    height = oy if kh == 1 else h + top + bottom

    def element(image, c, y, x, b, i):
        row, column = y * skip - top, x - left
        inside = tirx.all(row >= 0, row < h, column >= 0, column < w)
        return tirx.if_then_else(inside, data[image, c, row, column, b, i], tirx.const(pad_value, "int8"))

    shape = (n, ib, height, w + left + right, batch, block)
    return te.compute(shape, element, name="input"), 1 if kh == 1 else step
