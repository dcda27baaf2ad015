"""Layouts of an image in input entries, for convolutions of few channels; the host writes the cheapest one.

Blocks of channels leave most lanes of an entry empty if an image has few channels. The host can fill them with other
rows and columns of the window instead, with entries that adjacent outputs share as far as possible. An NHWC image
whose rows are whole entries is such a layout as it lies: it takes more products, but nothing of the host.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from ....hw.config import Config
from ....hw.isa import Mem, depth
from ....hw.units import striped
from ... import cost
from ... import graph as g
from ...conv_shape import ConvShape
from ...limits import most_padding
from ...target.host import HostModel

_PHASES = 12  # most phases that are tried: more have too many weights
_COUNTS = 16  # numbers of entries in a group that are tried, about
_TILES = 8  # tiles along the rows of the output, more if they do not fit
PARTS = 8  # in which weights are loaded beside the first products


@dataclass(frozen=True)
class Fold:
    """A layout of an image, and the entries that each output reads.

    A strip is `rows` rows of the padded image as one sequence of bytes: column by column, in it row by row, in that
    channel by channel. There are `strips`, `step` image rows apart, with `entries` each. A group of `phases` output
    columns begins every `group` bytes of a strip; entry e of a group is the block of bytes from its byte `offsets[e]`
    on. `terms` are the products that an output needs, by phase: (phase, strip within its window, entry from the
    first of its group), each with its own weights. A window of phase 0 begins `shift` bytes after its group.

    With `in_place` the strips are the rows of the NHWC image itself, between `margin` entries of padding on the left
    and as many as are missing on the right. Else the host lays out all but those `above` and `below` the others, which
    are padding alone: loads make these.
    """

    rows: int
    step: int
    strips: int
    phases: int
    group: int
    offsets: tuple[int, ...]
    entries: int
    terms: tuple[tuple[int, int, int], ...]
    shift: int = 0
    in_place: bool = False
    margin: int = 0
    above: int = 0
    below: int = 0

    @property
    def laid_out(self) -> int:
        """Strips that the host lays out."""
        return self.strips - self.above - self.below

    def start(self, entry: int) -> int:
        """The first byte of an entry, relative to the first of the group."""
        groups, k = divmod(entry, len(self.offsets))
        return groups * self.group + self.offsets[k]

    def image(self, shape: tuple[int, ...], cfg: Config) -> tuple[int, ...]:
        """The shape of the image so laid out, of one (n, c, h, w); the last two axes are those of an entry."""
        n, c, h, w = shape
        size = (h, w * c // cfg.block_in) if self.in_place else (self.laid_out, self.entries)
        return n, *size, 1, cfg.block_in

    def columns(self, phase: int, ox: int) -> int:
        """Number of the `ox` output columns that have a phase."""
        return -(-(ox - phase) // self.phases)


class FoldTiles:
    """Rows, columns and output blocks of a tile: inputs in two slots, accumulators in both halves, all weights on chip.

    FoldTiles are as wide as the output, or the fewest equal parts of it of which one row fits. The `first` rows of an
    image that is read in place are so many that the loads of its weights, of which there are many, hide behind them.
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
        self.first = self._first_rows(cfg) if self.rows and fold.in_place else self.rows
        on_chip = self.weights <= cfg.wgt_depth and self.blocks <= depth(cfg, Mem.PAR)
        self.fit = self.rows > 0 and on_chip and self.co * len(fold.terms) <= cfg.uop_depth // 2

    def _first_rows(self, cfg: Config) -> int:
        """As many rows as take as long as the weights, at most what fits."""
        products = self.co * sum(self.fold.columns(phase, self.columns) for phase, *_ in self.fold.terms)
        wanted = math.ceil(cost.moved(striped(cfg), self.weights * cfg.wgt_entry_bytes) / products)
        rows = max(self.rows, min(wanted, self.oy, self.half // (self.co * self.columns)))
        while rows > self.rows and 2 * self.entries(rows, self.columns) > cfg.inp_depth:
            rows -= 1
        return rows

    def strips(self, rows: Any) -> Any:
        """Strips that `rows` output rows read, a number or an array."""
        kernel, strides, dilations = self.shape.kernel[0], self.shape.strides[0], self.shape.dilations[0]
        last = (-(-kernel // self.fold.rows) - 1) * self.fold.rows * dilations
        return ((rows - 1) * strides + last) // self.fold.step + 1

    def width(self, columns: Any) -> Any:
        """Entries of a strip that `columns` output columns read, a number or an array."""
        missing = -(-self.ox // self.fold.phases) - -(-columns // self.fold.phases)
        return self.fold.entries - missing * len(self.fold.offsets)

    def entries(self, rows: int, columns: int) -> int:
        """Input entries that a tile of output rows and columns reads."""
        return self.strips(rows) * self.width(columns)

    def __iter__(self) -> Iterator[tuple[int, int, int, int]]:
        """(first row, first column, rows, columns) of each tile."""
        for y, x in product((0, *range(self.first, self.oy, self.rows)), range(0, self.ox, self.columns)):
            yield y, x, min(self.rows if y else self.first, self.oy - y), min(self.columns, self.ox - x)

    def cycles(self, cfg: Config) -> float:
        """Estimate for one image: weights, and the first load and all products, or all loads and the last products."""
        fold, entry = self.fold, cfg.inp_entry_bytes
        products = self.blocks * self.oy * sum(fold.columns(phase, self.ox) for phase, *_ in fold.terms)
        strips = sum(self.strips(min(self.rows, self.oy - y)) for y in range(0, self.oy, self.rows))
        loads = strips * sum(self.width(min(self.columns, self.ox - x)) for x in range(0, self.ox, self.columns))
        last = products * min(self.rows, self.oy) / self.oy * self.columns / self.ox
        first = self.entries(min(self.rows, self.oy), self.columns)
        weights = cost.moved(striped(cfg), self.weights * cfg.wgt_entry_bytes)
        hidden = 0.0  # those of a layout by the host are few
        if self.fold.in_place and self.late:
            hidden = min(weights * (1 - 1 / PARTS), products * self.first / self.oy)
        tile, all_tiles = (cost.moved(striped(cfg), entry * n) for n in (first, loads))
        return weights + max(tile + products - hidden, all_tiles + last)

    @property
    def late(self) -> bool:
        """True if the first tile's products begin while weights are being loaded."""
        return self.blocks == 1 and self.weights > PARTS


def may_fold(op: g.QConv2d, cfg: Config) -> bool:
    """True if channels leave lanes of an entry empty, and `cfg` has what folded convolutions need."""
    able = cfg.batch == 1 and {"overwrite", "requant"} <= cfg.extensions
    return able and op.groups == 1 and op.weight.shape[1] < cfg.block_in


def cheapest(op: g.QConv2d, cfg: Config, *, nhwc: bool) -> Fold | None:
    """The fold that takes the least time of the accelerator and half of the modelled host's; None: channel blocks do.

    One image waits for the host; in a row of them it lays out the next one while the accelerator computes. With `nhwc`
    the image is one in memory, so that it may be read in place.
    """
    if not may_fold(op, cfg):
        return None
    return _cheapest_of_shape(op.shape, cfg, fold_in_place(op, cfg) if nhwc else None)


@cost.cached(64)
def _cheapest_of_shape(shape: ConvShape, cfg: Config, in_place: Fold | None) -> Fold | None:
    def cycles(fold: Fold | None) -> float:
        if fold is None:
            return _unfolded(shape, cfg)
        tiles = FoldTiles(shape, fold, cfg)
        return tiles.cycles(cfg) if tiles.fit else math.inf

    return least(shape, cfg, folds(shape, cfg), in_place, cycles)


def least(
    shape: ConvShape,
    cfg: Config,
    made: Iterable[Fold],
    in_place: Fold | None,
    cycles: Callable[[Fold | None], float],
) -> Fold | None:
    """Of the folds `made` by the host and the one `in_place` that with the least time, or None, as in `cheapest`.

    `cycles` are those of the accelerator with a fold, or with blocks of channels; infinite for what does not fit.
    """
    pixels = math.prod(shape.size)

    def seconds(fold: Fold | None) -> float:
        entries = pixels if fold is None else fold.laid_out * fold.entries
        host = HostModel().moved_seconds(pixels * shape.c + entries * cfg.inp_entry_bytes)
        return cycles(fold) / cost.CLOCK + host / 2

    best, found = None, seconds(None)
    for fold in made:
        if (mine := seconds(fold)) < found:
            best, found = fold, mine
    return in_place if in_place is not None and cycles(in_place) / cost.CLOCK < found else best


def fold_in_place(op: g.QConv2d, cfg: Config) -> Fold | None:
    """The NHWC image of `op` as it lies in memory; None where rows are no whole entries, or nothing of it fits."""
    shape, block = op.shape, cfg.block_in
    (_, w), (sy, sx), (top, left, bottom, right) = shape.size, shape.strides, op.pads
    reach = [(k - 1) * d + 1 for k, d in zip(shape.kernel, shape.dilations)]
    if not may_fold(op, cfg) or "pad_value" not in cfg.extensions:
        return None
    alone = max(top, bottom) >= reach[0] or max(left, right) >= reach[1]  # windows of padding alone
    if w * shape.c % block or math.gcd(sy, shape.dilations[0]) > 1 or alone:
        return None
    phases = block // math.gcd(block, sx * shape.c)
    margin, group = -(-left * shape.c // block), phases * sx * shape.c
    shift = margin * block - left * shape.c
    taps = [sorted(taps_of(shape, 1, k)[0].tolist()) for k in range(shape.kernel[0])]
    offsets = tuple(range(0, group, block))
    terms = _terms(taps, [shift + phase * sx * shape.c for phase in range(phases)], group, offsets, block)
    if terms is None:
        return None
    oy, ox = shape.output
    strips = (oy - 1) * sy + reach[0]
    entries = (-(-ox // phases) - 1) * len(offsets) + max(entry for *_, entry in terms) + 1
    fold = Fold(1, 1, strips, phases, group, offsets, entries, terms, shift, True, margin)
    missing = entries - margin - w * shape.c // block
    return fold if max(margin, missing) <= most_padding(cfg) and FoldTiles(shape, fold, cfg).fit else None


def _unfolded(shape: ConvShape, cfg: Config) -> float:
    """Estimated cycles without a fold: one block of channels, of which most lanes are empty."""
    weights = -(-shape.o // cfg.block_out) * shape.taps
    inputs = math.prod(shape.size) * cfg.inp_entry_bytes
    steps = cost.roofline(striped(cfg), weights * math.prod(shape.output), inputs)
    return steps + cost.moved(striped(cfg), weights * cfg.wgt_entry_bytes)


def folds(shape: ConvShape, cfg: Config) -> Iterator[Fold]:
    """Candidate layouts, of those whose weights can be on chip."""
    (kh, _), (sy, sx), (oy, ox) = shape.kernel, shape.strides, shape.output
    block, most = cfg.block_in, cfg.wgt_depth // -(-shape.o // cfg.block_out)  # most terms
    for rows in range(1, kh + 1):
        count = -(-kh // rows)  # strips in a window
        apart = rows * shape.dilations[0]
        step = sy if count == 1 else math.gcd(sy, apart)
        strips = ((oy - 1) * sy + (count - 1) * apart) // step + 1
        outside = _outside(shape, cfg, ((rows - 1) * shape.dilations[0], step, strips))
        taps = [sorted(taps_of(shape, rows, k)[0].tolist()) for k in range(count)]
        fewest = sum(-(-len(strip) // block) for strip in taps)  # terms of a phase
        for phases in range(1, min(ox, _PHASES, most // fewest) + 1):
            begins = [phase * sx * rows * shape.c for phase in range(phases)]
            group = phases * sx * rows * shape.c
            for offsets in _layouts(taps[0], begins, group, block):
                terms = _terms(taps, begins, group, offsets, block)
                if terms is not None:
                    entries = (-(-ox // phases) - 1) * len(offsets) + max(entry for *_, entry in terms) + 1
                    yield Fold(
                        *(rows, step, strips, phases, group, offsets, entries, terms),
                        above=outside[0],
                        below=outside[1],
                    )


def _outside(shape: ConvShape, cfg: Config, strips: tuple[int, int, int]) -> tuple[int, int]:
    """(strips above the image, and below it) that loads can make, of `strips`: (rows between its first and its last,
    rows between two strips, how many)."""
    (reach, step, count), (top, _, bottom, _) = strips, shape.pads
    if "pad_value" not in cfg.extensions or max(top, bottom) > (shape.kernel[0] - 1) * shape.dilations[0]:
        return 0, 0
    above, most = max(0, -(-(top - reach) // step)), most_padding(cfg)
    # where steps skip the image's first row, the host lays out the strip before it: it begins at or above that row
    return min(above, top // step, most), min(max(0, count - -(-(top + shape.h) // step)), most)


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
        lane = byte + fold.shift + phase * shape.strides[1] * fold.rows * shape.c - fold.start(entry)
        mine = (lane >= 0) & (lane < cfg.block_in) & (byte >= done.get((phase, strip), 0))
        found[k, :o, lane[mine]] = op.weight[:, c[mine], y[mine], x[mine]].T
        done[phase, strip] = int(byte[mine].max()) + 1
    tiles = found.reshape(len(fold.terms), blocks, cfg.block_out, cfg.block_in)
    return np.ascontiguousarray(tiles.transpose(1, 0, 2, 3))
