"""Tile sizes: what a tiling is, what it costs, and the best one that fits the scratchpads.

The costs are cycles of a plain model, not of the circuit: moving data takes bytes / 8, 64 per DMA and 8 per contiguous
chunk; computing takes one per micro-op and 20 per tile. With virtual threads the two overlap.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from ..hw.config import Config
from ..hw.errors import CapacityError, ScheduleError

DMA_CYCLES, CHUNK_CYCLES, TILE_CYCLES, BYTES_PER_CYCLE = 64, 8, 20, 8
OUTPUT_DIMS = ("n", "co", "oy", "ox")
ORDERS = (("n", "co", "oy", "ox"), ("n", "oy", "ox", "co"), ("co", "n", "oy", "ox"))
MAX_VTHREADS = 4


@dataclass(frozen=True)
class Tile:
    """Extents of one tile and the order of the loops over tiles.

    `n`, `co` and `ci` count blocks of the packed layout, `oy` and `ox` output pixels; a dense layer has only `n`,
    `co` and `ci`. `order` names the output loops, outermost first; inside them runs the loop over tiles of `ci`.
    `hold_inp` and `hold_wgt` load that operand for all of `ci` at once, outside that loop. The tiles along
    `thread` are shared out to `vthreads` virtual threads.
    """

    n: int = 1
    co: int = 1
    oy: int = 1
    ox: int = 1
    ci: int = 1
    order: tuple[str, ...] = ORDERS[0]
    hold_inp: bool = False
    hold_wgt: bool = False
    thread: str = "co"
    vthreads: int = 1

    def checked(self) -> Tile:
        """This tile. Raises `ScheduleError` for values that no schedule can have."""
        for name in (*OUTPUT_DIMS, "ci"):
            if getattr(self, name) < 1:
                raise ScheduleError(f"Tile.{name} = {getattr(self, name)}: must be at least 1")
        if sorted(self.order) != sorted(OUTPUT_DIMS):
            raise ScheduleError(f"Tile.order = {self.order}: must name each of {', '.join(OUTPUT_DIMS)} once")
        if self.thread not in OUTPUT_DIMS:
            raise ScheduleError(f"Tile.thread = {self.thread!r}: must be one of {', '.join(OUTPUT_DIMS)}")
        if not 1 <= self.vthreads <= MAX_VTHREADS:
            raise ScheduleError(f"Tile.vthreads = {self.vthreads}: must be 1 to {MAX_VTHREADS}")
        return self


@dataclass(frozen=True)
class Work:
    """A reduction over `ci`, `kh` and `kw` for every output block: a convolution, or with ones a dense layer.

    `n`, `co`, `ci` count blocks. `stride` and `dilation` are (y, x); `width` is the input's with padding.
    `operands` are per-channel tensors of the epilogue, `alu_ops` its operations, `planes` the stores per tile.
    """

    n: int
    co: int
    ci: int
    oy: int = 1
    ox: int = 1
    kh: int = 1
    kw: int = 1
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    operands: int = 0
    alu_ops: int = 0
    planes: int = 1

    def rows(self, oy):
        """Input rows that `oy` output rows need on chip; of a kernel of one row only those that it reads."""
        return oy if self.kh == 1 else (oy - 1) * self.stride[0] + (self.kh - 1) * self.dilation[0] + 1

    def columns(self, ox):
        """Input columns that `ox` output columns need on chip."""
        return (ox - 1) * self.stride[1] + (self.kw - 1) * self.dilation[1] + 1


def best_tile(work: Work, cfg: Config, vthreads: int = 2) -> Tile:
    """The cheapest tile that fits `cfg`, with at most `vthreads` virtual threads.

    Raises `CapacityError` where not even the smallest tile fits.
    """
    Tile(vthreads=vthreads).checked()
    for threads in range(vthreads, 0, -1):
        found = [_best(work, cfg, template) for template in _templates(work, threads)]
        fitting = [pair for pair in found if pair is not None]
        if fitting:
            return min(fitting, key=lambda pair: pair[0])[1]
    raise CapacityError(
        f"no tile fits {cfg.name}: one output block needs {work.rows(1) * work.columns(1)} entries of input and "
        f"{work.kh * work.kw} of weights; it has {cfg.inp_depth} and {cfg.wgt_depth}"
    )


def _templates(work: Work, threads: int) -> Iterator[Tile]:
    dims = [d for d in OUTPUT_DIMS if getattr(work, d) >= threads] if threads > 1 else ["co"]
    for order, inp, wgt, thread in product(ORDERS, (False, True), (False, True), dims):
        yield Tile(order=order, hold_inp=inp, hold_wgt=wgt, thread=thread, vthreads=threads)


def _sizes(extent: int, divisors_only: bool) -> np.ndarray:
    sizes = {-(-extent // k) for k in range(1, extent + 1)}
    return np.array(sorted(s for s in sizes if not divisors_only or extent % s == 0))


def _best(work: Work, cfg: Config, template: Tile) -> tuple[tuple[float, ...], Tile] | None:
    names = (*OUTPUT_DIMS, "ci")
    grids = np.meshgrid(*(_sizes(getattr(work, d), d in ("co", "ci")) for d in names), indexing="ij")
    t = dict(zip(names, (g.reshape(-1) for g in grids)))
    cycles, instructions = _cost(work, cfg, template, t)
    k = int(np.lexsort((instructions, cycles))[0])
    if not np.isfinite(cycles[k]):
        return None
    return (float(cycles[k]), float(instructions[k])), replace(template, **{d: int(t[d][k]) for d in names})


def _cost(work: Work, cfg: Config, tile: Tile, t: dict) -> tuple[np.ndarray, np.ndarray]:
    """(cycles, infinite where it does not fit; instructions) of every tile of extents `t`."""
    trips = {d: -(-getattr(work, d) // t[d]) for d in t}
    tiles = trips["n"] * trips["co"] * trips["oy"] * trips["ox"]
    inner = {**trips, tile.thread: -(-trips[tile.thread] // tile.vthreads)}
    enough = trips[tile.thread] >= tile.vthreads

    def fetches(relevant: str, hold: bool):
        """Loads of an operand, and the copies of it that virtual threads keep."""
        copies = tile.vthreads if tile.thread in relevant.split() else 1
        count = reached = np.full(len(tiles), copies)
        for d in (*tile.order, "ci"):
            reached = reached * inner[d]
            if d in relevant.split() and not (d == "ci" and hold):
                count = np.where(inner[d] > 1, reached, count)
        return count, copies

    inp_ci = work.ci if tile.hold_inp else t["ci"]
    wgt_ci = work.ci if tile.hold_wgt else t["ci"]
    rows, columns = work.rows(t["oy"]), work.columns(t["ox"])
    pixels = t["oy"] * t["ox"]
    inp, wgt = t["n"] * inp_ci * rows * columns, t["co"] * wgt_ci * work.kh * work.kw
    inp_n, inp_copies = fetches("n oy ox ci", tile.hold_inp)
    wgt_n, wgt_copies = fetches("co ci", tile.hold_wgt)
    par_n, par_copies = fetches("co", True)
    out = t["n"] * t["co"] * pixels
    acc = out * tile.vthreads + t["co"] * work.operands * par_copies
    fits = (inp * inp_copies <= cfg.inp_depth) & (wgt * wgt_copies <= cfg.wgt_depth) & (acc <= cfg.acc_depth) & enough

    loops = np.sort(np.stack([*t.values(), np.full_like(tiles, work.kh), np.full_like(tiles, work.kw)]), axis=0)
    uops = np.prod(loops[:-2], axis=0)
    uop_n = np.where(uops * tile.vthreads <= cfg.uop_depth // 2, 1, tiles * trips["ci"])

    def memory(count, entries, entry_bytes, dmas, chunks):
        return count * (entries * entry_bytes / BYTES_PER_CYCLE + DMA_CYCLES * dmas + CHUNK_CYCLES * chunks)

    full_row = t["ox"] == work.ox
    inp_dmas = t["n"] * inp_ci
    inp_mem = memory(inp_n, inp, cfg.inp_entry_bytes, inp_dmas, inp_dmas * np.where(full_row, 1, rows))
    wgt_mem = memory(wgt_n, wgt, cfg.wgt_entry_bytes, 1, np.where(wgt_ci == work.ci, 1, t["co"]))
    par_mem = memory(par_n, t["co"], cfg.acc_entry_bytes, 1, 1) * work.operands
    out_dmas = work.planes * t["n"] * np.where(full_row, 1, t["co"])
    out_chunks = work.planes * t["n"] * t["co"] * np.where(full_row, 1, t["oy"])
    out_mem = memory(tiles, out * work.planes, cfg.out_entry_bytes, out_dmas, out_chunks)
    total_mem = inp_mem + wgt_mem + par_mem + out_mem + uop_n * (uops * 4 / BYTES_PER_CYCLE + DMA_CYCLES)

    results = work.n * work.co * work.oy * work.ox
    compute = results * (work.ci * work.kh * work.kw + 1 + work.alu_ops) + TILE_CYCLES * tiles * trips["ci"]
    # What the threads share has one copy on chip, so loading it anew waits until they are done with the old one.
    shared = ((inp_n, inp_copies, inp_mem), (wgt_n, wgt_copies, wgt_mem))
    alone = sum(np.where(count > 1, cost, 0) for count, copies, cost in shared if copies == 1)
    cycles = np.maximum(compute + alone, total_mem) if tile.vthreads > 1 else compute + total_mem
    per_tile = out_dmas + 1 + work.alu_ops + trips["ci"]
    instructions = inp_n * inp_dmas + wgt_n + par_n * work.operands + tiles * per_tile
    return np.where(fits, cycles, np.inf), instructions
