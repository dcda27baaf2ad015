"""Layouts of an image in input entries, for convolutions of few channels.

Blocks of channels leave most lanes of an entry empty if an image has few channels. The host can fill them with other
rows and columns of the window instead, in entries that adjacent outputs share. An NHWC or NCHW image whose rows are
whole entries needs no host, but more products.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ...hw.config import Config
from ...hw.isa import Mem, depth
from ...hw.units import striped
from .. import cost
from .. import graph as g
from ..conv_shape import ConvShape
from ..limits import most_padding
from .views import equal_parts

_Count = TypeVar("_Count", int, NDArray[np.int64])
Terms = tuple[tuple[int, int, int], ...]
_PHASES = 12  # the most phases that are tried: more have too many weights
_COUNTS = 16  # numbers of entries in a group that are tried, about
_TILES = 8  # tiles along the rows of the output, more if they do not fit
PARTS = 8  # the number of loads of weights beside the first products


@dataclass(frozen=True)
class Reads:
    """The elements of an image of `size` (h, w) that outputs read, in groups of `phases` columns of the output.

    `terms` are (phase, row, element of the row) from the first element of a group on. Groups are `steps` rows and
    elements apart; the first group begins `before` rows and elements outside of the image, in padding.
    """

    size: tuple[int, int]
    terms: Terms
    steps: tuple[int, int]
    before: tuple[int, int]
    phases: int = 1

    def reach(self, axis: int, count: _Count) -> _Count:
        """The number of rows (axis 0) or elements (axis 1) that `count` rows or columns of the output read."""
        groups = -(-count // self.phases) if axis else count
        return (groups - 1) * self.steps[axis] + 1 + max(term[1 + axis] for term in self.terms)

    def window(self, axis: int, first: int, count: int) -> tuple[int, int]:
        """(first row or element, number of them) for `count` outputs from `first` on; outside of `size` is padding."""
        group = first // self.phases if axis else first
        return group * self.steps[axis] - self.before[axis], self.reach(axis, count)

    def columns(self, phase: int, columns: int) -> int:
        """The number of columns of the output, of `columns`, that have this phase."""
        return -(-(columns - phase) // self.phases)


@dataclass(frozen=True)
class Fold:
    """A layout of an image, and the entries that each output reads.

    A strip is `rows` rows of the padded image as one sequence of bytes: column by column, in it row by row, in that
    channel by channel. There are `strips`, `step` image rows apart, with `entries` each. A group of `phases` output
    columns begins every `group` bytes of a strip; entry e of a group is the block of bytes from its byte `offsets[e]`
    on. `terms` are the products that an output needs, by phase: (phase, strip within its window, entry from the
    first of its group), each with its own weights. A window of phase 0 begins `shift` bytes after its group.

    With `in_place` the strips are the rows of the NHWC image itself, between `margin` entries of padding on the left
    and as many as are missing on the right; of an NCHW image each of its `planes` has them, as a block of the input.
    Where the convolution's image has every row twice (`copies` 2), they lie once in memory.
    Else the host lays out all but those `above` and `below` the others, which are padding alone: loads make these.
    """

    rows: int
    step: int
    strips: int
    phases: int
    group: int
    offsets: tuple[int, ...]
    entries: int
    terms: Terms
    shift: int = 0
    in_place: bool = False
    planes: int = 1
    copies: int = 1
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
        """The shape of an image (n, c, h, w) in this layout, with entries of `cfg`."""
        n, c, h, w = shape
        size = (
            (h // self.copies, w * c // self.planes // cfg.block_in) if self.in_place else (self.laid_out, self.entries)
        )
        return n * self.planes, *size, 1, cfg.block_in

    def reads(self, shape: ConvShape, cfg: Config) -> Reads:
        """The elements of an image in this layout that the outputs of a convolution read."""
        _, *size, _, _ = self.image((shape.n, shape.c, *shape.size), cfg)
        apart = self.rows * shape.dilations[0] // self.step
        terms = tuple((phase, strip * apart // self.copies, entry) for phase, strip, entry in self.terms)
        before = (shape.pads[0] // self.copies, self.margin) if self.in_place else (self.above, 0)
        steps = shape.strides[0] // self.step // self.copies, len(self.offsets)
        return Reads((size[0], size[1]), terms, steps, before, self.phases)


class FoldTiles:
    """Tiles of `rows`, `columns` and `co` output blocks: inputs in two slots, sums in two banks, all weights on chip.

    Tiles are as wide as the output, or the fewest equal parts of it of which one row fits. The first tile of an image
    that is read in place has `first` rows, whose products hide the loads of the weights; with `late` its products begin
    while weights are being loaded.
    """

    def __init__(self, shape: ConvShape, fold: Fold, cfg: Config):
        self.reads, (self.oy, self.ox) = fold.reads(shape, cfg), shape.output
        blocks, half = -(-shape.o // cfg.block_out), cfg.acc_depth // 2
        terms, groups = fold.planes * len(fold.terms), -(-self.ox // fold.phases)
        self.planes, self.weights = fold.planes, blocks * terms
        self.late = blocks == fold.planes == 1 and self.weights > PARTS
        most = 0
        for wide in equal_parts(groups):
            self.columns = min(wide * fold.phases, self.ox)
            self.co = max(1, min(blocks, half // self.columns))
            most = half // (self.co * self.columns)
            self.rows = self._rows(min(-(-self.oy // _TILES), most), cfg)
            if self.rows:
                break
        self.first = self.rows
        if self.rows and fold.in_place:
            pixels = sum(self.reads.columns(phase, self.columns) for phase, *_ in fold.terms)
            products = self.co * fold.planes * pixels
            wanted = math.ceil(cost.moved(striped(cfg), self.weights * cfg.wgt_entry_bytes) / products)
            self.first = max(self.rows, self._rows(min(wanted, self.oy, most), cfg))
        on_chip = self.weights <= cfg.wgt_depth and blocks <= depth(cfg, Mem.PAR)
        self.fit = self.rows > 0 and on_chip and self.co * terms <= cfg.uop_depth // 2

    def _rows(self, most: int, cfg: Config) -> int:
        """The most rows up to `most` whose inputs fit a slot."""
        return next((rows for rows in range(most, 0, -1) if 2 * self.entries(rows) <= cfg.inp_depth), 0)

    def entries(self, rows: int) -> int:
        """The input entries of a tile of so many rows."""
        return self.planes * self.reads.reach(0, rows) * self.reads.reach(1, self.columns)

    def __iter__(self) -> Iterator[tuple[int, int, int, int]]:
        """(first row, first column, rows, columns) of each tile."""
        for y, x in product((0, *range(self.first, self.oy, self.rows)), range(0, self.ox, self.columns)):
            yield y, x, min(self.rows if y else self.first, self.oy - y), min(self.columns, self.ox - x)


def may_fold(op: g.QConv2d, cfg: Config) -> bool:
    """True if channels leave lanes of an entry empty, and `cfg` has what folded convolutions need."""
    able = cfg.batch == 1 and {"overwrite", "requant"} <= cfg.extensions
    return able and op.groups == 1 and op.weight.shape[1] < cfg.block_in


def fold_in_place(op: g.QConv2d, cfg: Config, *, planes: bool = False, copies: int = 1) -> Fold | None:
    """The NHWC image of `op` as it lies in memory, or with `planes` the NCHW image, whose rows `op` has `copies` times.

    None where rows are no whole entries, or nothing of it fits.
    """
    if planes and op.ternary:
        return None
    count = op.shape.c if planes else 1
    shape, block = replace(op.shape, c=op.shape.c // count), cfg.block_in
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
    fold = Fold(1, 1, strips, phases, group, offsets, entries, terms, shift, True, count, copies, margin)
    missing = entries - margin - w * shape.c // block
    return fold if max(margin, missing) <= most_padding(cfg) and FoldTiles(op.shape, fold, cfg).fit else None


def folds(shape: ConvShape, cfg: Config) -> Iterator[Fold]:
    """Candidate layouts, of those whose weights can be on chip."""
    (kh, _), (sy, sx), (oy, ox), (top, _, bottom, _) = shape.kernel, shape.strides, shape.output, shape.pads
    block, most = cfg.block_in, cfg.wgt_depth // -(-shape.o // cfg.block_out)  # most terms
    for rows in range(1, kh + 1):
        count = -(-kh // rows)  # strips in a window
        apart = rows * shape.dilations[0]
        step = sy if count == 1 else math.gcd(sy, apart)
        strips = ((oy - 1) * sy + (count - 1) * apart) // step + 1
        above = below = 0  # strips of padding alone, which loads make
        if "pad_value" in cfg.extensions and max(top, bottom) <= (kh - 1) * shape.dilations[0]:
            above = max(0, -(-(top - (rows - 1) * shape.dilations[0]) // step))
            # where steps skip the image's first row, the host lays out the strip before it: it begins at or above it
            above = min(above, top // step, most_padding(cfg))
            below = min(max(0, strips - -(-(top + shape.h) // step)), most_padding(cfg))
        taps = [sorted(taps_of(shape, rows, k)[0].tolist()) for k in range(count)]
        fewest = sum(-(-len(strip) // block) for strip in taps)  # terms of a phase
        for phases in range(1, min(ox, _PHASES, most // fewest) + 1):
            begins = [phase * sx * rows * shape.c for phase in range(phases)]
            group = phases * sx * rows * shape.c
            for offsets in _layouts(taps[0], begins, group, block):
                terms = _terms(taps, begins, group, offsets, block)
                if terms is not None:
                    entries = (-(-ox // phases) - 1) * len(offsets) + max(entry for *_, entry in terms) + 1
                    facts = rows, step, strips, phases, group, offsets, entries, terms
                    yield Fold(*facts, above=above, below=below)


def taps_of(
    shape: ConvShape, rows: int, strip: int
) -> tuple[NDArray[np.integer], NDArray[np.integer], NDArray[np.integer], NDArray[np.integer]]:
    """The taps in one strip of a window, as arrays (byte from the window's first, channel, kernel row, column)."""
    kh, kw = shape.kernel
    inside = range(min(rows, kh - strip * rows))
    x, y, c = (a.reshape(-1) for a in np.meshgrid(range(kw), inside, range(shape.c), indexing="ij"))
    return (x * shape.dilations[1] * rows + y) * shape.c + c, c, strip * rows + y, x


def _layouts(taps: list[int], begins: Sequence[int], group: int, block: int) -> Iterator[tuple[int, ...]]:
    """Candidate offsets of entries: evenly in the whole group, or packed from its first needed byte on."""
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
) -> Terms | None:
    """The fewest entries that hold all taps, by phase; None if a tap lies between two entries."""
    reach = -(-(begins[-1] + max(t[-1] for t in taps) + 1) // group)
    pairs = product(range(reach), enumerate(offsets))
    starts, numbers = zip(*sorted((g * group + offset, g * len(offsets) + k) for g, (k, offset) in pairs))
    found = list[tuple[int, int, int]]()
    for phase, begin in enumerate(begins):
        for strip, needed in enumerate(taps):
            at = 0
            while at < len(needed):
                last = bisect_right(starts, begin + needed[at]) - 1
                end = starts[last] + block - begin
                if last < 0 or end <= needed[at]:
                    return None
                found.append((phase, strip, numbers[last]))
                at = bisect_left(needed, end, at)
    return tuple(found)


def fold_weights(op: g.QConv2d, fold: Fold, cfg: Config) -> NDArray[np.integer]:
    """The weights of a convolution for the entries of a layout: int8 (output blocks, terms, block_out, block_in).

    Those of each plane have all terms.
    """
    shape, o = replace(op.shape, c=op.shape.c // fold.planes), len(op.weight)
    blocks = -(-o // cfg.block_out)
    found = np.zeros((fold.planes, len(fold.terms), blocks * cfg.block_out, cfg.block_in), np.int8)
    ends = dict[tuple[int, int], int]()  # of the bytes that have their weights, by (phase, strip)
    for k, (phase, strip, entry) in enumerate(fold.terms):
        byte, c, y, x = taps_of(shape, fold.rows, strip)
        lane = byte + fold.shift + phase * shape.strides[1] * fold.rows * shape.c - fold.start(entry)
        new = (lane >= 0) & (lane < cfg.block_in) & (byte >= ends.get((phase, strip), 0))
        for plane in range(fold.planes):
            found[plane, k, :o, lane[new]] = op.weight[:, plane + c[new], y[new], x[new]].T
        ends[phase, strip] = int(byte[new].max()) + 1
    tiles = found.reshape(fold.planes * len(fold.terms), blocks, cfg.block_out, cfg.block_in)
    return np.ascontiguousarray(tiles.transpose(1, 0, 2, 3))
