"""Convolutions of few channels: rows and columns of the window are folded into the channels of one block.

The host lays the image out once (fold.py has the layouts): an entry holds as many bytes of the window as it has lanes.
Which entry holds which tap is a table, not an affine function of loops. Adjacent outputs whose taps are in the same
entries have separate weights for them. C1 of ResNet-18, a window of 7x7 with 3 channels, takes 10 micro-ops per output
instead of the 49 of blocks of channels.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count, cycle, product

from ...hw.config import Config
from ...hw.isa import Mem
from .. import graph as g
from .fold import PARTS, Fold, FoldTiles, fold_weights
from .language import Kernel, Unfit, by_shape
from .recording import channel_parameters
from .split_conv import input_of, multiply
from .split_tiles import Layer


def host_step(op: g.QConv2d, fold: Fold, cfg: Config) -> tuple[dict, tuple[int, ...]]:
    """(attributes of the host operator `fold_windows`, shape of its result)."""
    attrs = {"rows": fold.rows, "dilation": op.dilations[0], "step": fold.step, "strips": fold.laid_out}
    attrs |= {"group": fold.group, "offsets": list(fold.offsets), "entries": fold.entries}
    top = op.pads[0] - fold.above * fold.step
    attrs |= {"top": top, "left": op.pads[1], "value": op.x.zero_point, "block": cfg.block_in}
    return attrs, fold.image(op.x.shape, cfg)


@by_shape()
def folded_conv(k: Kernel, op: g.QConv2d) -> None:
    """The convolution of the image that the recording has for it, in tiles of rows, with all weights on chip."""
    k.need("overwrite", "requant", batch=1)
    if k.fold is None:
        raise Unfit("its image is not laid out for it")
    tiles, layer = FoldTiles(op.shape, k.fold, k.cfg), Layer.of(op.shape, 0, k.fold, k.cfg)
    if not tiles.fit:
        raise Unfit(f"a row of {op.shape.output[1]} pixels, or {tiles.weights} entries of weights do not fit")
    reads, blocks = layer.reads, layer.gemm
    extents = {"b": blocks, "c": 1, "term": len(reads.terms)}
    parameters = k.array(channel_parameters(k.rec, op, op.corrected_bias), b=blocks)
    weights = k.known("w", fold_weights(op, k.fold, k.cfg), **extents)
    x, out = input_of(k, layer), k.output

    wgt = k.tile(Mem.WGT, **extents)
    par = k.load(k.tile(Mem.PAR, b=blocks), parameters)
    if not tiles.late:
        k.load(wgt, weights)
    xs = k.slots(tiles.entries(tiles.first))
    small, large = (rows * tiles.co * tiles.columns for rows in (tiles.rows, tiles.first))
    low, high = k.tile(Mem.ACC, high=k.bank, entry=large), k.tile(Mem.ACC, low=k.bank, entry=large)
    banks, numbers = cycle((low, high)), count()
    for n, (top, left, rows, columns) in product(range(layer.images), tiles):
        at = {"h": reads.window(0, top, rows), "w": reads.window(1, left, columns)}
        tile = xs.load(x[n].window(op.x.zero_point, **at))
        for first in range(0, blocks, tiles.co):
            these, number = slice(first, min(first + tiles.co, blocks)), next(numbers)
            size = (these.stop - first) * rows * columns
            # the store of a large first tile takes as long as two tiles: both of them go to the other bank
            beside = number == 2 and max(size, small) <= large - small
            y = (high[small:] if beside else next(banks)).reshaped(b=these.stop - first, h=rows, w=columns)
            if tiles.late and number == 0:
                y.merged("entry")[...] = 0
                step = -(-len(reads.terms) // PARTS)
                for part in (slice(begin, begin + step) for begin in range(0, len(reads.terms), step)):
                    some = replace(reads, terms=reads.terms[part])
                    part = slice(part.start, part.start + len(some.terms))
                    k.load(wgt[0, 0, part], weights[0, 0, part])
                    multiply(y, tile, wgt[:, :, part], some, fresh=False)
            else:
                multiply(y, tile, wgt[these], reads, fresh=True)
            k.store(out[n, these, top : top + rows, left : left + columns], y, par[these])
