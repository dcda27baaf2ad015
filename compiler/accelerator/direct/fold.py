"""Layouts of an image in input entries, for convolutions of few channels; the host writes the cheapest one.

Blocks of channels leave most lanes of an entry empty if an image has few channels. The host can fill them with other
rows and columns of the window instead, with entries that adjacent outputs share as far as possible.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np

from ....hw.config import Config
from ....hw.isa import Mem, depth
from ... import cost
from ... import graph as g
from ...conv_shape import ConvShape

_PHASES = 12  # most phases that are tried: more have too many weights
_COUNTS = 16  # numbers of entries in a group that are tried, about
_TILES = 8  # tiles along the rows of the output, more if they do not fit
_SLACK = 1.02  # among layouts this close to the best in cycles, the one with the fewest bytes for the host to write


@dataclass(frozen=True)
class Fold:
    """A layout of an image, and the entries that each output reads.

    A strip is `rows` rows of the padded image as one sequence of bytes: column by column, in it row by row, in that
    channel by channel. There are `strips`, `step` image rows apart, with `entries` each. A group of `phases` output
    columns begins every `group` bytes of a strip; entry e of a group is the block of bytes from its byte `offsets[e]`
    on. `terms` are the products that an output needs, by phase: (phase, strip within its window, entry from the
    first of its group), each with its own weights.
    """

    rows: int
    step: int
    strips: int
    phases: int
    group: int
    offsets: tuple[int, ...]
    entries: int
    terms: tuple[tuple[int, int, int], ...]

    def start(self, entry: int) -> int:
        """The first byte of an entry, relative to the first of the group."""
        groups, k = divmod(entry, len(self.offsets))
        return groups * self.group + self.offsets[k]

    def columns(self, phase: int, ox: int) -> int:
        """Number of the `ox` output columns that have a phase."""
        return -(-(ox - phase) // self.phases)


class FoldTiles:
    """Rows, columns and output blocks of a tile: inputs in two slots, accumulators in both halves, all weights on chip.

    FoldTiles are as wide as the output, or the fewest equal parts of it of which one row fits.
    """

    def __init__(self, shape: ConvShape, fold: Fold, cfg: Config):
        self.shape, self.fold = shape, fold
        self.blocks, (self.oy, self.ox) = -(-shape.o // cfg.block_out), shape.output
        self.weights = self.blocks * len(fold.terms)
        self.half = cfg.acc_depth // 2
        groups = -(-self.ox // fold.phases)
        for wide in sorted({-(-groups // k) for k in range(1, groups + 1)}, reverse=True):
            self.columns = min(wide * fold.phases, self.ox)
            self.co = max(1, min(self.blocks, self.half // self.columns))
            self.rows = min(-(-self.oy // _TILES), self.half // (self.co * self.columns))
            while self.rows and 2 * self.entries(self.rows, self.columns) > cfg.inp_depth:
                self.rows -= 1
            if self.rows:
                break
        on_chip = self.weights <= cfg.wgt_depth and self.blocks <= depth(cfg, Mem.PAR)
        self.fit = self.rows > 0 and on_chip and self.co * len(fold.terms) <= cfg.uop_depth // 2

    def strips(self, rows: int) -> int:
        """Strips that `rows` output rows read."""
        kernel, strides, dilations = self.shape.kernel[0], self.shape.strides[0], self.shape.dilations[0]
        last = (-(-kernel // self.fold.rows) - 1) * self.fold.rows * dilations
        return ((rows - 1) * strides + last) // self.fold.step + 1

    def width(self, columns: int) -> int:
        """Entries of a strip that `columns` output columns read."""
        missing = -(-self.ox // self.fold.phases) - -(-columns // self.fold.phases)
        return self.fold.entries - missing * len(self.fold.offsets)

    def entries(self, rows: int, columns: int) -> int:
        """Input entries that a tile of output rows and columns reads."""
        return self.strips(rows) * self.width(columns)

    def __iter__(self) -> Iterator[tuple[int, int, int, int]]:
        """(first row, first column, rows, columns) of each tile."""
        for y, x in product(range(0, self.oy, self.rows), range(0, self.ox, self.columns)):
            yield y, x, min(self.rows, self.oy - y), min(self.columns, self.ox - x)

    def cycles(self, cfg: Config) -> float:
        """Estimate for one image: weights, then the first load and all products, or all loads and the last products."""
        fold, entry = self.fold, cfg.inp_entry_bytes
        products = self.blocks * self.oy * sum(fold.columns(phase, self.ox) for phase, *_ in fold.terms)
        strips = sum(self.strips(min(self.rows, self.oy - y)) for y in range(0, self.oy, self.rows))
        loads = strips * sum(self.width(min(self.columns, self.ox - x)) for x in range(0, self.ox, self.columns))
        last = products * min(self.rows, self.oy) / self.oy * self.columns / self.ox
        first = self.entries(min(self.rows, self.oy), self.columns)
        steps = max(cost.moved(cfg, entry * first) + products, cost.moved(cfg, entry * loads) + last)
        return steps + cost.moved(cfg, self.weights * cfg.wgt_entry_bytes)


def best_fold(op: g.QConv2d, cfg: Config) -> Fold | None:
    """The cheapest fold by GEMM steps and loaded bytes; None if blocks of channels cost no more, or no fold fits."""
    if op.groups > 1 or cfg.batch > 1 or not {"overwrite", "requant"} <= cfg.extensions:
        return None
    return _best_of_shape(op.shape, cfg) if op.weight.shape[1] < cfg.block_in else None


@lru_cache(maxsize=64)
def _best_of_shape(shape: ConvShape, cfg: Config) -> Fold | None:
    found = []
    for fold in folds(shape, cfg):
        tiles = FoldTiles(shape, fold, cfg)
        if tiles.fit:
            found.append((tiles.cycles(cfg), fold.strips * fold.entries, fold))
    least = min((cycles for cycles, *_ in found), default=math.inf)
    if least >= _unfolded(shape, cfg):
        return None
    near = (each for each in found if each[0] <= least * _SLACK)
    return min(near, key=lambda each: (each[1], each[0]))[2]


def _unfolded(shape: ConvShape, cfg: Config) -> float:
    """Estimated cycles without a fold: one block of channels, of which most lanes are empty."""
    weights = -(-shape.o // cfg.block_out) * shape.taps
    inputs = math.prod(shape.size) * cfg.inp_entry_bytes
    steps = cost.roofline(cfg, weights * math.prod(shape.output), inputs)
    return steps + cost.moved(cfg, weights * cfg.wgt_entry_bytes)


def folds(shape: ConvShape, cfg: Config) -> Iterator[Fold]:
    """Candidate layouts, of those whose weights can be on chip."""
    (kh, _), (sy, sx), (oy, ox) = shape.kernel, shape.strides, shape.output
    block, most = cfg.block_in, cfg.wgt_depth // -(-shape.o // cfg.block_out)  # most terms
    for rows in range(1, kh + 1):
        count = -(-kh // rows)  # strips in a window
        apart = rows * shape.dilations[0]
        step = sy if count == 1 else math.gcd(sy, apart)
        strips = ((oy - 1) * sy + (count - 1) * apart) // step + 1
        taps = [sorted(taps_of(shape, rows, k)[0].tolist()) for k in range(count)]
        fewest = sum(-(-len(strip) // block) for strip in taps)  # terms of a phase
        for phases in range(1, min(ox, _PHASES, most // fewest) + 1):
            begins = [phase * sx * rows * shape.c for phase in range(phases)]
            group = phases * sx * rows * shape.c
            for offsets in _layouts(taps[0], begins, group, block):
                terms = _terms(taps, begins, group, offsets, block)
                if terms is not None:
                    entries = (-(-ox // phases) - 1) * len(offsets) + max(entry for *_, entry in terms) + 1
                    yield Fold(rows, step, strips, phases, group, offsets, entries, terms)


def taps_of(shape: ConvShape, rows: int, strip: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The taps in one strip of a window, as arrays: byte (from the window's first), channel, kernel row, column."""
    kh, kw = shape.kernel
    inside = range(min(rows, kh - strip * rows))
    x, y, c = (a.reshape(-1) for a in np.meshgrid(range(kw), inside, range(shape.c), indexing="ij"))
    return (x * shape.dilations[1] * rows + y) * shape.c + c, c, strip * rows + y, x


def _layouts(taps: list[int], begins: Sequence[int], group: int, block: int) -> Iterator[tuple[int, ...]]:
    """Candidate offsets of entries: evenly in the whole group, or packed from the first byte that it needs on."""
    fewest = -(-group // block)
    for count in range(fewest, 2 * fewest + 1, -(-fewest // _COUNTS)):
        yield tuple(k * group // count for k in range(count))
    packed: list[int] = []
    for byte in sorted({begin + tap for begin in begins for tap in taps}):
        if not packed or byte >= packed[-1] + block:
            packed.append(byte)
    yield tuple(packed)


def _terms(
    taps: Sequence[list[int]], begins: Sequence[int], group: int, offsets: Sequence[int], block: int
) -> tuple[tuple[int, int, int], ...] | None:
    """The fewest entries that hold all taps, by phase; None if a tap lies between two entries."""
    reach = -(-(begins[-1] + max(t[-1] for t in taps) + 1) // group)
    entries = [(g * group + offset, g * len(offsets) + k) for g in range(reach) for k, offset in enumerate(offsets)]
    entries.sort()
    starts = [start for start, _ in entries]
    found = []
    for phase, begin in enumerate(begins):
        for strip, needed in enumerate(taps):
            at = 0
            while at < len(needed):
                last = bisect_right(starts, begin + needed[at]) - 1
                end = starts[last] + block - begin
                if last < 0 or end <= needed[at]:
                    return None
                found.append((phase, strip, entries[last][1]))
                at = bisect_left(needed, end, at)
    return tuple(found)


def fold_weights(op: g.QConv2d, fold: Fold, cfg: Config) -> np.ndarray:
    """Weight tiles, int8 (output blocks, terms, block_out, block_in)."""
    shape, o = op.shape, len(op.weight)
    blocks = -(-o // cfg.block_out)
    found = np.zeros((len(fold.terms), blocks * cfg.block_out, cfg.block_in), np.int8)
    done: dict[tuple[int, int], int] = {}  # end of the bytes of a strip that have their weights, by phase
    for k, (phase, strip, entry) in enumerate(fold.terms):
        byte, c, y, x = taps_of(shape, fold.rows, strip)
        lane = byte + phase * shape.strides[1] * fold.rows * shape.c - fold.start(entry)
        mine = (lane < cfg.block_in) & (byte >= done.get((phase, strip), 0))
        found[k, :o, lane[mine]] = op.weight[:, c[mine], y[mine], x[mine]].T
        done[phase, strip] = int(byte[mine].max()) + 1
    tiles = found.reshape(len(fold.terms), blocks, cfg.block_out, cfg.block_in)
    return np.ascontiguousarray(tiles.transpose(1, 0, 2, 3))
