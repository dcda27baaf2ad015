"""Caches of attention, written in place at a position or extended by a row, and outputs in the layout of the host.

Also the two operators that stand for a network's own where a launch reads and writes unpacked tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ...hw.isa import Mem
from .. import graph as g
from .language import Array, Kernel, Unfit, by_shape, cuts, refuse
from .movement import Move, blocks_together, move_images
from .norm import need_roots


@dataclass(frozen=True, eq=False)
class RowsJoined(g.Concat):
    """A cache (1, H, N, D) and a row (1, H, 1, D) of each head; the cache and the result are not packed."""

    @property
    def plain(self) -> tuple[g.Tensor, ...]:
        """The cache and the result, whose image is an output, too."""
        return self.x, self.output


@dataclass(frozen=True, eq=False)
class RowsOut(g.StridedSlice):
    """A whole image, as an output that is not unpacked."""

    @property
    def plain(self) -> tuple[g.Tensor, ...]:
        """The output."""
        return (self.output,)


@by_shape()
def write_rows(k: Kernel, op: g.WriteRows) -> None:
    """Write rows of tokens, side by side in each block of the cache's channels, at a position.

    It needs what norms and attention need: it pays where these run on the accelerator, too.
    """
    need_roots(k)
    x, tokens, size = k.input(1), op.inputs[1].shape[0], op.x.shape[2]
    refuse(size % tokens, f"{size} positions: must be whole blocks of {tokens} tokens")
    rows = k.tile(Mem.ACC, b=x.axis("b").extent, n=tokens)
    for part in range(rows.shape["b"]) if tokens > 1 else ():
        k.load(rows[part], x[:, part])
    if tokens == 1:
        k.load(rows, x)
    place = k.symbol(2, block=size // tokens, within=tokens) if size > tokens else None
    k.store(k.output[0, :, :tokens, 0].named(h="n").moved(place), rows)


@by_shape()
def write_columns(k: Kernel, op: g.WriteColumns) -> None:
    """Write a transposed block of values: the identity times matrices of values. An entry of the cache per element."""
    need_roots(k)
    block, (_, elements, positions, _) = k.cfg.block_in, op.inputs[1].shape
    refuse(positions != block, f"a block of {positions} positions: must be {block}")
    refuse(elements % block, f"values of {elements} elements: must be whole blocks of {block}")
    identity = k.constant(Mem.INP, "identity", np.eye(block, dtype=np.int8), kept=True)
    x = k.weights(1).merged("b")
    values = k.load(k.tile(Mem.WGT, **x.shape), x)
    turned = k.tile(Mem.ACC, b=elements // block, identity=block)
    turned[...] = identity @ values
    place = k.symbol(2, step=elements, block=block // op.tokens)
    k.store(k.output[0, 0].merged("element").moved(place), turned.merged("element"))


@by_shape()
def join_rows(k: Kernel, op: RowsJoined) -> None:
    """A cache (1, heads, positions, elements) with a row more for each head, and the image of it.

    The cache is read, and the longer one is written, as they lie in the host's memory. There an entry has a few
    positions of one head, and the heads of the longer cache begin in the middle of entries: products with matrices of
    zeros and ones shift lanes. For the image, whose lanes are heads, the entries of a block of heads are taken as
    weights, and products with one-hot inputs transpose them. Where heads of the cache do not begin an entry, both are
    moves of channels.
    """
    k.need("overwrite", batch=1)
    lanes, (_, heads, count, width) = k.cfg.block_in, op.x.shape
    if heads % lanes or lanes % width:
        raise Unfit(f"{heads} heads of {width} elements: must be whole blocks of {lanes}, of elements that divide it")
    if count * width % lanes:
        _move_elements(k, op, k.fastest(_move_elements, blocks_together(op.x.nbytes // lanes)))
        return
    blocks, tiles = heads // lanes, count * width // lanes  # `tiles` are the entries of a head
    cache = k.plain(op.x, b=blocks, head=lanes, tile=tiles)
    longer = k.plain(op.output, b=blocks, group=width, tile=lanes // width * tiles + 1)  # whose heads begin an entry
    row, image = (t[0].merged("entry", "h", "w") for t in (k.input(1), k.output))
    for block in range(blocks):
        with k.scope():
            by_tile = _join(k, cache[block], row[block].named(entry="element"), longer[block], image[block])
        transpose(k, by_tile, image[block][: cache[block].size].split("entry", tile=tiles, lane=lanes))


def _join(k: Kernel, cache: Array, row: Array, longer: Array, image: Array) -> Array:
    """Record the longer cache of a block of heads and the new row of its image.

    Returns a copy of the cache whose entries are ordered by tile.
    """
    (lanes, tiles), (width, size), each = cache.shape.values(), longer.shape.values(), cache.size
    heads = lanes // width  # of a group; as many positions are in an entry
    together = k.most(width, lambda groups: ([cache.shape], [{"entry": groups * size}, {"element": 2 * width}]))
    turned = k.tile(Mem.ACC, high=k.bank, tile=tiles, head=lanes)
    extents = {"group": together, "tile": size}, {"entry": width}, {"element": width}
    places, new_plain, new_image = k.tiles(Mem.ACC, *extents, low=k.bank)
    matrices = k.constant(Mem.WGT, "matrices", _matrices(lanes, width), kept=True)
    of_heads = {"head": heads}
    shifts, spilt, ones, turns = matrices.pieces(of_heads, of_heads, of_heads, {"entry": width, "element": width})
    x, new, plain = k.tiles(Mem.INP, cache.shape, row.shape, {"group": width})
    identity = shifts[0]

    k.load(x, cache)
    turned[...] = (x @ identity).over("head tile")
    by_tile, plain_row = k.temporary("tiles", **turned.shape), k.temporary("row", **new_plain.shape)
    k.store(by_tile, turned)
    k.load(new, row)
    new_plain[...] = (new @ turns).over("element entry")
    k.store(plain_row, new_plain)
    k.load(plain, k.array(plain_row.buffer, group=width))

    by_group = x.split("head", group=width, head=heads)
    for groups in cuts(width, together):
        y = places[: groups.stop - groups.start]
        y.merged("entry")[...] = 0
        with k.together():
            for head in range(heads):
                values, begin = by_group[groups, head], head * tiles
                y[:, begin : begin + tiles] += (values @ shifts[head]).over("group tile")
                if head:
                    y[:, begin + 1 : begin + 1 + tiles] += (values @ spilt[head]).over("group tile")
        with k.together():
            for head in range(heads):
                y[:, (head + 1) * tiles] += plain[groups] @ ones[head]
        k.store(longer[groups], y)

    new_image[...] = new @ identity
    k.store(image[each:].named(entry="element"), new_image)
    return k.array(by_tile.buffer, tile=tiles)


@lru_cache(maxsize=16)
def _matrices(lanes: int, width: int) -> NDArray[np.int8]:
    """int8 (count, lanes, lanes): matrices of zeros and ones that move heads of `width` elements.

    For each position of an entry: shifted lanes, the lanes that a shift pushes to the next entry, one position alone.
    Then, for each entry and each element, the element of all heads at its places in the entry.
    """
    positions, of_lanes, of_entry = lanes // width, [range(lanes)] * 2, [range(width)] * 2
    c, y, x = np.ix_(range(positions), *of_lanes)
    shifts, spilt, ones = y == x + c * width, y == x + c * width - lanes, (y == x) & (y // width == c)
    entry, element, y, x = np.ix_(*of_entry, *of_lanes)
    turns = (y % width == element) & (x == entry * positions + y // width)
    return np.concatenate([shifts, spilt, ones, turns.reshape(-1, lanes, lanes)]).astype(np.int8)


def _move_elements(k: Kernel, op: RowsJoined, blocks: int) -> None:
    """The longer cache and its image as moves of channels: vectors of elements of the cache and of the row."""
    lanes, (_, heads, count, width) = k.cfg.block_in, op.x.shape
    cache = np.arange(op.x.nbytes).reshape(heads, count, width)
    row = op.x.nbytes + np.arange(heads * width).reshape(-1, width, lanes).swapaxes(1, 2)  # lanes are heads
    longer = np.concatenate([cache, row.reshape(heads, 1, width)], 1)
    image = longer.reshape(-1, lanes, (count + 1) * width).swapaxes(1, 2)

    def vector(t: Array) -> Array:  # an image of one pixel
        return t.merged("b").split("b", n=1, b=t.size, h=1, w=1)

    sources = [vector(k.plain(op.x, b=op.x.nbytes // lanes)), vector(k.input(1))]
    for y, places in ((k.plain(op.output, b=longer.size // lanes), longer), (k.output, image)):
        move = Move(tuple(divmod(place, op.x.nbytes) for place in places.reshape(-1).tolist()))
        with k.scope():
            move_images(k, move, sources, vector(y), blocks)


_TILE = 128  # accumulators at a time: few, so that loads, products and stores overlap


@by_shape()
def heads_out(k: Kernel, op: RowsOut) -> None:
    """An output (1, heads, rows, elements) whose heads are lanes, written as the host has it, block after block."""
    k.need("overwrite", batch=1)
    lanes, (_, heads, rows, width) = k.cfg.block_in, op.x.shape
    if heads % lanes or rows * width % lanes:
        raise Unfit(f"{heads} heads of {rows} x {width} elements: must be whole entries of {lanes}")
    blocks, tiles = heads // lanes, rows * width // lanes
    x, out = k.array(k.input(0).buffer, b=blocks, tile=tiles), k.plain(op.output, b=blocks, lane=lanes, tile=tiles)
    for block in range(blocks):
        transpose(k, x[block], out[block])


def transpose(k: Kernel, x: Array, out: Array) -> None:
    """Transpose each matrix of `x` (tile), an entry of weights, into entries of `out` (tile, lane in any order).

    The product of a matrix with a unit vector is one of its columns.
    """
    lanes, tiles = k.cfg.block_in, x.shape["tile"]
    most = max(1, min(tiles, k.cfg.wgt_depth // 2, min(_TILE, k.bank) // lanes))
    units = k.constant(Mem.INP, "identity", np.eye(lanes, dtype=np.int8), kept=True, lane=lanes)
    with k.scope():
        ws, ys = k.slots(most, Mem.WGT), k.banks(most * lanes)
        for these in cuts(tiles, most):
            target = out.at(tile=these)
            y = ys.next(**target.shape)
            y[...] = (units @ ws.load(x[these])).over(" ".join(target.shape))
            k.store(target, y)
