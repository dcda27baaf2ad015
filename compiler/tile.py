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
SLACK = 0.01  # tiles this close to the best in cycles are told apart by their number of instructions


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
    names = (*OUTPUT_DIMS, "ci")
    grids = np.meshgrid(*(_sizes(getattr(work, d), d in ("co", "ci")) for d in names), indexing="ij")
    extents: dict[str, np.ndarray] = dict(zip(names, (g.reshape(-1) for g in grids)))
    for threads in range(vthreads, 0, -1):
        templates = list(_templates(work, threads))
        if not templates:
            continue
        cost = np.array([_Candidates(work, cfg, template, extents).cost() for template in templates])
        cycles, instructions = cost[:, 0].reshape(-1), cost[:, 1].reshape(-1)
        best = cycles.min()
        if np.isfinite(best):
            k = np.lexsort((cycles, np.where(cycles <= best * (1 + SLACK), instructions, np.inf)))[0]
            template, place = divmod(int(k), len(grids[0].reshape(-1)))
            return replace(templates[template], **{d: int(sizes[place]) for d, sizes in extents.items()})
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


class _Candidates:
    """Every tile of extents `t` (arrays) with the loop order, holds and threads of `tile`."""

    def __init__(self, work: Work, cfg: Config, tile: Tile, t: dict[str, np.ndarray]):
        self.work, self.cfg, self.tile, self.t = work, cfg, tile, t
        trips = {d: -(-getattr(work, d) // t[d]) for d in t}
        self.tiles = trips["n"] * trips["co"] * trips["oy"] * trips["ox"]
        self.steps = self.tiles * trips["ci"]
        self.share = {**trips, tile.thread: -(-trips[tile.thread] // tile.vthreads)}
        self.enough = trips[tile.thread] >= tile.vthreads
        inp_ci = work.ci if tile.hold_inp else t["ci"]
        self.wgt_ci = work.ci if tile.hold_wgt else t["ci"]
        self.inp_dmas = t["n"] * inp_ci
        self.inp = self.inp_dmas * work.rows(t["oy"]) * work.columns(t["ox"])
        self.wgt = t["co"] * self.wgt_ci * work.kh * work.kw
        self.out = t["n"] * t["co"] * t["oy"] * t["ox"]
        self.full_row = t["ox"] == work.ox
        sides = np.stack([*t.values(), np.full_like(self.tiles, work.kh), np.full_like(self.tiles, work.kw)])
        self.uops = np.prod(np.sort(sides, axis=0)[:-2], axis=0)  # the two longest loops are the instruction's

    def copies(self, dims: str) -> int:
        """How many times an operand of these dimensions is on chip: once per thread that needs another part."""
        return self.tile.vthreads if self.tile.thread in dims.split() else 1

    def fetches(self, dims: str) -> np.ndarray:
        """How often an operand of these dimensions is loaded."""
        count = reached = np.full(len(self.tiles), self.copies(dims))
        for d in (*self.tile.order, "ci"):
            reached = reached * self.share[d]
            if d in dims.split():
                count = np.where(self.share[d] > 1, reached, count)
        return count

    def cost(self) -> tuple[np.ndarray, np.ndarray]:
        """(cycles, infinite where the tile does not fit; instructions)."""
        work, cfg, tile, t = self.work, self.cfg, self.tile, self.t
        inp_dims = "n oy ox" if tile.hold_inp else "n oy ox ci"
        wgt_dims = "co" if tile.hold_wgt else "co ci"
        inp_n, wgt_n, par_n = self.fetches(inp_dims), self.fetches(wgt_dims), self.fetches("co")
        uop_n = np.where(self.uops * tile.vthreads <= cfg.uop_depth // 2, 1, self.steps)
        inp_chunks = self.inp_dmas * np.where(self.full_row, 1, work.rows(t["oy"]))
        wgt_chunks = np.where(self.wgt_ci == work.ci, 1, t["co"])
        out_dmas = work.planes * t["n"] * np.where(self.full_row, 1, t["co"])
        out_chunks = work.planes * t["n"] * t["co"] * np.where(self.full_row, 1, t["oy"])
        inp_mem = inp_n * _cycles(self.inp * cfg.inp_entry_bytes, self.inp_dmas, inp_chunks)
        wgt_mem = wgt_n * _cycles(self.wgt * cfg.wgt_entry_bytes, 1, wgt_chunks)
        par_mem = par_n * _cycles(t["co"] * cfg.acc_entry_bytes, 1, 1) * work.operands
        out_mem = self.tiles * _cycles(self.out * work.planes * cfg.out_entry_bytes, out_dmas, out_chunks)
        memory = inp_mem + wgt_mem + par_mem + out_mem + uop_n * _cycles(self.uops * cfg.uop_entry_bytes, 1, 1)

        results = work.n * work.co * work.oy * work.ox
        compute = results * (work.ci * work.kh * work.kw + 1 + work.alu_ops) + TILE_CYCLES * self.steps
        if tile.vthreads > 1:
            # What the threads share has one copy on chip: loading it anew waits until they are done with the old one.
            for dims, count, cost in ((inp_dims, inp_n, inp_mem), (wgt_dims, wgt_n, wgt_mem)):
                compute = compute + (np.where(count > 1, cost, 0) if self.copies(dims) == 1 else 0)
            first_and_last = (
                self.inp * cfg.inp_entry_bytes + self.wgt * cfg.wgt_entry_bytes + self.out * cfg.out_entry_bytes
            )
            cycles = np.maximum(compute, memory) + first_and_last / BYTES_PER_CYCLE
        else:
            cycles = compute + memory
        instructions = inp_n * self.inp_dmas + wgt_n + par_n * work.operands
        instructions = instructions + self.tiles * (out_dmas + 1 + work.alu_ops) + self.steps
        return np.where(self._fits(inp_dims, wgt_dims), cycles, np.inf), instructions

    def _fits(self, inp_dims: str, wgt_dims: str) -> np.ndarray:
        cfg = self.cfg
        acc = self.out * self.tile.vthreads + self.t["co"] * self.work.operands * self.copies("co")
        inp, wgt = self.inp * self.copies(inp_dims), self.wgt * self.copies(wgt_dims)
        return (inp <= cfg.inp_depth) & (wgt <= cfg.wgt_depth) & (acc <= cfg.acc_depth) & self.enough


def _cycles(nbytes, dmas, chunks):
    return nbytes / BYTES_PER_CYCLE + DMA_CYCLES * dmas + CHUNK_CYCLES * chunks
