"""The tile search: the work of a layer in blocks of the packed layout, and the cheapest tiles that fit the scratchpads.

All candidates of a loop order and thread dimension are estimated at once, in numpy arrays, with the terms of
compiler/cost.py. Without virtual threads the times of loads, computation and stores add up; with them the slowest
counts in every step, plus the first loads and the last store. Pooling and element-wise chains rank their own tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np

from ...hw.config import Config
from ...hw.errors import CapacityError, ScheduleError
from ...hw.isa import Mem, depth
from ...hw.units import striped, stripes
from .. import cost
from ..conv_shape import ConvShape, Size
from ..tile import ORDERS, OUTPUT_DIMS, Tile


@dataclass(frozen=True)
class Work:
    """A convolution in blocks of the packed layout, and the operations and operands of its epilogue.

    `n`, `co` and `ci` count blocks. Each output block of a `depthwise` work has its own input block, its weights,
    if any, stay on chip, and `ci` is 1. `operands` are per-channel tensors of the epilogue in
    accumulators, `packed` those in PAR, `alu_ops` its operations, `planes` the stores per tile.
    A micro-op takes `row_taps` taps of a kernel row; packed depthwise weights have `pitch` rows for each, 0 for as many
    as taps.
    """

    shape: ConvShape
    n: int
    co: int
    ci: int
    depthwise: bool = False
    operands: int = 0
    packed: int = 0
    alu_ops: int = 0
    planes: int = 1
    row_taps: int = 1
    pitch: int = 0

    @classmethod
    def of(cls, shape: ConvShape, cfg: Config, *, depthwise: bool = False) -> Work:
        """The work of `shape` without an epilogue; with `depthwise` every output channel reads one input channel.

        Raises `ScheduleError` if `cfg` is no `Config`.
        """
        if not isinstance(cfg, Config):
            raise ScheduleError(
                f"configuration {cfg!r}: must be a Config, as load_config of tilewright.hw.config makes"
            )
        ci = 1 if depthwise else -(-shape.c // cfg.block_in)
        return cls(shape, -(-shape.n // cfg.batch), -(-shape.o // cfg.block_out), ci, depthwise)

    @property
    def oy(self) -> int:
        """Rows of an output image."""
        return self.shape.output[0]

    @property
    def ox(self) -> int:
        """Columns of an output image."""
        return self.shape.output[1]

    @property
    def vector(self) -> bool:
        """True for the products of one vector: every weight is used once."""
        return self.n * self.oy * self.ox == 1 and not self.depthwise

    @property
    def issues(self) -> int:
        """Micro-ops of one output block that read one input block."""
        kh, kw = self.shape.kernel
        return kh * -(-kw // self.row_taps)

    @property
    def weight_rows(self) -> int:
        """Rows of weights of one block of channels of a `depthwise` work."""
        kh, kw = self.shape.kernel
        return kh * (self.pitch or kw)

    def inputs(self, oy: Size, ox: Size) -> tuple[Size, Size]:
        """Input rows and columns that a tile needs on chip, without the rows that a kernel of one row skips."""
        rows, columns = self.shape.reach(oy, ox)
        return (oy if self.shape.kernel[0] == 1 else rows), columns


_PASSES = 2  # kernels of a tile: products that replace accumulators, then those that add to them
_POOR = 4  # divisors are poor if the largest that fits is this many times smaller than the largest size that fits
SLACK = 0.002  # among tiles this close to the best in cycles, the fewest instructions win


def best_tile(work: Work, cfg: Config, vthreads: int = 2) -> Tile:
    """The cheapest tile that fits `cfg`, with at most `vthreads` virtual threads.

    Among tiles of almost equal cost it has the fewest instructions. Raises `CapacityError` if not even the
    smallest tile fits.
    """
    cycles, instructions, tile_at = _ranked(work, cfg, vthreads)
    return tile_at(int(np.lexsort((cycles, np.where(cycles <= cycles.min() * (1 + SLACK), instructions, np.inf)))[0]))


def best_tiles(work: Work, cfg: Config, vthreads: int, count: int) -> list[Tile]:
    """Up to `count` tiles that fit, the cheapest first, no two alike in extents and threads.

    Raises `CapacityError` if not even the smallest tile fits.
    """
    tiles: dict[tuple, Tile] = {}
    for tile, _ in ranked_tiles(work, cfg, vthreads):
        if len(tiles) == count:
            break
        extents = tuple(getattr(tile, d) for d in (*OUTPUT_DIMS, "ci"))
        tiles.setdefault((extents, tile.thread), tile)
    return list(tiles.values())


def ranked_tiles(work: Work, cfg: Config, vthreads: int) -> Iterator[tuple[Tile, float]]:
    """(tile, estimated cycles) of every tile that fits, the cheapest first.

    They have `vthreads` virtual threads, or as many as fit. Raises `CapacityError` if not even the smallest tile fits.
    """
    cycles, instructions, tile_at = _ranked(work, cfg, vthreads)
    for k in np.lexsort((instructions, cycles)).tolist():
        if not np.isfinite(cycles[k]):
            return
        yield tile_at(k), float(cycles[k])


def largest_tile(work: Work, cfg: Config, vthreads: int = 2) -> Tile:
    """The tile of a simple heuristic, for comparison: shrink the longest extent by its smallest factor until it fits.

    Raises `CapacityError` if not even the smallest tile fits.
    """
    for threads in range(Tile(vthreads=vthreads).checked().vthreads, 0, -1):
        for thread in ("co", "oy", "ox", "n"):
            found = _shrunk(work, cfg, Tile(thread=thread, vthreads=threads))
            if found is not None:
                return found
    raise _nothing_fits(work, cfg)


def _shrunk(work: Work, cfg: Config, tile: Tile) -> Tile | None:
    extents = {d: getattr(work, d) for d in (*OUTPUT_DIMS, "ci")}
    extents[tile.thread] = -(-extents[tile.thread] // tile.vthreads)
    while True:
        candidate = _Candidates(work, cfg, tile, {d: np.array([n]) for d, n in extents.items()})
        if np.isfinite(candidate.estimate()[0][0]):
            return candidate.tile_at(0)
        longest = max(extents, key=lambda d: extents[d])
        if extents[longest] == 1:
            return None
        factor = next(f for f in range(2, extents[longest] + 1) if extents[longest] % f == 0)
        extents[longest] //= factor


def _ranked(work: Work, cfg: Config, vthreads: int) -> tuple[np.ndarray, np.ndarray, Callable[[int], Tile]]:
    """(cycles and instructions of all candidates, the tile of a candidate) for as many threads as fit."""
    Tile(vthreads=vthreads).checked()
    names = (*OUTPUT_DIMS, "ci")
    extents_of = {d: sizes(getattr(work, d), divisors_only=False) for d in names}
    extents_of |= {"co": _channels(work, vthreads), "ci": _reductions(work, cfg)}
    grids = np.meshgrid(*extents_of.values(), indexing="ij")
    extents: dict[str, np.ndarray] = dict(zip(names, (g.reshape(-1) for g in grids)))
    for threads in range(vthreads, 0, -1):
        groups = [_Candidates(work, cfg, template, extents) for template in _templates(work, threads)]
        if not groups:
            continue
        estimates = np.array([group.estimate() for group in groups])
        cycles, instructions = estimates[:, 0].reshape(-1), estimates[:, 1].reshape(-1)
        if np.isfinite(cycles.min()):
            return cycles, instructions, partial(_tile_at, groups)
    raise _nothing_fits(work, cfg)


def _channels(work: Work, vthreads: int) -> np.ndarray:
    """Candidate tile sizes of `co`: its divisors; all sizes for one vector if the divisors would make many small tiles.

    Weights of a vector are used once, so the fixed costs of a tile matter: its parameters and its store.
    """
    divisors, most = sizes(work.co, divisors_only=True), work.co // vthreads
    fitting = divisors[divisors <= most]
    poor = work.vector and fitting.size and _POOR * fitting[-1] <= most
    return sizes(work.co, divisors_only=False) if poor else divisors


def _reductions(work: Work, cfg: Config) -> np.ndarray:
    """Candidate tile sizes of `ci`: its divisors; all sizes if the divisors leave most of the weights' memory empty.

    A prime number of blocks has no divisors but 1 and itself. A vector is not split if loads are spread over ports:
    most of its weights are loaded before it is known, and weights of a second part would wait for the first products.
    """
    divisors, most = sizes(work.ci, divisors_only=True), cfg.wgt_depth // (2 * work.shape.taps)
    if work.vector and work.ci <= most and stripes(cfg) > 1:
        return divisors[-1:]
    fitting = divisors[divisors <= most]
    poor = work.ci > most and fitting.size and _POOR * fitting[-1] <= most
    return sizes(work.ci, divisors_only=False) if poor else divisors


def _tile_at(groups: list[_Candidates], k: int) -> Tile:
    group, index = divmod(k, len(groups[0].tiles))
    return groups[group].tile_at(index)


def _nothing_fits(work: Work, cfg: Config) -> CapacityError:
    rows, columns = work.inputs(1, 1)
    return CapacityError(
        f"no tile fits {cfg.name}: one output block needs {rows * columns} entries of input and "
        f"{work.shape.taps} of weights; it has {cfg.inp_depth} and {cfg.wgt_depth}"
    )


def _templates(work: Work, threads: int) -> Iterator[Tile]:
    dims = [d for d in OUTPUT_DIMS if getattr(work, d) >= threads] if threads > 1 else ["co"]
    for order, thread in product(ORDERS, dims):
        yield Tile(order=order, thread=thread, vthreads=threads)


def sizes(extent: int, divisors_only: bool) -> np.ndarray:
    """Candidate tile sizes: the smallest for each number of tiles, in ascending order."""
    found = {-(-extent // k) for k in range(1, extent + 1)}
    return np.array(sorted(size for size in found if not divisors_only or extent % size == 0))


class _Operand:
    """Number of loads of an operand's tiles, and of tiles on chip.

    `size` are the entries of one tile, `dims` the loops that it depends on; threads have separate tiles if it depends
    on their loop.
    """

    def __init__(self, tile: Tile, share: dict[str, np.ndarray], size: np.ndarray, dims: tuple[str, ...], depth: int):
        self.size = size
        self.copies = tile.vthreads if tile.thread in dims else 1
        most = np.maximum(depth // size, 1)
        distinct = reached = np.full(len(size), self.copies)
        window = np.full(len(size), self.copies)  # tiles that must stay on chip to be reused
        for d in ("ci", *reversed(tile.order)):
            if d in dims:
                distinct, reached = distinct * share[d], reached * share[d]
            else:
                again = (distinct > most) & (share[d] > 1)
                window = np.where(again | (share[d] == 1), window, np.maximum(window, distinct))
                reached = np.where(again, reached * share[d], reached)
        self.fetches = reached
        ahead = np.where(reached > self.copies, max(2, self.copies) if tile.vthreads > 1 else 1, self.copies)
        self.slots = np.minimum(most, np.maximum(window, ahead))
        self.fits = size * self.copies <= depth
        self.waits = (tile.vthreads > 1) & (self.slots < 2) & (reached > 1)


def _turn(step: np.ndarray, load: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """Cycles of a step and a concurrent load into one of `slots`, which waits for the step that used that slot."""
    return np.maximum(np.maximum(step, load), (step + load + cost.latency()) / slots)


class _Candidates:
    """Every tile of extents `t` (arrays) with the loop order and threads of `tile`."""

    def __init__(self, work: Work, cfg: Config, tile: Tile, t: dict[str, np.ndarray]):
        self.work, self.cfg, self.tile, self.t = work, cfg, tile, t
        trips = {d: -(-getattr(work, d) // t[d]) for d in t}
        self.tiles = trips["n"] * trips["co"] * trips["oy"] * trips["ox"]
        self.steps = self.tiles * trips["ci"]
        share = {**trips, tile.thread: -(-trips[tile.thread] // tile.vthreads)}
        self.enough = trips[tile.thread] >= tile.vthreads
        self.rows, self.columns = work.inputs(t["oy"], t["ox"])
        self.out = t["n"] * t["co"] * t["oy"] * t["ox"]
        self.channels = "co" if work.depthwise else "ci"
        inp, wgt = t["n"] * t[self.channels] * self.rows * self.columns, t["co"] * t["ci"] * work.shape.taps
        self.inp = _Operand(tile, share, inp, ("n", "oy", "ox", self.channels), cfg.inp_depth)
        if work.depthwise:
            wgt = np.full_like(wgt, -(-work.co * work.weight_rows // cfg.block_in))
        self.wgt = _Operand(tile, share, wgt, () if work.depthwise else ("co", "ci"), cfg.wgt_depth)
        self.par = _Operand(tile, share, t["co"], ("co",), depth(cfg, Mem.PAR))
        self.kernels = self._kernels(trips)
        self.full_row = t["ox"] == work.ox

    def _kernels(self, trips: dict[str, np.ndarray]) -> np.ndarray:
        """Lists of micro-ops that are loaded: for every block of rows of weights, as these are in no loop's steps."""
        each = trips["co"] if self.work.depthwise else np.ones_like(trips["co"])
        return _PASSES * each * (1 if self.work.depthwise and self.tile.thread == "co" else self.tile.vthreads)

    def tile_at(self, k: int) -> Tile:
        slots = {"inp_slots": int(self.inp.slots[k]), "wgt_slots": int(self.wgt.slots[k])}
        return replace(self.tile, **{d: int(sizes[k]) for d, sizes in self.t.items()}, **slots)

    def estimate(self) -> tuple[np.ndarray, np.ndarray]:
        """(cycles, infinite if the tile does not fit; instructions)."""
        work, t = self.work, self.t
        inp_loads = t["n"] * t[self.channels]
        stores = work.planes * t["n"] * np.where(self.full_row, 1, t["co"])
        cycles = self._cycles(inp_loads, stores)
        instructions = self.inp.fetches * inp_loads + self.wgt.fetches + work.co * work.operands
        instructions = instructions + self.tiles * (stores + 1 + work.alu_ops) + self.steps
        return np.where(self._fits(), cycles, np.inf), instructions

    def _cycles(self, inp_loads: np.ndarray, stores: np.ndarray) -> np.ndarray:
        """Cycles, given the numbers of instructions that load the inputs of a step and that store a tile."""
        work, cfg, t = self.work, self.cfg, self.t
        inp_rows = inp_loads * np.where(self.full_row, 1, self.rows)
        out_rows = work.planes * t["n"] * t["co"] * np.where(self.full_row, 1, t["oy"])
        inp = cost.transfer(striped(cfg), self.inp.size * cfg.inp_entry_bytes, inp_loads, inp_rows)
        wgt = cost.transfer(striped(cfg), self.wgt.size * cfg.wgt_entry_bytes, 1, t["co"])
        out = cost.transfer(cfg, self.out * work.planes * cfg.out_entry_bytes, stores, out_rows)
        parameters = cost.moved(cfg, work.co * cfg.par_entry_bytes * work.operands)
        micro_ops = work.n * work.co * work.oy * work.ox * (work.ci * work.issues + work.alu_ops)
        step = cost.computed(micro_ops / self.steps)
        kernels = self.kernels * np.maximum(cost.kernel() - step / _PASSES, 0)  # hidden behind the kernel before
        if self.tile.vthreads > 1:
            return self._overlapped(inp, wgt, out, parameters, step) + kernels
        loads = self.inp.fetches * (inp + cost.round_trip()) + self.wgt.fetches * (wgt + cost.round_trip()) + parameters
        return self.steps * step + loads + self.tiles * (out + cost.round_trip()) + kernels

    def _overlapped(
        self, inp: np.ndarray, wgt: np.ndarray, out: np.ndarray, parameters: float, step: np.ndarray
    ) -> np.ndarray:
        """Cycles if loads overlap the steps before and stores those after, except the first and the last."""
        threads = self.tile.vthreads
        first, last = inp * self.inp.copies + wgt + cost.round_trip(), out + cost.round_trip()
        x, w = self.inp.fetches - self.inp.copies, self.wgt.fetches - 1
        both, count = np.minimum(x, w), np.abs(x - w)
        rest = np.maximum(self.steps - both - count, 0)
        more = np.where(x > w, inp, wgt)
        slots = np.minimum(self.inp.slots, self.wgt.slots), np.where(x > w, self.inp.slots, self.wgt.slots)
        cycles = both * _turn(step, inp + wgt, slots[0]) + count * _turn(step, more, slots[1]) + rest * step
        stores = self.tiles * out + self._parameters()
        computed = step * self.steps / self.tiles
        cycles = np.maximum(cycles, np.maximum(stores, self.tiles * (computed + out + cost.latency()) / threads))
        cycles = cycles + first + last + parameters
        # Threads end their tiles shortly after each other: stores overlap the last steps and the next first ones.
        hidden = 2 * (threads - 1) / threads * step
        cycles += np.where(self.steps > self.tiles, self.tiles * np.maximum(out - hidden, 0), 0)
        return cycles + np.where(self.inp.waits, x * inp, 0) + np.where(self.wgt.waits, w * wgt, 0)

    def _parameters(self) -> np.ndarray | float:
        """Cycles in which the store unit loads parameters into PAR."""
        if not self.work.packed:
            return 0.0
        each = cost.transfer(self.cfg, self.work.packed * self.t["co"] * self.cfg.par_entry_bytes) + cost.latency()
        return self.par.fetches * each

    def _fits(self) -> np.ndarray:
        cfg, tile = self.cfg, self.tile
        channels = self.t["co"] * (tile.vthreads if tile.thread == "co" else 1)
        acc = self.out * tile.vthreads + channels * self.work.operands
        packed = channels * self.work.packed <= depth(cfg, Mem.PAR) if self.work.packed else True
        return self.inp.fits & self.wgt.fits & (acc <= cfg.acc_depth) & packed & self.enough
