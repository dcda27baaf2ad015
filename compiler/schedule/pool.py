"""Max and sum pooling on the ALU."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
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

    def best(self, vthreads: int) -> Tile:
        """Whole rows of as many channel blocks as fit, else as many rows, else as many columns."""
        work = self.work
        for threads in range(vthreads, 0, -1):
            for thread, extent in self._threads(threads):
                most = {"co": work.co, "oy": work.oy, "ox": work.ox} | {thread: -(-extent // threads)}
                for dim in ("co", "oy", "ox"):
                    for size in range(most[dim], 0, -1):
                        tile = replace(Tile(thread=thread, vthreads=threads), **{**most, dim: size})
                        if self._fits(tile):
                            return tile
                    most[dim] = 1
        raise CapacityError(
            f"pool: a window of {work.kh}x{work.kw} does not fit the {self.cfg.acc_depth} accumulators of "
            f"{self.cfg.name}"
        )

    def ranked(self, vthreads: int) -> Iterable[tuple[Tile, float]]:
        best, work = self.best(vthreads), self.work
        extents = [{*map(int, sizes(getattr(work, d), divisors_only=False)), getattr(best, d)} for d in OUTPUT_DIMS[1:]]
        found = []
        for (co, oy, ox), (thread, extent) in product(product(*extents), self._threads(best.vthreads)):
            tile = Tile(co=co, oy=oy, ox=ox, thread=thread, vthreads=best.vthreads)
            if tile == best or (self._fits(tile) and -(-extent // getattr(tile, thread)) >= best.vthreads):
                found.append((tile, self._cycles(tile)))
        return sorted(found, key=lambda pair: pair[1])

    def _threads(self, vthreads: int) -> list[tuple[str, int]]:
        dims = [(d, getattr(self.work, d)) for d in ("co", "oy", "ox")]
        return [(d, n) for d, n in dims if n >= vthreads][: 1 if vthreads == 1 else None]

    def _inputs(self, tile: Tile) -> int:
        (sy, sx), work = self.work.stride, self.work
        return ((tile.oy - 1) * sy + work.kh) * ((tile.ox - 1) * sx + work.kw)

    def _fits(self, tile: Tile) -> bool:
        read = (
            tile.co * (self._inputs(tile) + self.work.operands) * tile.vthreads
        )  # by the ALU: see Storage.read_by_alu
        written = tile.co * tile.oy * tile.ox * tile.vthreads
        return read + written <= self.cfg.acc_depth and read <= self.cfg.inp_depth

    def _cycles(self, tile: Tile) -> float:
        cfg, work, beat = self.cfg, self.work, self.cfg.axi_bits // 8
        tiles = work.n * -(-work.co // tile.co) * -(-work.oy // tile.oy) * -(-work.ox // tile.ox)
        inputs, outputs = tile.co * self._inputs(tile), tile.co * tile.oy * tile.ox
        rows = tile.co * ((tile.oy - 1) * work.stride[0] + work.kh)
        loads = inputs * cfg.out_entry_bytes / beat + DMA_CYCLES * tile.co + ROW_CYCLES * rows  # in the ALU's queue
        step = loads + (work.kh * work.kw + work.alu_ops) * (outputs + STEP_CYCLES)
        store = work.planes * (outputs * cfg.out_entry_bytes / beat + DMA_CYCLES * tile.co)
        if tile.vthreads > 1:
            return tiles * max(step, store) + store + 2 * LATENCY
        return tiles * (step + store + 2 * LATENCY)
