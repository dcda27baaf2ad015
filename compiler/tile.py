"""Tile sizes: what a tiling is, what it costs, and the best one that fits the scratchpads.

The cost is an estimate in cycles. Computing takes one per micro-op, and a few per instruction. A load takes its beats,
one cycle per padding entry, and a few per instruction and per row; a store two cycles per entry. Virtual threads make
computing, loads and stores overlap: step by step the slower one counts, before it the first loads, after it the last
store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np

from ..hw.config import Config
from ..hw.errors import CapacityError, ScheduleError
from ..hw.isa import Mem, depth
from ..sim.dram import ZYNQ_HP

# What the circuit's modules add (hw/stages.py, docs/microarchitecture.md): a load's plan and end, the request of a row,
# filling the pipeline of GEMM; and from a command to its first data, or from the last data to their answer.
DMA_CYCLES, ROW_CYCLES, STEP_CYCLES, LATENCY = 6, 1, 8, ZYNQ_HP.latency + 20
OUTPUT_DIMS = ("n", "co", "oy", "ox")
ORDERS = (("n", "co", "oy", "ox"), ("n", "oy", "ox", "co"), ("co", "n", "oy", "ox"))
MAX_VTHREADS = 4
SLACK = 0.002  # tiles this close to the best in cycles are told apart by their number of instructions


@dataclass(frozen=True)
class Tile:
    """Extents of one tile and the order of the loops over tiles.

    `n`, `co` and `ci` count blocks of the packed layout, `oy` and `ox` output pixels; a dense layer has only `n`,
    `co` and `ci`. `order` names the output loops, outermost first; inside them runs the loop over tiles of `ci`. The
    tiles along `thread` are shared out to `vthreads` virtual threads. `inp_slots` and `wgt_slots` are how many tiles of
    that operand are kept on chip at most, where there is room for them; 0 leaves it to the compiler.

    While a schedule is tuned, sizes and slots may be random variables of it (`space.py`).
    """

    n: int = 1
    co: int = 1
    oy: int = 1
    ox: int = 1
    ci: int = 1
    order: tuple[str, ...] = ORDERS[0]
    thread: str = "co"
    vthreads: int = 1
    inp_slots: int = 0
    wgt_slots: int = 0

    def checked(self) -> Tile:
        """This tile. Raises `ScheduleError` for values that no schedule can have."""
        for name in (*OUTPUT_DIMS, "ci"):
            size = getattr(self, name)
            if isinstance(size, int) and size < 1:
                raise ScheduleError(f"Tile.{name} = {size}: must be at least 1")
        if sorted(self.order) != sorted(OUTPUT_DIMS):
            raise ScheduleError(f"Tile.order = {self.order}: must name each of {', '.join(OUTPUT_DIMS)} once")
        if self.thread not in OUTPUT_DIMS:
            raise ScheduleError(f"Tile.thread = {self.thread!r}: must be one of {', '.join(OUTPUT_DIMS)}")
        if not 1 <= self.vthreads <= MAX_VTHREADS:
            raise ScheduleError(f"Tile.vthreads = {self.vthreads}: must be 1 to {MAX_VTHREADS}")
        for name in ("inp_slots", "wgt_slots"):
            slots = getattr(self, name)
            if isinstance(slots, int) and slots < 0:
                raise ScheduleError(f"Tile.{name} = {slots}: must be at least 0")
        return self


@dataclass(frozen=True)
class Work:
    """A reduction over `ci`, `kh` and `kw` for every output block: a convolution, or with ones a dense layer.

    `n`, `co`, `ci` count blocks. `stride` and `dilation` are (y, x); `width` is the input's with padding.
    `operands` are per-channel tensors of the epilogue in accumulators, `packed` those in PAR, `alu_ops` its operations,
    `planes` the stores per tile. The output blocks of a `depthwise` one have an input block of their own each, and
    weights that stay on chip; its `ci` is 1.
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
    depthwise: bool = False
    packed: int = 0

    def rows(self, oy):
        """Input rows that `oy` output rows need on chip; of a kernel of one row only those that it reads."""
        return oy if self.kh == 1 else (oy - 1) * self.stride[0] + (self.kh - 1) * self.dilation[0] + 1

    def columns(self, ox):
        """Input columns that `ox` output columns need on chip."""
        return (ox - 1) * self.stride[1] + (self.kw - 1) * self.dilation[1] + 1


def best_tile(work: Work, cfg: Config, vthreads: int = 2) -> Tile:
    """The cheapest tile that fits `cfg`, with at most `vthreads` virtual threads.

    Of tiles that cost almost the same the one with the fewest instructions. Raises `CapacityError` where not even the
    smallest tile fits.
    """
    cycles, instructions, tile_at = _ranked(work, cfg, vthreads)
    return tile_at(int(np.lexsort((cycles, np.where(cycles <= cycles.min() * (1 + SLACK), instructions, np.inf)))[0]))


def best_tiles(work: Work, cfg: Config, vthreads: int, count: int) -> list[Tile]:
    """Up to `count` tiles that fit, the cheapest first, no two alike in extents and threads.

    Raises `CapacityError` where not even the smallest tile fits.
    """
    found: dict[tuple, Tile] = {}
    for tile, _ in ranked_tiles(work, cfg, vthreads):
        if len(found) == count:
            break
        extents = tuple(getattr(tile, d) for d in (*OUTPUT_DIMS, "ci"))
        found.setdefault((extents, tile.thread), tile)
    return list(found.values())


def ranked_tiles(work: Work, cfg: Config, vthreads: int) -> Iterator[tuple[Tile, float]]:
    """Every tile that fits with `vthreads` virtual threads, or as many as there is room for, and its estimated cycles.

    The cheapest come first. Raises `CapacityError` where not even the smallest tile fits.
    """
    cycles, instructions, tile_at = _ranked(work, cfg, vthreads)
    for k in np.lexsort((instructions, cycles)).tolist():
        if not np.isfinite(cycles[k]):
            return
        yield tile_at(k), float(cycles[k])


def largest_tile(work: Work, cfg: Config, vthreads: int = 2) -> Tile:
    """The tile of a simple heuristic, to compare with: shrink the longest extent by its smallest factor until it fits.

    Raises `CapacityError` where not even the smallest tile fits.
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
        if np.isfinite(candidate.cost()[0][0]):
            return candidate.tile_at(0)
        longest = max(extents, key=lambda d: extents[d])
        if extents[longest] == 1:
            return None
        factor = next(f for f in range(2, extents[longest] + 1) if extents[longest] % f == 0)
        extents[longest] //= factor


def _ranked(work: Work, cfg: Config, vthreads: int) -> tuple[np.ndarray, np.ndarray, Callable[[int], Tile]]:
    """(cycles and instructions of every candidate, the tile of one) for as many threads as there is room for."""
    Tile(vthreads=vthreads).checked()
    names = (*OUTPUT_DIMS, "ci")
    grids = np.meshgrid(*(sizes(getattr(work, d), d in ("co", "ci")) for d in names), indexing="ij")
    extents: dict[str, np.ndarray] = dict(zip(names, (g.reshape(-1) for g in grids)))
    for threads in range(vthreads, 0, -1):
        groups = [_Candidates(work, cfg, template, extents) for template in _templates(work, threads)]
        if not groups:
            continue
        cost = np.array([group.cost() for group in groups])
        cycles, instructions = cost[:, 0].reshape(-1), cost[:, 1].reshape(-1)
        if np.isfinite(cycles.min()):
            return cycles, instructions, partial(_tile_at, groups)
    raise _nothing_fits(work, cfg)


def _tile_at(groups: list[_Candidates], k: int) -> Tile:
    group, place = divmod(k, len(groups[0].tiles))
    return groups[group].tile_at(place)


def _nothing_fits(work: Work, cfg: Config) -> CapacityError:
    return CapacityError(
        f"no tile fits {cfg.name}: one output block needs {work.rows(1) * work.columns(1)} entries of input and "
        f"{work.kh * work.kw} of weights; it has {cfg.inp_depth} and {cfg.wgt_depth}"
    )


def _templates(work: Work, threads: int) -> Iterator[Tile]:
    dims = [d for d in OUTPUT_DIMS if getattr(work, d) >= threads] if threads > 1 else ["co"]
    for order, thread in product(ORDERS, dims):
        yield Tile(order=order, thread=thread, vthreads=threads)


def sizes(extent: int, divisors_only: bool) -> np.ndarray:
    """Tile sizes worth a thought: the smallest for each number of tiles, in ascending order."""
    found = {-(-extent // k) for k in range(1, extent + 1)}
    return np.array(sorted(size for size in found if not divisors_only or extent % size == 0))


class _Operand:
    """How often the tiles of an operand are loaded, and how many are on chip.

    `size` are the entries of one tile, `dims` what it depends on; threads have tiles of their own where it depends on
    theirs.
    """

    def __init__(self, tile: Tile, share: dict[str, np.ndarray], size: np.ndarray, dims: tuple[str, ...], depth: int):
        self.size = size
        self.copies = tile.vthreads if tile.thread in dims else 1
        most = np.maximum(depth // size, 1)
        distinct = reached = np.full(len(size), self.copies)
        window = np.full(len(size), self.copies)  # tiles that must stay for the loads that are saved
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


class _Candidates:
    """Every tile of extents `t` (arrays) with the loop order and threads of `tile`."""

    def __init__(self, work: Work, cfg: Config, tile: Tile, t: dict[str, np.ndarray]):
        self.work, self.cfg, self.tile, self.t = work, cfg, tile, t
        trips = {d: -(-getattr(work, d) // t[d]) for d in t}
        self.tiles = trips["n"] * trips["co"] * trips["oy"] * trips["ox"]
        self.steps = self.tiles * trips["ci"]
        share = {**trips, tile.thread: -(-trips[tile.thread] // tile.vthreads)}
        self.enough = trips[tile.thread] >= tile.vthreads
        self.rows, self.columns = work.rows(t["oy"]), work.columns(t["ox"])
        self.out = t["n"] * t["co"] * t["oy"] * t["ox"]
        self.channels = "co" if work.depthwise else "ci"
        inp, wgt = t["n"] * t[self.channels] * self.rows * self.columns, t["co"] * t["ci"] * work.kh * work.kw
        self.inp = _Operand(tile, share, inp, ("n", "oy", "ox", self.channels), cfg.inp_depth)
        if work.depthwise:
            wgt = np.full_like(wgt, -(-work.co * work.kh * work.kw // cfg.block_in))
        self.wgt = _Operand(tile, share, wgt, () if work.depthwise else ("co", "ci"), cfg.wgt_depth)
        self.full_row = t["ox"] == work.ox
        sides = np.stack([*t.values(), np.full_like(self.tiles, work.kh), np.full_like(self.tiles, work.kw)])
        self.uops = np.prod(np.sort(sides, axis=0)[:-2], axis=0)  # the two longest loops are the instruction's

    def tile_at(self, k: int) -> Tile:
        """Candidate `k`."""
        slots = {"inp_slots": int(self.inp.slots[k]), "wgt_slots": int(self.wgt.slots[k])}
        return replace(self.tile, **{d: int(sizes[k]) for d, sizes in self.t.items()}, **slots)

    def cost(self) -> tuple[np.ndarray, np.ndarray]:
        """(cycles, infinite where the tile does not fit; instructions)."""
        work, cfg, tile, t = self.work, self.cfg, self.tile, self.t
        beat = cfg.axi_bits // 8
        inp_dmas = t["n"] * t[self.channels]
        inp_rows = inp_dmas * np.where(self.full_row, 1, self.rows)
        inp = self.inp.size * cfg.inp_entry_bytes / beat + DMA_CYCLES * inp_dmas + ROW_CYCLES * inp_rows
        wgt = self.wgt.size * cfg.wgt_entry_bytes / beat + DMA_CYCLES + ROW_CYCLES * t["co"]
        out_dmas = work.planes * t["n"] * np.where(self.full_row, 1, t["co"])
        out_rows = work.planes * t["n"] * t["co"] * np.where(self.full_row, 1, t["oy"])
        out = self.out * work.planes * cfg.out_entry_bytes / beat + DMA_CYCLES * out_dmas + ROW_CYCLES * out_rows
        parameters = work.co * cfg.par_entry_bytes * work.operands / beat
        visits = work.n * work.co * work.oy * work.ox * (work.ci * work.kh * work.kw + work.alu_ops)
        step = visits / self.steps + STEP_CYCLES

        last = out + LATENCY
        if tile.vthreads > 1:
            first = inp * self.inp.copies + wgt + LATENCY
            x, w = self.inp.fetches - self.inp.copies, self.wgt.fetches - 1
            both = np.minimum(x, w)
            alone = np.where(x > w, inp, wgt)
            count = np.abs(x - w)
            rest = np.maximum(self.steps - both - count, 0)
            cycles = both * np.maximum(step, inp + wgt) + count * np.maximum(step, alone) + rest * step
            cycles = np.maximum(cycles, self.tiles * out) + first + last + parameters
            # Threads end their tiles right one after the other: stores run beside the last steps and the next first.
            hidden = 2 * (tile.vthreads - 1) / tile.vthreads * step
            cycles += np.where(self.steps > self.tiles, self.tiles * np.maximum(out - hidden, 0), 0)
            cycles += np.where(self.inp.waits, x * inp, 0) + np.where(self.wgt.waits, w * wgt, 0)
        else:
            loads = self.inp.fetches * (inp + LATENCY) + self.wgt.fetches * (wgt + LATENCY) + parameters
            cycles = self.steps * step + loads + self.tiles * last
        instructions = self.inp.fetches * inp_dmas + self.wgt.fetches + work.co * work.operands
        instructions = instructions + self.tiles * (out_dmas + 1 + work.alu_ops) + self.steps
        return np.where(self._fits(), cycles, np.inf), instructions

    def _fits(self) -> np.ndarray:
        cfg, tile = self.cfg, self.tile
        channels = self.t["co"] * (tile.vthreads if tile.thread == "co" else 1)
        acc = self.out * tile.vthreads + channels * self.work.operands
        packed = channels * self.work.packed <= depth(cfg, Mem.PAR) if self.work.packed else True
        return self.inp.fits & self.wgt.fits & (acc <= cfg.acc_depth) & packed & self.enough
