"""Layers whose output channels units `gemm` and `ternary` divide, in tiles that both compute at once.

`tiles` bounds the cycles of all tiles that fit, `divided` tries the most promising by the timing model. The units have
the accumulators of one bank each; ternary channels are the last ones, in groups of blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...hw.config import Config
from ...hw.isa import Mem
from ...hw.units import striped
from ...runtime import layout
from .. import cost
from .. import graph as g
from ..conv_shape import ConvShape
from .fold import Fold, Reads, fold_weights
from .language import Array, Kernel, Slots, Unfit, by_shape, cuts, every, refuse
from .language import Tile as Entries
from .recording import channel_parameters

_TRIED = 3  # the number of tiles that the timing model tries
_STEP = 10  # cycles of the instructions of a step in addition to its products
_TOGETHER = 4  # pieces of an operand that are on chip at a time, where there are as many
Counts, Flags = NDArray[np.int64], NDArray[np.bool_]  # one for each of several tiles


class Tile(NamedTuple):
    """Rows and columns of the output, blocks on GEMM, groups of blocks on unit `ternary`, blocks of the input.

    With `outer` the loop over output blocks is the outer one, else the loop over tiles of the image.
    """

    rows: int
    columns: int
    gemm: int
    groups: int
    inputs: int
    outer: bool = False


@dataclass(frozen=True)
class Layer:
    """A layer in blocks of channels: `inputs` of them make `gemm` blocks on GEMM and `ternary` on unit `ternary`.

    The latter computes `planes` of them at once. There are `images` batches, and `extents` rows and columns of the
    output; every `skip`-th row of the input is read.
    """

    images: int
    inputs: int
    extents: tuple[int, int]
    gemm: int
    ternary: int
    planes: int
    reads: Reads
    skip: int = 1

    @staticmethod
    def of(shape: ConvShape, ternary: int, fold: Fold | None, cfg: Config) -> Layer:
        """The layer whose last `ternary` output channels are ternary, of an image that is laid out by `fold`.

        A kernel as large as the image makes it a dense layer on the entries of the image.
        """
        inputs, (kh, kw), (dy, dx), (sy, sx) = -(-shape.c // cfg.block_in), shape.kernel, shape.dilations, shape.strides
        extents, skip = shape.output, 1
        if fold is not None:
            inputs, reads = fold.planes, fold.reads(shape, cfg)
        elif shape.kernel == shape.size and not any(shape.pads) and shape.dilations == (1, 1):
            inputs, reads = inputs * shape.taps, Reads((1, 1), ((0, 0, 0),), (1, 1), (0, 0))
        else:
            if kh == 1 and not any(shape.pads[::2]):
                skip, sy = sy, 1  # rows between those of a kernel of one row
            terms = tuple((0, y * dy, x * dx) for y, x in product(range(kh), range(kw)))
            reads = Reads((-(-shape.h // skip), shape.w), terms, (sy, sx), shape.pads[:2])
        others, blocks = (-(-channels // cfg.block_out) for channels in (shape.o - ternary, ternary))
        return Layer(
            -(-shape.n // cfg.batch), inputs, extents, others, blocks, cfg.ternary_blocks if blocks else 1, reads, skip
        )

    @property
    def blocks(self) -> int:
        """Blocks of the output."""
        return self.gemm + self.ternary

    @property
    def groups(self) -> int:
        """Groups of blocks on unit `ternary`."""
        return -(-self.ternary // self.planes)

    @property
    def products(self) -> int:
        """Micro-ops of the unit that has more of them."""
        (oy, ox), reads = self.extents, self.reads
        pixels = oy * sum(reads.columns(phase, ox) for phase, *_ in reads.terms)
        return self.images * self.inputs * pixels * max(self.gemm, self.groups)

    def sizes(self, axis: int) -> list[int]:
        """Sizes of tiles along an axis of the output, whose tiles all reach the image: columns are whole groups."""
        extent, step, size = self.extents[axis], self.reads.phases if axis else 1, self.reads.size[axis]
        count = -(-extent // step)

        def inside(first: int, size_of_tile: int) -> bool:
            at, reach = self.reads.window(axis, first, min(size_of_tile, extent - first))
            return -reach < at < size

        found = sorted({min(-(-count // k) * step, extent) for k in range(1, count + 1)})
        return [tile for tile in found if all(inside(first, tile) for first in range(0, extent, tile))]


class Pieces:
    """For several tiles, the number of pieces of an operand on chip, `slots`, and of loads of them, `loads`.

    A piece, of `size` entries, belongs to one chunk of the input's blocks and one turn of the loop that changes the
    operand; `turns` are (chunks, turns of this loop, turns of the other one), `inner` says whether it is the inner one.
    At least `ahead` pieces are on chip, if there are as many.
    """

    def __init__(self, size: Counts, depth: int, ahead: Counts, turns: tuple[Counts, Counts, Counts], inner: Flags):
        (chunks, own, others), most = turns, depth // np.maximum(size, 1)
        self.distinct = chunks * own
        kept = chunks * np.where(inner, own, 1)
        again = (others > 1) & (kept <= most)
        self.fits, self.size = most > 0, size
        self.loads = self.distinct * np.where((others > 1) & ~again, others, 1)
        self.slots = np.minimum(np.minimum(most, self.distinct), np.maximum(np.where(again, 2 * kept, 0), ahead))


class Operands:
    """The pieces of input, weights and ternary weights of several tiles, the columns of `tiles`."""

    def __init__(self, layer: Layer, tiles: Counts, cfg: Config):
        rows, columns, gemm, groups, inputs, outer = tiles
        (oy, ox), reads, terms = layer.extents, layer.reads, len(layer.reads.terms)
        self.chunks = -(-layer.inputs // inputs)
        self.parts = np.maximum(-(-layer.gemm // np.maximum(gemm, 1)), -(-layer.groups // np.maximum(groups, 1)))
        self.tiles = layer.images * -(-oy // rows) * -(-ox // columns)
        self.steps = self.tiles * self.parts * self.chunks
        ahead = np.where(layer.products < 4 * cost.round_trip() * self.steps, _TOGETHER, 2)  # short steps hide little
        pixels = inputs * reads.reach(0, rows) * reads.reach(1, columns)
        turns = self.chunks, self.parts, self.tiles
        self.pieces = (
            Pieces(pixels, cfg.inp_depth, ahead, (self.chunks, self.tiles, self.parts), outer > 0),
            Pieces(inputs * gemm * terms, cfg.wgt_depth, ahead, turns, outer == 0),
            Pieces(inputs * groups * terms, cfg.twgt_depth, ahead, turns, outer == 0),
        )


@cost.cached(256)
def tiles(layer: Layer, cfg: Config) -> tuple[Tile, ...]:
    """The tiles worth a trial, those of few steps first: of all that fit the ones with the lowest bounds of cycles.

    Raises `Unfit` where none fits.
    """
    room = min(cfg.bank_depth if layer.gemm else cfg.acc_depth, cfg.plane_depth if layer.ternary else cfg.acc_depth)
    most = max(layer.gemm, layer.groups)
    blocks = sorted({-(-most // -(-most // k)) for k in range(1, most + 1)})
    inputs = sorted({-(-layer.inputs // k) for k in range(1, layer.inputs + 1)})
    pixels = [pair for pair in product(layer.sizes(0), layer.sizes(1)) if pair[0] * pair[1] <= room]
    if not pixels:
        h, w = layer.reads.size
        raise Unfit(f"tiles of padding alone: too much of it around {h}x{w} pixels")
    choices = [(*pair, *rest) for pair, *rest in product(pixels, blocks, inputs, (0, 1))]
    rows, columns, part, inp, outer = np.array(choices, np.int64).T
    found = np.stack([rows, columns, -(-layer.gemm // part), -(-layer.groups // part), inp, outer])
    (_, _, gemm, groups, *_), operands, area = found, Operands(layer, found, cfg), rows * columns
    fits = (gemm * area <= cfg.bank_depth) & (groups * area <= cfg.plane_depth)
    fits &= gemm + np.minimum(layer.ternary, groups * layer.planes) <= cfg.par_entries
    fits &= np.logical_and.reduce([pieces.fits for pieces in operands.pieces])
    fits &= (outer == 0) | (operands.parts > 1) & (operands.tiles > 1)  # else the order of the loops does not matter
    bounds, steps = np.where(fits, _bound(layer, found, operands, cfg), np.inf), operands.steps
    order = [k for k in np.argsort(bounds, kind="stable").tolist() if np.isfinite(bounds[k])]
    if not order:
        taps = len(layer.reads.terms)
        raise Unfit(
            f"no tile fits {cfg.name}: a pixel of the output needs {layer.reads.reach(0, 1) * layer.reads.reach(1, 1)} "
            f"entries of inputs and {taps} of each kind of weights; it has {cfg.inp_depth}, {cfg.wgt_depth} and "
            f"{cfg.twgt_depth}"
        )
    of_steps = {int(steps[k]): k for k in reversed(order)}  # the best one for each number of steps
    best = [k for k in order if of_steps[int(steps[k])] == k]
    finest = order[int(np.argmin(inp[order]))]  # products begin early, which the bound counts too little
    tried = [*dict.fromkeys([*best[: _TRIED - 1], finest, *best])][:_TRIED]
    return tuple(Tile._make([*found[:5, k].tolist(), bool(outer[k])]) for k in sorted(tried, key=lambda k: steps[k]))


def _bound(layer: Layer, tiles: Counts, found: Operands, cfg: Config) -> NDArray[np.float64]:
    """A lower bound of cycles: the longest of products, loads and stores, plus the first loads and the last store."""
    reads, port, computed = layer.reads, striped(cfg), layer.products + _STEP * found.steps
    rows, columns, gemm, groups, inputs, outer = tiles
    lines = (inputs * reads.reach(0, rows), gemm, groups)
    width = cfg.inp_entry_bytes, cfg.wgt_entry_bytes, cfg.twgt_entry_bytes
    each = [cost.rows_moved(port, p.size * w, 1, r) * (p.size > 0) for p, w, r in zip(found.pieces, width, lines)]
    waits = sum(p.loads * load * ((p.slots < 2) & (p.distinct > 1)) for p, load in zip(found.pieces, each))
    loaded, first = sum(p.loads * load for p, load in zip(found.pieces, each)), sum(each)
    # the operands that the inner loop changes are loaded in its first turn, beside the products of this turn
    inner, turns = np.where(outer, (found.tiles, found.parts), (found.parts, found.tiles))
    turn = found.chunks * (each[0] * np.where(outer, inner, 1) + (each[1] + each[2]) * np.where(outer, 1, inner))
    # and most of them for its first tile
    late = np.maximum(turn - first - computed / turns, (first - computed / found.steps) * (found.chunks - 1))
    entries = layer.blocks / found.parts * rows * columns
    stored = cost.rows_moved(cfg, entries * cfg.out_entry_bytes, 1, layer.blocks / found.parts * rows)
    stored = np.maximum(stored, entries * cfg.lanes / cfg.ppu_lanes)
    products = np.maximum(first + computed + waits + np.maximum(late, 0), loaded + computed / found.steps)
    return np.maximum(products, stored * found.tiles * found.parts) + stored


@by_shape()
def divided(k: Kernel, op: g.QConv2d | g.QDense) -> None:
    """A layer of any number of ternary channels, also of none."""
    cfg, others = k.cfg, len(op.weight) - op.ternary
    if op.ternary and "ternary" not in cfg.units:
        raise Unfit(f"{op.ternary} ternary channels: {cfg.name} has units {', '.join(cfg.units)}, not ternary")
    refuse(
        op.ternary and others % cfg.block_out,
        f"{others} channels on GEMM beside {op.ternary} ternary ones: must be a multiple of {cfg.block_out}",
    )
    k.need("overwrite", "requant")
    in_tiles(k, op, k.fastest(in_tiles, tiles(Layer.of(op.shape, op.ternary, k.fold, cfg), cfg)))


@dataclass
class Unit:
    """The share of one unit: `blocks` of the output, in groups of `planes`, with `together` groups in a tile.

    Its `weights` (b, c, term) go to `places`, its sums to `banks`.
    """

    blocks: range
    planes: int
    together: int
    weights: Array
    places: Slots
    banks: Slots

    def groups(self, part: int) -> range:
        """The groups of a part of the output's blocks."""
        return range(self.weights.shape["b"])[part * self.together : (part + 1) * self.together]

    def outputs(self, part: int) -> range:
        """The blocks of a part."""
        return self.blocks[part * self.together * self.planes : (part + 1) * self.together * self.planes]


Share = tuple[Unit, Entries, Entries]  # (unit, its weights, its sums) of a tile


def in_tiles(k: Kernel, op: g.QConv2d | g.QDense, tile: Tile) -> None:
    """The layer in tiles of these extents. The products of one tile are recorded behind the loads of the next one.

    So the loads do not wait for the products, where there is room for both.
    """
    layer = Layer.of(op.shape, op.ternary, k.fold, k.cfg)
    operands, at_once = Operands(layer, np.array([tile]).T, k.cfg), layer.blocks <= k.cfg.par_entries
    sizes, slots = zip(*((pieces.size.item(), pieces.slots.item()) for pieces in operands.pieces))
    xs = k.slots(sizes[0], count=slots[0])
    units = _units(k, op, layer, tile, sizes[1:], slots[1:])
    size = layer.blocks if at_once else tile.gemm + min(tile.groups * layer.planes, layer.ternary)
    places = k.slots(size, Mem.PAR, 1 if at_once else k.cfg.par_entries // size)
    parameters = k.array(channel_parameters(k.rec, op, op.corrected_bias), b=layer.blocks)
    out = k.output if len(op.output.shape) == 4 else k.output.split("b", b=layer.blocks, h=1, w=1)

    def compute(part: int, target: Array, chunk: slice, pixels: Entries, shares: list[Share]) -> None:
        """Products of blocks `chunk` of the input for a part of the output's blocks."""
        (_, rows, columns), outputs = target.shape.values(), [unit.outputs(part) for unit, *_ in shares]
        if at_once:
            par = places.hold(parameters)
            pars = [par[these.start : these.stop] for these in outputs]
        else:
            pars = places.hold_all(*[parameters[these.start : these.stop] for these in outputs])
        for unit, weights, sums in shares:
            count = len(unit.groups(part))
            acc = sums[0, : count * rows * columns].split("entry", b=count, h=rows, w=columns)
            multiply(acc, pixels, weights, layer.reads, fresh=chunk.start == 0)
        if chunk.stop == layer.inputs:
            for (unit, _, sums), par, these in zip(shares, pars, outputs):
                _store(target[these.start : these.stop], sums, par, unit)

    image, (oy, ox), waiting = (
        input_of(k, layer),
        layer.extents,
        list[tuple[int, Array, slice, Entries, list[Share]]](),
    )
    ahead = all((pieces.slots > 1) | (pieces.distinct == 1) for pieces in operands.pieces)
    areas = [*product(range(layer.images), range(0, oy, tile.rows), range(0, ox, tile.columns))]
    parts = range(operands.parts.item())
    turns = product(parts, areas) if tile.outer else ((part, area) for area in areas for part in parts)
    for part, (n, y, x) in turns:
        rows, columns = min(tile.rows, oy - y), min(tile.columns, ox - x)
        at = {"h": layer.reads.window(0, y, rows), "w": layer.reads.window(1, x, columns)}
        target = out[n, :, y : y + rows, x : x + columns]
        busy = [(unit, unit.groups(part)) for unit in units if unit.groups(part)]
        sums = [unit.banks.next(plane=unit.planes, entry=unit.banks.places[0].size // unit.planes) for unit, _ in busy]
        for chunk in cuts(layer.inputs, tile.inputs):
            if waiting and not ahead:
                compute(*waiting.pop())
            pixels = xs.hold(image[n, chunk].window(op.x.zero_point, **at))
            weights = [unit.places.hold(unit.weights[each.start : each.stop, chunk]) for unit, each in busy]
            if waiting:
                compute(*waiting.pop())
            waiting.append((part, target, chunk, pixels, [*zip((unit for unit, _ in busy), weights, sums)]))
    compute(*waiting.pop())


def input_of(k: Kernel, layer: Layer) -> Array:
    """The input, axes n, c, h, w: in the layout of few channels, an image, or the entries of an image as a vector."""
    if k.fold is not None:
        return k.folded.split("n", n=layer.images, c=layer.inputs)
    x = k.input(0)
    if layer.reads.size == (1, 1):
        return x.merged("c", *[*x.shape][1:]).split("c", c=layer.inputs, h=1, w=1)
    return x.named(b="c")[:, :, :: layer.skip]


def _units(
    k: Kernel, op: g.QConv2d | g.QDense, layer: Layer, tile: Tile, sizes: tuple[int, ...], slots: tuple[int, ...]
) -> list[Unit]:
    """The units that have a share, whose pieces of weights have `sizes`, in `slots`."""
    cfg, reads, own, units = k.cfg, layer.reads, len(op.weight) - op.ternary, list[Unit]()
    weight = op.weight.reshape((*op.weight.shape, 1, 1)[:4])
    if k.fold is not None:
        assert isinstance(op, g.QConv2d)
        folded = fold_weights(op, k.fold, cfg)  # output blocks, terms, channels of a block, lanes
        weight = folded.transpose(0, 2, 3, 1).reshape(-1, cfg.block_in, 1, len(reads.terms))
    around, bank = {"c": layer.inputs, "term": len(reads.terms)}, cfg.bank_depth
    if own:
        weights = k.known("w", layout.pack_weights(weight[:own], cfg), b=layer.gemm, **around)
        places, banks = k.slots(sizes[0], Mem.WGT, slots[0]), k.slots(bank, Mem.ACC, high=2 * bank)
        units.append(Unit(range(layer.gemm), 1, tile.gemm, weights, places, banks))
    if op.ternary:
        weights = k.known("t", layout.pack_ternary_weights(weight[own:], cfg), b=layer.groups, **around)
        places, banks = k.slots(sizes[1], Mem.TWGT, slots[1]), k.slots(bank, Mem.ACC, low=2 * bank)
        blocks = range(layer.gemm, layer.blocks)
        units.append(Unit(blocks, layer.planes, tile.groups, weights, places, banks))
    return units


def multiply(y: Entries, x: Entries, weights: Entries, reads: Reads, *, fresh: bool) -> None:
    """Add products of inputs (c, h, w) and weights (b, c, term) to `y` (b, h, w), for inputs as `reads` says.

    Where `fresh`, the first product of each output replaces what the accumulators hold.
    """
    k, (_, rows, columns), (down, across) = y.kernel, y.shape.values(), reads.steps
    if reads.terms == ((0, 0, 0),):
        pixels = x[:, every(0, rows, down), every(0, columns, across)]
        if fresh:
            y[...] = pixels[0] @ weights[:, 0, 0]
        if (others := slice(int(fresh), None)).start < x.shape["c"]:
            y += (pixels[others] @ weights[:, others, 0]).over("c b h w")
        return
    block, number = (each.reshape(-1) for each in np.indices((x.shape["c"], len(reads.terms))))
    phase, row, entry = np.array(reads.terms).T[:, number]
    first = fresh & (block == 0) & (np.diff(phase, prepend=-1) > 0)
    counts = -(-(columns - phase) // reads.phases)
    for count, begins in product(sorted({*counts.tolist()} - {0}), (True, False)):
        if (these := np.flatnonzero((counts == count) & (first == begins))).size:
            pixels = x.each(c=block[these], h=row[these], w=entry[these])
            matrices = weights.each(c=block[these], term=number[these])[:, 0, 0]
            acc = y.each(w=phase[these])[:, :, every(0, count, reads.phases)]
            products = pixels[0, every(0, rows, down), every(0, count, across)] @ matrices
            k.multiply(acc, products.over("b h w"), overwrite=begins)


def _store(out: Array, sums: Entries, par: Entries, unit: Unit) -> None:
    """Store the outputs of a unit: each block of a group is in a plane of the unit's bank."""
    k, (count, rows, columns) = out.kernel, out.shape.values()
    area = rows * columns
    if unit.planes == 1:
        k.store(out, sums[0, : count * area].split("entry", b=count, h=rows, w=columns), par)
        return
    for group, first in enumerate(range(0, count, unit.planes)):
        these = slice(first, min(first + unit.planes, count))
        acc = sums[: these.stop - first, group * area : (group + 1) * area]
        k.store(out[these], acc.split("entry", h=rows, w=columns).named(plane="b"), par[these])
