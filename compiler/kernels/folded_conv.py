"""Convolutions of few channels: rows and columns of the window are folded into the channels of one block.

The host lays the image out once (fold.py has the layouts): an entry holds as many bytes of the window as it has lanes.
Which entry holds which tap is a table, not an affine function of loops. Adjacent outputs whose taps are in the same
entries have separate weights for them. C1 of ResNet-18, a window of 7x7 with 3 channels, takes 10 micro-ops per output
instead of the 49 of blocks of channels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count, cycle, islice, product

from ...hw.config import Config
from ...hw.isa import Mem
from ...hw.units import striped
from .. import cost
from .. import graph as g
from ..conv_shape import ConvShape
from ..limits import limits
from . import language
from .fold import PARTS, Fold, FoldTiles, fold_in_place, fold_weights, folds, least, may_fold, seconds
from .language import Array, Kernel, Tile, Unfit, by_shape, every
from .recording import channel_parameters

_TRIED = 3  # layouts that the timing model compares
_ALIKE = 1.02  # times of a layer alone that say nothing of it in a network: there others hide its ends


def host_step(op: g.QConv2d, fold: Fold, cfg: Config) -> tuple[dict, tuple[int, ...]]:
    """(attributes of the host operator `fold_windows`, shape of its result)."""
    attrs = {"rows": fold.rows, "dilation": op.dilations[0], "step": fold.step, "strips": fold.laid_out}
    attrs |= {"group": fold.group, "offsets": list(fold.offsets), "entries": fold.entries}
    top = op.pads[0] - fold.above * fold.step
    attrs |= {"top": top, "left": op.pads[1], "value": op.x.zero_point, "block": cfg.block_in}
    return attrs, fold.image(op.x.shape, cfg)


def cheapest(op: g.QConv2d, cfg: Config, *, nhwc: bool) -> Fold | None:
    """The fold that takes the least time of the accelerator and half of the modelled host's; None: channel blocks do.

    One image waits for the host; in a row of them it lays out the next one while the accelerator computes. With `nhwc`
    the image is one in memory, so that it may be read in place. The timing model knows those that promise most.
    """
    if not may_fold(op, cfg):
        return None

    x, out = (replace(t, shape=(1, *t.shape[1:])) for t in (op.x, op.output))
    one = replace(op, inputs=(x,), output=out)

    def cycles(fold: Fold | None) -> float:
        try:
            return math.inf if fold is None else language.cycles(folded_conv, one, cfg, fold)
        except Unfit:
            return math.inf

    in_place = fold_in_place(one, cfg) if nhwc else None
    if in_place is not None and not _pays(one.shape, cfg, in_place):
        in_place = None
    made = {fold: seconds(one.shape, cfg, fold, cycles(fold)) for fold in _promising(one.shape, cfg)}
    first = [fold for fold in made if made[fold] <= _ALIKE * min(made.values())][:1]
    return least(one.shape, cfg, first, in_place, cycles)


@cost.cached(64)
def _promising(shape: ConvShape, cfg: Config) -> tuple[Fold, ...]:
    """The few folds by the host with the least bounds of their time, below that of blocks of channels."""
    made = sorted(folds(shape, cfg), key=lambda fold: seconds(shape, cfg, fold, _bound(shape, cfg, fold)))
    fitting = (fold for fold in made if _pays(shape, cfg, fold) and FoldTiles(shape, fold, cfg).fit)
    return tuple(islice(fitting, _TRIED))


def _pays(shape: ConvShape, cfg: Config, fold: Fold) -> bool:
    mine, blocks = (seconds(shape, cfg, each, _bound(shape, cfg, each)) for each in (fold, None))
    return mine < blocks


def _bound(shape: ConvShape, cfg: Config, fold: Fold | None) -> float:
    """Cycles that one image takes at least, with a fold or as blocks of channels: weights, then products or loads."""
    blocks, (oy, ox) = -(-shape.o // cfg.block_out), shape.output
    if fold is None:
        terms, products, entries = shape.taps, shape.taps * oy * ox, math.prod(shape.size)
    else:
        terms, products = len(fold.terms), oy * sum(fold.columns(phase, ox) for phase, *_ in fold.terms)
        entries = fold.strips * fold.entries
    weights = cost.moved(striped(cfg), blocks * terms * cfg.wgt_entry_bytes)
    return weights + cost.roofline(striped(cfg), blocks * products, entries * cfg.inp_entry_bytes)


@by_shape()
def folded_conv(k: Kernel, op: g.QConv2d) -> None:
    """The convolution of the image that the recording has for it, in tiles of rows, with all weights on chip."""
    k.need("overwrite", "requant", batch=1)
    if k.fold is None:
        raise Unfit("its image is not laid out for it")
    tiles, terms = FoldTiles(op.shape, k.fold, k.cfg), len(k.fold.terms)
    if not tiles.fit:
        raise Unfit(f"a row of {op.shape.output[1]} pixels, or {tiles.weights} entries of weights do not fit")
    parameters = k.array(channel_parameters(k.rec, op, op.corrected_bias), b=tiles.blocks)
    weights = k.known("w", fold_weights(op, k.fold, k.cfg), b=tiles.blocks, term=terms)
    x, out = k.folded, k.output

    wgt = k.tile(Mem.WGT, b=tiles.blocks, term=terms)
    par = k.load(k.tile(Mem.PAR, b=tiles.blocks), parameters)
    if not tiles.late:
        k.load(wgt, weights)
    xs = k.slots(tiles.entries(tiles.first, tiles.columns))
    small, large = (rows * tiles.co * tiles.columns for rows in (tiles.rows, tiles.first))
    low, high = k.tile(Mem.ACC, high=k.bank, entry=large), k.tile(Mem.ACC, low=k.bank, entry=large)
    banks, numbers = cycle((low, high)), count()
    for n, area in product(range(out.shape["n"]), tiles):
        tile, (top, left, rows, columns) = xs.load(strips(op, tiles, x[n], area)), area
        for first in range(0, tiles.blocks, tiles.co):
            blocks, number = slice(first, min(first + tiles.co, tiles.blocks)), next(numbers)
            size = (blocks.stop - first) * rows * columns
            # the store of a large first tile takes as long as two tiles: both of them go to the other bank
            beside = number == 2 and max(size, small) <= large - small
            y = (high[small:] if beside else next(banks)).reshaped(b=blocks.stop - first, h=rows, w=columns)
            if tiles.late and number == 0:
                y.merged("entry")[...] = 0
                for part in _parts(terms):
                    k.load(wgt[0, part], weights[0, part])
                    _products(k, op, tiles, y, tile, wgt, range(terms)[part])
            else:
                _products(k, op, tiles, y, tile, wgt[blocks])
            _store(k, out[n, blocks, top : top + rows, left : left + columns], y, par[blocks])


def _parts(terms: int) -> Iterator[slice]:
    """Parts of the terms of which one is loaded while the products of the one before it are computed."""
    size = -(-terms // PARTS)
    for first in range(0, terms, size):
        yield slice(first, min(first + size, terms))


def strips(op: g.QConv2d, tiles: FoldTiles, x: Array, area: tuple[int, int, int, int]) -> Array:
    """Of an image the strips for outputs `area`, (first row, first column, rows, columns); a load adds its padding."""
    (y, left, rows, columns), fold = area, tiles.fold
    strip, entry = y * op.strides[0] // fold.step, left // fold.phases * len(fold.offsets)
    above, before = (op.pads[0], fold.margin) if fold.in_place else (fold.above, 0)
    reach = {"h": (strip - above, tiles.strips(rows)), "w": (entry - before, tiles.width(columns))}
    return x.window(op.x.zero_point, **reach)


def _products(
    k: Kernel, op: g.QConv2d, tiles: FoldTiles, y: Tile, x: Tile, weights: Tile, added: Sequence[int] | None = None
) -> None:
    """The products of one tile: phases with equal numbers of columns share an instruction.

    Terms `added` are added to the accumulators; by default all, and the first of each phase replaces what they hold.
    """
    (blocks, rows, wide), fold = y.shape.values(), tiles.fold
    apart, down = fold.rows * op.dilations[0] // fold.step, op.strides[0] // fold.step
    begun = {phase for phase, *_ in fold.terms} if added is not None else set[int]()
    found, near = list[tuple[int, bool, int]](), dict[int, Tile]()  # (columns, it is added, term), and its inputs
    for term in range(len(fold.terms)) if added is None else added:
        phase, strip, entry = fold.terms[term]
        if many := fold.columns(phase, wide):
            found.append((many, phase in begun, term))
            near[term] = x[every(strip * apart, rows, down), every(entry, many, len(fold.offsets))]
            begun.add(phase)
    phases = {fold.terms[term][0]: many for many, _, term in found}
    targets = {(b, p): y[b, :, every(p, many, fold.phases)] for b in range(blocks) for p, many in phases.items()}
    with k.together():
        for _, add, b, term in sorted((many, add, b, term) for many, add, term in found for b in range(blocks)):
            target = targets[b, fold.terms[term][0]]
            k.multiply(target, (near[term] @ weights[b, term]).over("h w"), overwrite=not add)


def _store(k: Kernel, target: Array, y: Tile, par: Tile) -> None:
    """Store a tile: whole rows of all blocks at once if the stride fits its field, otherwise block by block."""
    blocks, rows, columns = y.shape.values()
    area, whole = target.axes[0].step, target.axes[1].step == columns
    if blocks > 1 and whole and area <= limits(k.cfg, "STOREQ")["x_stride"]:
        k.store(target, y, par)
        return
    for b in range(blocks):
        k.store(target[b], y[b], par[b])
