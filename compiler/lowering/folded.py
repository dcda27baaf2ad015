"""Convolutions of few channels: kernel columns are folded into the channels of one block.

The host lays the image out once: an entry holds `pixels` consecutive pixels of a row with all their channels, and the
next one begins `advance` pixels later, so that entries may overlap. `phases` output columns begin in one entry, each
with weights of its own, and take `spans` entries per kernel row: with 3 channels, a kernel of 3x3 and stride 1, three
outputs take one micro-op each per kernel row from entries of 5 pixels, where blocks of channels would take three.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...hw.config import Config
from ...hw.isa import Mem, depth
from ...runtime.buffer import Buffer
from .. import graph as g
from .recording import Fold, Recording

_GROWTH = 2  # the layout has at most so many times the image's bytes
_TILES = 4  # over the rows of the output, where that many make sense


def host_step(op: g.QConv2d, fold: Fold, cfg: Config) -> tuple[dict, tuple[int, ...]]:
    """(attributes of the host operator `fold_columns`, shape of its result)."""
    attrs = {"pixels": fold.pixels, "advance": fold.advance, "entries": fold.entries, "left": op.pads[1]}
    attrs |= {"value": op.x.zero_point, "block": cfg.block_in}
    return attrs, (op.x.shape[0], op.x.shape[2], fold.entries, 1, cfg.block_in)


def best_fold(op: g.QConv2d, cfg: Config) -> Fold | None:
    """The fold with the fewest micro-ops; None where blocks of channels need no more, or nothing fits on chip."""
    n, c, _, w = op.x.shape
    kh, kw = op.weight.shape[2:]
    pixels = cfg.block_in // c
    needed = {"overwrite", "requant", "pad_value"}
    if op.groups > 1 or pixels < 2 or cfg.batch > 1 or not needed <= cfg.extensions:
        return None
    step, out = op.strides[1], op.output.shape[3]
    found: tuple[float, Fold] | None = None
    for phases in range(1, min(out, max(1, pixels // step)) + 1):
        spans = _spans(phases, pixels, op)
        if spans is None:
            continue
        groups = -(-out // phases)
        fold = Fold(pixels, phases * step, phases, spans, groups + spans - 1)
        small = fold.entries * cfg.block_in <= _GROWTH * w * c
        cost = spans + phases / 1000  # of equal ones that with fewer weights
        if small and spans < kw and _Tiles(op, fold, cfg).fit and (found is None or cost < found[0]):
            found = cost, fold
    return None if found is None else found[1]


def _spans(phases: int, pixels: int, op: g.QConv2d) -> int | None:
    """Entries that an output's taps lie in; None where a tap lies between two entries."""
    last = 0
    for phase in range(phases):
        for tap in range(op.weight.shape[3]):
            place = _place(phase, tap, phases, pixels, op)
            if place is None:
                return None
            last = max(last, place[0])
    return last + 1


def _place(phase: int, tap: int, phases: int, pixels: int, op: g.QConv2d) -> tuple[int, int] | None:
    """(entry, pixel in it) of a tap of the output column `phase`; the first entry that has it."""
    advance = phases * op.strides[1]
    pixel = phase * op.strides[1] + tap * op.dilations[1]
    entry = max(0, -(-(pixel - pixels + 1) // advance))
    offset = pixel - entry * advance
    return (entry, offset) if offset >= 0 else None


def fold_weights(op: g.QConv2d, fold: Fold, cfg: Config) -> np.ndarray:
    """Weight tiles, int8 (output blocks, phases, kernel rows, spans, block_out, block_in)."""
    o, c, kh, kw = op.weight.shape
    blocks = -(-o // cfg.block_out)
    found = np.zeros((fold.phases, kh, fold.spans, blocks * cfg.block_out, cfg.block_in), np.int8)
    for phase in range(fold.phases):
        for tap in range(kw):
            place = _place(phase, tap, fold.phases, fold.pixels, op)
            assert place is not None  # best_fold gives folds that reach every tap
            entry, offset = place
            found[phase, :, entry, :o, offset * c : (offset + 1) * c] = op.weight[:, :, :, tap].transpose(2, 0, 1)
    tiles = found.reshape(fold.phases, kh, fold.spans, blocks, cfg.block_out, cfg.block_in)
    return np.ascontiguousarray(tiles.transpose(3, 0, 1, 2, 4, 5))


class _Tiles:
    """Rows and output blocks of a tile: inputs in two slots, accumulators in both halves, all weights on chip."""

    def __init__(self, op: g.QConv2d, fold: Fold, cfg: Config):
        kh = op.weight.shape[2]
        self.op, self.fold = op, fold
        self.blocks, (self.oy, self.ox) = -(-len(op.weight) // cfg.block_out), op.output.shape[2:]
        self.weights = self.blocks * fold.phases * kh * fold.spans
        self.half = cfg.acc_depth // 2
        self.co = max(1, min(self.blocks, self.half // self.ox))
        self.rows = min(-(-self.oy // _TILES), self.half // (self.co * self.ox))
        while self.rows and 2 * self.entries(self.rows) > cfg.inp_depth:
            self.rows -= 1
        uops = self.co * fold.phases * kh * fold.spans
        on_chip = self.weights <= cfg.wgt_depth and self.blocks <= depth(cfg, Mem.PAR)
        self.fit = self.rows > 0 and on_chip and uops <= cfg.uop_depth // 2

    def entries(self, rows: int) -> int:
        """Input entries of so many output rows."""
        op = self.op
        return ((rows - 1) * op.strides[0] + (op.weight.shape[2] - 1) * op.dilations[0] + 1) * self.fold.entries

    def __iter__(self) -> Iterator[tuple[int, int]]:
        for first in range(0, self.oy, self.rows):
            yield first, min(self.rows, self.oy - first)


def lower(rec: Recording, op: g.QConv2d, fold: Fold, image: Buffer, parameters: Buffer) -> None:
    """Append the convolution of the laid out `image`."""
    cfg, program, place = rec.cfg, rec.program, rec.place
    tiles = _Tiles(op, fold, cfg)
    size = tiles.entries(tiles.rows)
    wgt = place.region(Mem.WGT, tiles.weights, 0, cfg.wgt_depth)
    par = place.region(Mem.PAR, tiles.blocks, 0, depth(cfg, Mem.PAR))
    inp = place.region(Mem.INP, 2 * size, 0, cfg.inp_depth)
    acc_size = tiles.rows * tiles.co * tiles.ox
    accs = [place.region(Mem.ACC, acc_size, k * tiles.half, (k + 1) * tiles.half) for k in (0, 1)]
    weights = fold_weights(op, fold, cfg)
    program.load(Mem.WGT, wgt, rec.constant(f"{op.name}.w", weights), 0, x_size=tiles.weights)
    program.load(Mem.PAR, par, parameters, 0, x_size=tiles.blocks)
    turn, out, area = 0, rec.activations[op.output.name], tiles.oy * tiles.ox
    for n in range(op.x.shape[0]):
        for k, (first, rows) in enumerate(tiles):
            base = inp + k % 2 * size
            _load_rows(rec, op, fold, image, base, n, (first, rows))
            for co in range(0, tiles.blocks, tiles.co):
                blocks, acc = min(tiles.co, tiles.blocks - co), accs[turn % 2]
                _products(rec, op, fold, (acc, base, wgt), (co, blocks), rows)
                offset = (n * tiles.blocks + co) * area + first * tiles.ox
                where = {"y_size": blocks, "x_size": rows * tiles.ox, "x_stride": area}
                program.store(acc, out, offset, **where, par=par + co, par_step=int(blocks > 1))
                turn += 1
    for mem, base, count in ((Mem.WGT, wgt, tiles.weights), (Mem.PAR, par, tiles.blocks), (Mem.INP, inp, 2 * size)):
        place.use(mem, base, count)
    for acc in accs:
        place.use(Mem.ACC, acc, acc_size)


def _load_rows(
    rec: Recording, op: g.QConv2d, fold: Fold, image: Buffer, base: int, n: int, rows: tuple[int, int]
) -> None:
    """Load what output rows `rows` (first, count) need; rows outside the image are padding."""
    height, (first, count) = op.x.shape[2], rows
    top = first * op.strides[0] - op.pads[0]
    bottom = top + (count - 1) * op.strides[0] + (op.weight.shape[2] - 1) * op.dilations[0] + 1
    before, after = max(0, -top), max(0, bottom - height)
    top, bottom = max(top, 0), min(bottom, height)
    offset = (n * height + top) * fold.entries
    fill = op.x.zero_point if before or after else 0
    rec.program.load(
        Mem.INP,
        base,
        image,
        offset,
        y_size=bottom - top,
        x_size=fold.entries,
        pads=(before, after, 0, 0),
        pad_value=fill,
    )


def _products(
    rec: Recording, op: g.QConv2d, fold: Fold, bases: tuple[int, int, int], blocks: tuple[int, int], rows: int
) -> None:
    """The micro-ops of one tile: columns that begin in as many entries run in one instruction."""
    (acc, inp, wgt), (co, count), ox, kh = bases, blocks, op.output.shape[3], op.weight.shape[2]
    by_columns: dict[int, list[int]] = {}
    for phase in range(fold.phases):
        by_columns.setdefault(-(-(ox - phase) // fold.phases), []).append(phase)
    for columns, phases in by_columns.items():
        if not columns:
            continue
        o, p, y, e = (
            a.reshape(-1) for a in np.meshgrid(range(count), phases, range(kh), range(fold.spans), indexing="ij")
        )
        uops = np.stack(
            [
                acc + o * rows * ox + p,
                inp + y * op.dilations[0] * fold.entries + e,
                wgt + (((co + o) * fold.phases + p) * kh + y) * fold.spans + e,
            ],
            axis=1,
        )
        loops = [(rows, ox, op.strides[0] * fold.entries, 0), (columns, fold.phases, 1, 0)]
        first = (y == 0) & (e == 0)
        rec.program.gemm_uops(uops[first], loops, overwrite=True)
        if not first.all():
            rec.program.gemm_uops(uops[~first], loops)
