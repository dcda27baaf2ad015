"""The ready schedule of max and sum pooling on the ALU, for configurations with the extension `acc8`.

Inputs are loaded into accumulators, so a window must fit there. `_Windows` ranks the tiles: it has its own cost model.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

from ...hw.config import Config
from ...hw.errors import CapacityError, ScheduleError
from ...hw.isa import Mem, depth
from .. import cost
from ..conv_shape import ConvShape, Pads, Pair
from ..intrin import ACC
from ..tile import Tile
from ..tvm_compat import Schedule, te, tirx
from .layer import Expression, OnAlu, Options, arrange_windows
from .tiling import Work, sizes

if TYPE_CHECKING:
    from typing_extensions import Unpack

KINDS = ("max", "sum")


def pool(
    cfg: Config,
    n: int,
    h: int,
    w: int,
    c: int,
    kh: int,
    kw: int,
    stride: Pair = (1, 1),
    pad: Pads = (0, 0, 0, 0),
    *,
    kind: str = "max",
    pad_value: int | None = None,
    **options: Unpack[Options],
) -> Schedule:
    """The schedule of the maximum or sum over windows of int8 activations `x` (n, c, h, w).

    An average is a sum with an epilogue that divides, e.g. `[("shr", 2)]`. `stride` is (y, x), `pad` (top, left,
    bottom, right), filled with `pad_value` (default: the smallest input for "max", 0 for "sum"; other than 0 needs
    the extension `pad_value`). The other options are `epilogue`, `planes`, `tile`, `vthreads` and `search` as in
    `dense`; a tile uses `n`, `co`, `oy` and `ox`.

    Parameters of the program, packed as in runtime/layout.py with blocks of `block_out`: input `x`, each epilogue
    name, outputs `out` or `OUT0` to `OUT3`. Loads int8 into accumulators, so it needs the extension `acc8`.

    Raises `ScheduleError` for an impossible shape, kind or tile, `CapacityError` if no tile fits.
    """
    shape = ConvShape(n, c, h, w, c, (kh, kw), stride, pad, groups=c)
    return pool_of(cfg, shape, kind=kind, pad_value=pad_value, **options)


def pool_of(
    cfg: Config, shape: ConvShape, *, kind: str = "max", pad_value: int | None = None, **options: Unpack[Options]
) -> Schedule:
    """`pool` over the windows of a shape with as many groups and output channels as input channels."""
    if kind not in KINDS:
        raise ScheduleError(f"pool: kind {kind!r} must be one of {', '.join(KINDS)}")
    smallest = -128  # int8
    value = (smallest if kind == "max" else 0) if pad_value is None else pad_value
    work, block = Work.of(shape.checked("pool"), cfg, depthwise=True), (cfg.batch, cfg.block_out)
    (kh, kw), (sy, sx) = shape.kernel, shape.strides
    x = te.placeholder((work.n, work.co, shape.h, shape.w, *block), "int8", "x")
    padded = _padded(x, shape.pads, value)
    ky, kx = te.reduce_axis((0, kh), "ky"), te.reduce_axis((0, kw), "kx")
    reduce = te.sum if kind == "sum" else _maximum(smallest)

    def over_window(image, o, y, x, b, j):
        return reduce(padded[image, o, y * sy + ky, x * sx + kx, b, j], axis=[ky, kx])

    acc = te.compute((work.n, work.co, work.oy, work.ox, *block), over_window, name="acc")
    return Expression(cfg, work, (x,), acc, partial(arrange_windows, ACC), _Windows).scheduled(**options)


def _maximum(smallest: int):
    # te.max starts from the smallest int32, which takes four instructions to write; `smallest` is enough for int8.
    return te.comm_reducer(lambda a, b: te.max(a, b), lambda dtype: tirx.const(smallest, dtype), name="maximum")


def _padded(x, pads: Pads, value: int):
    n, blocks, h, w, batch, block = (int(size) for size in x.shape)
    top, left, bottom, right = pads

    def element(image, o, y, column, b, j):
        row, col = y - top, column - left
        inside = tirx.all(row >= 0, row < h, col >= 0, col < w)
        return tirx.if_then_else(inside, x[image, o, row, col, b, j].astype("int32"), tirx.const(value, "int32"))

    return te.compute((n, blocks, h + top + bottom, w + left + right, batch, block), element, name="input")


class _Windows(OnAlu):
    """Windows over inputs in accumulators; a tile has one image."""

    def ranked(self, vthreads: int) -> Iterable[tuple[Tile, float]]:
        work = self.work
        for threads in range(vthreads, 0, -1):
            dims = [d for d in ("co", "oy", "ox") if getattr(work, d) >= threads][: 1 if threads == 1 else None]
            extents = product(*(map(int, sizes(n, divisors_only=False)) for n in (work.co, work.oy, work.ox)))
            tiles = (Tile(1, co, oy, ox, thread=d, vthreads=threads) for (co, oy, ox), d in product(extents, dims))
            fitting = [(tile, self._cycles(tile)) for tile in tiles if self._fits(tile)]
            if fitting:
                return sorted(fitting, key=lambda pair: pair[1])
        raise CapacityError(
            f"pool: a window of {work.shape.kernel[0]}x{work.shape.kernel[1]} does not fit the {self.cfg.acc_depth} "
            f"accumulators of {self.cfg.name}"
        )

    def _inputs(self, tile: Tile) -> int:
        return math.prod(self.work.shape.reach(tile.oy, tile.ox))

    def _fits(self, tile: Tile) -> bool:
        # Tensors that the ALU reads: see Storage.read_by_alu.
        read = tile.co * (self._inputs(tile) + self.work.operands) * tile.vthreads
        written = tile.co * tile.oy * tile.ox * tile.vthreads
        enough = -(-getattr(self.work, tile.thread) // getattr(tile, tile.thread)) >= tile.vthreads
        packed = self.work.packed * tile.co * (tile.vthreads if tile.thread == "co" else 1)
        on_chip = not packed or packed <= depth(self.cfg, Mem.PAR)
        return enough and on_chip and read + written <= self.cfg.acc_depth and read <= self.cfg.inp_depth

    def _cycles(self, tile: Tile) -> float:
        cfg, work = self.cfg, self.work
        tiles = work.n * -(-work.co // tile.co) * -(-work.oy // tile.oy) * -(-work.ox // tile.ox)
        inputs, outputs = tile.co * self._inputs(tile), tile.co * tile.oy * tile.ox
        rows = tile.co * work.shape.reach(tile.oy, tile.ox)[0]
        # Loads into accumulators wait for the ALU, and the ALU for their first data.
        loads = cost.transfer(cfg, inputs * cfg.out_entry_bytes, tile.co, rows) + cost.round_trip()
        step = loads + (work.shape.taps + work.alu_ops) * cost.computed(outputs)
        store = work.planes * cost.transfer(cfg, outputs * cfg.out_entry_bytes, tile.co) + cost.round_trip()
        return tiles * cost.overlapped(step, store, tile.vthreads) + store
