"""Convolutions and dense layers whose output channels two units divide: `ternary` computes the last ones, GEMM others.

Both units read one tile of the input, of which they make different output blocks. Each has two of the four banks of
accumulators: it computes in one while the tile before is stored from the other. Weights and inputs are loaded in
pieces, each of one part of the input's blocks, so that products begin when the first pieces are there.

Axes: `b` blocks of the output, or groups of them that unit `ternary` computes at once, each in a `plane` of its own;
`c` blocks of the input, `term` its products for a block of the output, `h` and `w` rows and columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np

from ...hw.isa import Mem
from ...runtime import layout
from .. import graph as g
from .fold import Reads, fold_weights
from .language import Array, Kernel, Slots, Unfit, by_shape, every
from .language import Tile as Entries
from .recording import channel_parameters
from .split_tiles import Layer, Operands, Tile, tiles


@by_shape()
def divided(k: Kernel, op: g.QConv2d | g.QDense) -> None:
    """A layer of any number of ternary channels, also of none."""
    cfg, others = k.cfg, len(op.weight) - op.ternary
    if op.ternary and "ternary" not in cfg.units:
        raise Unfit(f"{op.ternary} ternary channels: {cfg.name} has units {', '.join(cfg.units)}, not ternary")
    if op.ternary and others % cfg.block_out:
        raise Unfit(
            f"{others} channels on GEMM beside {op.ternary} ternary ones: must be a multiple of {cfg.block_out}"
        )
    k.need("overwrite", "requant")
    in_tiles(k, op, k.fastest(in_tiles, tiles(Layer.of(op.shape, op.ternary, k.fold, cfg), cfg)))


@dataclass
class Unit:
    """The share of one unit: `blocks` of the output, in groups of `planes`, with `together` groups in a tile.

    Its `weights`, axes b, c, term, go to `places`, its sums to `banks`.
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


class Share(NamedTuple):
    """What a unit computes in a step, with which weights and where."""

    unit: Unit
    weights: Entries
    sums: Entries


class Step(NamedTuple):
    """Products of blocks `chunk` of the input, in `x`, for a part of the output's blocks in `area`.

    That is (image, first row, first column), and `size` its rows and columns.
    """

    part: int
    area: tuple[int, int, int]
    size: tuple[int, int]
    chunk: range
    x: Entries
    shares: list[Share]


def in_tiles(k: Kernel, op: g.QConv2d | g.QDense, tile: Tile) -> None:
    """The layer in tiles of these extents."""
    layer = Layer.of(op.shape, op.ternary, k.fold, k.cfg)
    operands, at_once = Operands(layer, tile, k.cfg), layer.blocks <= k.cfg.par_entries
    xs = k.slots(int(operands.sizes[0]), count=int(operands.pieces[0].slots))
    units = _units(k, op, layer, tile, operands)
    size = layer.blocks if at_once else tile.gemm + min(tile.groups * layer.planes, layer.ternary)
    places = k.slots(size, Mem.PAR, 1 if at_once else k.cfg.par_entries // size)
    parameters = k.array(channel_parameters(k.rec, op, op.corrected_bias), b=layer.blocks)
    out = k.output if len(op.output.shape) == 4 else k.output.split("b", b=layer.blocks, h=1, w=1)
    for step in _steps(k, op, layer, tile, operands, xs, units):
        (image, y, x), (rows, columns) = step.area, step.size
        outputs = [unit.outputs(step.part) for unit, *_ in step.shares]
        if at_once:
            par = places.hold(parameters)
            pars = [par[these.start : these.stop] for these in outputs]
        else:
            pars = places.hold_all(*[parameters[these.start : these.stop] for these in outputs])
        for unit, weights, sums in step.shares:
            count = len(unit.groups(step.part))
            acc = sums[0, : count * rows * columns].split("entry", b=count, h=rows, w=columns)
            multiply(acc, step.x, weights, layer.reads, fresh=step.chunk.start == 0)
        if step.chunk.stop == layer.inputs:
            for (unit, _, sums), par, these in zip(step.shares, pars, outputs):
                to = out[image, these.start : these.stop, y : y + rows, x : x + columns]
                _store(to, sums, par, unit)


def _steps(
    k: Kernel, op: g.QConv2d | g.QDense, layer: Layer, tile: Tile, operands: Operands, xs: Slots, units: list[Unit]
) -> Iterator[Step]:
    """Each step once the loads of the next one are recorded, which need not wait for it where there is room for both.

    What lets a load wait for the operator before is an instruction of the queues of the units.
    """
    image, (oy, ox), waiting = input_of(k, layer), layer.extents, list[Step]()
    ahead = all(pieces.slots > 1 or pieces.distinct == 1 for pieces in operands.pieces)
    areas = [*product(range(layer.images), range(0, oy, tile.rows), range(0, ox, tile.columns))]
    parts = range(int(operands.parts))
    turns = product(parts, areas) if tile.outer else ((part, area) for area in areas for part in parts)
    for part, (n, y, x) in turns:
        size = min(tile.rows, oy - y), min(tile.columns, ox - x)
        at = {"h": layer.reads.window(0, y, size[0]), "w": layer.reads.window(1, x, size[1])}
        busy = [(unit, unit.groups(part)) for unit in units if unit.groups(part)]
        sums = [unit.banks.next(plane=unit.planes, entry=unit.banks.places[0].size // unit.planes) for unit, _ in busy]
        for first in range(0, layer.inputs, tile.inputs):
            chunk = slice(first, min(first + tile.inputs, layer.inputs))
            if not ahead:
                yield from waiting
                waiting = []
            pixels = xs.hold(image[n, chunk].window(op.x.zero_point, **at))
            weights = [unit.places.hold(unit.weights[each.start : each.stop, chunk]) for unit, each in busy]
            yield from waiting
            shares = [Share(unit, w, acc) for (unit, _), w, acc in zip(busy, weights, sums)]
            waiting = [Step(part, (n, y, x), size, range(chunk.start, chunk.stop), pixels, shares)]
    yield from waiting


def input_of(k: Kernel, layer: Layer) -> Array:
    """The input, axes n, c, h, w: of the image that is laid out, or of the entries of one as a vector."""
    if k.fold is not None:
        return k.folded.split("n", n=layer.images, c=1)
    x = k.input(0)
    if layer.reads.size == (1, 1):
        return x.merged("c", *[*x.shape][1:]).split("c", c=layer.inputs, h=1, w=1)
    return x.named(b="c")[:, :, :: layer.skip]


def _units(k: Kernel, op: g.QConv2d | g.QDense, layer: Layer, tile: Tile, operands: Operands) -> list[Unit]:
    """The units that have a share."""
    cfg, reads, own, units = k.cfg, layer.reads, len(op.weight) - op.ternary, list[Unit]()
    weight = op.weight.reshape((*op.weight.shape, 1, 1)[:4])
    if k.fold is not None:
        assert isinstance(op, g.QConv2d)
        folded = fold_weights(op, k.fold, cfg)  # output blocks, terms, channels of a block, lanes
        weight = folded.transpose(0, 2, 3, 1).reshape(-1, cfg.block_in, 1, len(reads.terms))
    (_, *sizes), (_, *slots), bank = operands.sizes, (int(pieces.slots) for pieces in operands.pieces), cfg.bank_depth
    if own:
        weights = k.known(
            "w", layout.pack_weights(weight[:own], cfg), b=layer.gemm, c=layer.inputs, term=len(reads.terms)
        )
        places, banks = k.slots(int(sizes[0]), Mem.WGT, slots[0]), k.slots(bank, Mem.ACC, high=2 * bank)
        units.append(Unit(range(layer.gemm), 1, tile.gemm, weights, places, banks))
    if op.ternary:
        packed = layout.pack_ternary_weights(weight[own:], cfg)
        weights = k.known("t", packed, b=layer.groups, c=layer.inputs, term=len(reads.terms))
        places, banks = k.slots(int(sizes[1]), Mem.TWGT, slots[1]), k.slots(bank, Mem.ACC, low=2 * bank)
        blocks = range(layer.gemm, layer.blocks)
        units.append(Unit(blocks, layer.planes, tile.groups, weights, places, banks))
    return units


def multiply(y: Entries, x: Entries, weights: Entries, reads: Reads, *, fresh: bool) -> None:
    """Add products of inputs (c, h, w) and weights (b, c, term) to `y` (b, h, w), which reads them so.

    The first product of each output replaces what it holds where it is `fresh`.
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
    """Store the outputs of a unit from the planes of its bank, each block of a group from its own."""
    k, (count, rows, columns) = out.kernel, out.shape.values()
    area = rows * columns
    if unit.planes == 1:
        k.store(out, sums[0, : count * area].split("entry", b=count, h=rows, w=columns), par)
        return
    for group, first in enumerate(range(0, count, unit.planes)):
        these = slice(first, min(first + unit.planes, count))
        acc = sums[: these.stop - first, group * area : (group + 1) * area]
        k.store(out[these], acc.split("entry", h=rows, w=columns).named(plane="b"), par[these])
