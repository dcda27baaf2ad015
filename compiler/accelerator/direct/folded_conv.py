"""Convolutions of few channels: rows and columns of the window are folded into the channels of one block.

The host lays the image out once (fold.py has the layouts): an entry holds as many bytes of the window as it
has lanes. Adjacent outputs whose taps are in the same entries have separate weights for them. C1 of
ResNet-18, a window of 7x7 with 3 channels, takes 10 micro-ops per output instead of the 49 of blocks of channels.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, cycle, product

import numpy as np

from ....hw.config import Config
from ....hw.isa import Mem
from ....runtime.buffer import Buffer
from ....runtime.program import Program
from ... import graph as g
from ...limits import limits
from ..recording import Recording
from .fold import PARTS, Fold, FoldTiles, fold_weights
from .on_chip import on_chip


def host_step(op: g.QConv2d, fold: Fold, cfg: Config) -> tuple[dict, tuple[int, ...]]:
    """(attributes of the host operator `fold_windows`, shape of its result)."""
    attrs = {"rows": fold.rows, "dilation": op.dilations[0], "step": fold.step, "strips": fold.laid_out}
    attrs |= {"group": fold.group, "offsets": list(fold.offsets), "entries": fold.entries}
    attrs |= {
        "top": op.pads[0] - fold.above * fold.step,
        "left": op.pads[1],
        "value": op.x.zero_point,
        "block": cfg.block_in,
    }
    return attrs, (op.x.shape[0], fold.laid_out, fold.entries, 1, cfg.block_in)


def lower(rec: Recording, op: g.QConv2d, fold: Fold, image: Buffer, parameters: Buffer) -> None:
    """Append the convolution of the laid out `image`."""
    program, tiles, out = rec.program, FoldTiles(op.shape, fold, rec.cfg), rec.activations[op.output.name]
    weights = rec.constant(f"{op.name}.w", fold_weights(op, fold, rec.cfg))
    size = tiles.first * tiles.co * tiles.columns
    with on_chip(rec) as chip:
        wgt, par = chip.region(Mem.WGT, tiles.weights), chip.constant(Mem.PAR, parameters, tiles.blocks)
        if not tiles.late:
            program.load(Mem.WGT, wgt, weights, 0, x_size=tiles.weights)
        inp = chip.slots(Mem.INP, tiles.entries(tiles.first, tiles.columns))
        low, high = chip.banks(size, size, tiles.half)
        small = tiles.rows * tiles.co * tiles.columns
        # the store of a large first tile takes as long as two tiles: both of them go to the other bank
        accs = chain((low, high) if 2 * small > size else (low, high, high + small), cycle((low, high)))
        for n, (k, tile) in product(range(op.x.shape[0]), enumerate(tiles)):
            (_, _, *extents), base = tile, inp[k % 2]
            load_strips(program, op, tiles, (base, image), (n, tile))
            for co in range(0, tiles.blocks, tiles.co):
                blocks, acc = min(tiles.co, tiles.blocks - co), next(accs)
                where, area = (acc, base, wgt), (extents[0], extents[1])
                if tiles.late and n == k == 0:
                    program.gemm([(extents[0] * extents[1], 1, 0, 0)], acc, reset=True)
                    for terms in _parts(fold):
                        program.load(Mem.WGT, wgt + terms.start, weights, terms.start, x_size=len(terms))
                        _products(rec, op, tiles, where, (co, blocks), area, terms)
                else:
                    _products(rec, op, tiles, where, (co, blocks), area)
                _store(program, out, tiles, (acc, par), (n * tiles.blocks, co, blocks), tile)


def load_strips(
    program: Program,
    op: g.QConv2d,
    tiles: FoldTiles,
    where: tuple[int, Buffer],
    part: tuple[int, tuple[int, int, int, int]],
) -> None:
    """Load the strips of a tile of an image; padding that the image does not have is made on the way."""
    (base, image), (n, (y, x, rows, columns)), fold = where, part, tiles.fold
    strip, entry = y * op.strides[0] // fold.step, x // fold.phases * len(fold.offsets)
    strips, width = tiles.strips(rows), tiles.width(columns)
    if fold.in_place:
        high, wide = tiles.shape.size[0], tiles.shape.size[1] * tiles.shape.c // program.cfg.block_in
        top, left = strip - op.pads[0], entry - fold.margin
    else:
        high, wide = fold.laid_out, fold.entries
        top, left = strip - fold.above, entry
    pads = (max(0, -top), max(0, top + strips - high), max(0, -left), max(0, left + width - wide))
    first = (n * high + max(0, top)) * wide + max(0, left)
    y_size, x_size, value = strips - sum(pads[:2]), width - sum(pads[2:]), op.x.zero_point if any(pads) else 0
    program.load(Mem.INP, base, image, first, y_size=y_size, x_size=x_size, x_stride=wide, pads=pads, pad_value=value)


def _parts(fold: Fold) -> Iterator[range]:
    """The terms, in parts of which one is loaded while the products of the one before it are computed."""
    size = -(-len(fold.terms) // PARTS)
    for first in range(0, len(fold.terms), size):
        yield range(first, min(first + size, len(fold.terms)))


def _store(
    program: Program,
    out: Buffer,
    tiles: FoldTiles,
    bases: tuple[int, int],
    blocks: tuple[int, int, int],
    tile: tuple[int, int, int, int],
) -> None:
    """Store a tile: whole rows of all blocks at once if the stride fits its field, otherwise block by block."""
    (acc, par), (image, co, count), (y, x, rows, columns) = bases, blocks, tile
    area, size = tiles.oy * tiles.ox, rows * columns
    first = (image + co) * area + y * tiles.ox + x
    if columns == tiles.ox and (count == 1 or area <= limits(program.cfg, "STOREQ")["x_stride"]):
        step = int(count > 1)
        program.store(acc, out, first, y_size=count, x_size=size, x_stride=area, par=par + co, par_step=step)
        return
    for block in range(count):
        at, entry, to = par + co + block, acc + block * size, first + block * area
        program.store(entry, out, to, y_size=rows, x_size=columns, x_stride=tiles.ox, par=at)


def _products(
    rec: Recording,
    op: g.QConv2d,
    tiles: FoldTiles,
    bases: tuple[int, int, int],
    blocks: tuple[int, int],
    extents: tuple[int, int],
    added: range | None = None,
) -> None:
    """The micro-ops of one tile: phases with equal numbers of columns share an instruction.

    Terms `added` are added to the accumulators; by default all, and the first of each phase replaces what they hold.
    """
    (acc, inp, wgt), (co, count), (rows, wide), fold = bases, blocks, extents, tiles.fold
    width = tiles.width(wide)
    apart = fold.rows * op.dilations[0] // fold.step * width  # entries between strips of a window
    terms = np.array(fold.terms)
    new = np.diff(terms[:, 0], prepend=-1) > 0  # the first term of its phase
    passes = [(new, True), (~new, False)]
    if added is not None:
        passes = [(np.isin(np.arange(len(terms)), added), False)]
    columns = np.array([fold.columns(phase, wide) for phase in terms[:, 0]])
    block = np.arange(count)[:, None]
    for many in sorted({*columns.tolist()} - {0}):
        loops = [(rows, wide, op.strides[0] // fold.step * width, 0), (many, fold.phases, len(fold.offsets), 0)]
        for chosen, overwrite in passes:
            (k,) = np.nonzero(chosen & (columns == many))
            phase, strip, entry = terms[k].T
            uops = np.broadcast_arrays(
                acc + block * rows * wide + phase, inp + strip * apart + entry, wgt + (co + block) * len(terms) + k
            )
            if len(k):
                rec.program.gemm_uops(np.stack([u.reshape(-1) for u in uops], 1), loops, overwrite=overwrite)
