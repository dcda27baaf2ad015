"""Max and sum pooling on the ALU."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import product

from ...hw.config import Config
from ...hw.errors import CapacityError, ScheduleError
from ..intrin import ACC
from ..tile import DMA_CYCLES, LATENCY, OUTPUT_DIMS, ROW_CYCLES, STEP_CYCLES, Tile, Work, sizes
from ..tvm_compat import Schedule, te, tirx
from . import epilogue as ep
from .conv2d import output_size
from .layer import OnAlu, TileSearch
from .reduction import attach, bind_threads, place_epilogue, tile_outputs

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
    search: TileSearch | None = None,
) -> Schedule:
    """The schedule of the maximum or sum over windows of int8 activations `x` (n, c, h, w).

    An average is a sum with an epilogue that divides, e.g. `[("shr", 2)]`. `stride` is (y, x), `pad` (top, left,
    bottom, right), filled with `pad_value` (default: the smallest input for "max", 0 for "sum"; other than 0 needs
    the extension `pad_value`). `epilogue`, `planes` and `search` are those of `dense`; a tile uses `n`, `co`, `oy` and
    `ox`.

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
    x = te.placeholder((nb, cb, h, w, cfg.batch, cfg.block_out), "int8", "x")
    padded = _padded(x, pad, value)
    ky, kx = te.reduce_axis((0, kh), "ky"), te.reduce_axis((0, kw), "kx")
    reduce = te.sum if kind == "sum" else _maximum(smallest)

    def over_window(image, o, y, x, b, j):
        return reduce(padded[image, o, y * stride[0] + ky, x * stride[1] + kx, b, j], axis=[ky, kx])

    acc = te.compute((*shape, cfg.batch, cfg.block_out), over_window, name="acc")
    after = ep.build(acc, epilogue, planes, cfg, cb)
    func = te.create_prim_func([x, *after.operands, *after.outputs])
    work = ep.with_epilogue(Work(nb, cb, 1, oy, ox, kh, kw, stride), epilogue, planes)
    return _Windows(cfg, func, work, partial(_arrange, after)).scheduled(tile, vthreads, search)


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


def _arrange(after: ep.Epilogue, sch: Schedule, tile: Tile) -> None:
    acc, data = sch.get_sblock("acc"), sch.get_sblock("input")
    for block in (acc, data):
        sch.set_scope(block, 0, ACC)
    loops = sch.get_loops(acc)
    levels, inner = tile_outputs(sch, loops[:4], OUTPUT_DIMS, tile)
    sch.reorder(*(loop for _, loop in levels), *loops[6:], *inner, *loops[4:6])
    bind_threads(sch, levels, tile)
    place_epilogue(sch, after, levels)
    sch.compute_at(data, attach(sch, levels, OUTPUT_DIMS), preserve_unit_loops=True)
    sch.decompose_reduction(acc, sch.get_loops(acc)[len(levels)])


class _Windows(OnAlu):
    """Windows over inputs in accumulators; a tile has one image."""

    def ranked(self, vthreads: int) -> Iterable[tuple[Tile, float]]:
        work = self.work
        for threads in range(vthreads, 0, -1):
            dims = [d for d in ("co", "oy", "ox") if getattr(work, d) >= threads][: 1 if threads == 1 else None]
            extents = product(*(map(int, sizes(n, divisors_only=False)) for n in (work.co, work.oy, work.ox)))
            tiles = (Tile(1, co, oy, ox, thread=d, vthreads=threads) for (co, oy, ox), d in product(extents, dims))
            found = [(tile, self._cycles(tile)) for tile in tiles if self._fits(tile)]
            if found:
                return sorted(found, key=lambda pair: pair[1])
        raise CapacityError(
            f"pool: a window of {work.kh}x{work.kw} does not fit the {self.cfg.acc_depth} accumulators of "
            f"{self.cfg.name}"
        )

    def _inputs(self, tile: Tile) -> int:
        (sy, sx), work = self.work.stride, self.work
        return ((tile.oy - 1) * sy + work.kh) * ((tile.ox - 1) * sx + work.kw)

    def _fits(self, tile: Tile) -> bool:
        # What the ALU reads: see Storage.read_by_alu.
        read = tile.co * (self._inputs(tile) + self.work.operands) * tile.vthreads
        written = tile.co * tile.oy * tile.ox * tile.vthreads
        enough = -(-getattr(self.work, tile.thread) // getattr(tile, tile.thread)) >= tile.vthreads
        return enough and read + written <= self.cfg.acc_depth and read <= self.cfg.inp_depth

    def _cycles(self, tile: Tile) -> float:
        cfg, work, beat = self.cfg, self.work, self.cfg.axi_bits // 8
        tiles = work.n * -(-work.co // tile.co) * -(-work.oy // tile.oy) * -(-work.ox // tile.ox)
        inputs, outputs = tile.co * self._inputs(tile), tile.co * tile.oy * tile.ox
        rows = tile.co * ((tile.oy - 1) * work.stride[0] + work.kh)
        # Loads into accumulators wait for the ALU, and the ALU for the first of their data.
        loads = inputs * cfg.out_entry_bytes / beat + DMA_CYCLES * tile.co + ROW_CYCLES * rows + LATENCY
        step = loads + (work.kh * work.kw + work.alu_ops) * (outputs + STEP_CYCLES)
        store = work.planes * (outputs * cfg.out_entry_bytes / beat + DMA_CYCLES * tile.co) + LATENCY
        return tiles * (max(step, store) if tile.vthreads > 1 else step + store) + store
