"""Caches of attention: written in place at a position, or longer by a row, and images of heads as the host has them."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ...hw.isa import Mem
from .. import graph as g
from .language import Array, Kernel, Tile, Unfit, by_shape, cuts
from .movement import Move, blocks_together, move_images
from .norm import need_roots
from .stand_ins import RowsJoined, RowsOut


@by_shape()
def write_rows(k: Kernel, op: g.WriteRows) -> None:
    """Rows of tokens side by side in each block of the cache's channels. It pays where attention is on chip, too."""
    need_roots(k)
    x, tokens, size = k.input(1), op.inputs[1].shape[0], op.x.shape[2]
    if size % tokens:
        raise Unfit(f"{size} positions: must be whole blocks of {tokens} tokens")
    rows = k.tile(Mem.ACC, b=x.axis("b").extent, n=tokens)
    for part in range(rows.shape["b"]) if tokens > 1 else ():
        k.load(rows[part], x[:, part])
    if tokens == 1:
        k.load(rows, x)
    place = k.symbol(2, block=size // tokens, within=tokens) if size > tokens else None
    k.store(k.output[0, :, :tokens, 0].named(h="n").moved(place), rows)


@by_shape()
def write_columns(k: Kernel, op: g.WriteColumns) -> None:
    """A block of values, transposed: the identity times matrices of values. One entry of the cache per element."""
    need_roots(k)
    block, (_, elements, positions, _) = k.cfg.block_in, op.inputs[1].shape
    if positions != block:
        raise Unfit(f"a block of {positions} positions: must be {block}")
    if elements % block:
        raise Unfit(f"values of {elements} elements: must be whole blocks of {block}")
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
    """The longer cache of a block of heads, and the row of its image. Returns a copy of the cache, tile by tile."""
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
    by_tile = _stored(k, "tiles", turned, tile=tiles)
    k.load(new, row)
    new_plain[...] = (new @ turns).over("element entry")
    k.load(plain, _stored(k, "row", new_plain, group=width))

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
    return by_tile


def _stored(k: Kernel, name: str, y: Tile, **extents: int) -> Array:
    """A copy of `y` in DRAM, to be loaded with axes of these extents."""
    copy = k.temporary(name, **y.shape)
    k.store(copy, y)
    return k.array(copy.buffer, **extents)


@lru_cache(maxsize=16)
def _matrices(lanes: int, width: int) -> np.ndarray:
    """Those that shift lanes by 0, 1, ... positions, what they push to the next entry, those that keep one position.

    Then, for each entry and each element, the one that takes the element of all heads to their places in the entry.
    """
    positions, of_lanes, of_entry = lanes // width, [range(lanes)] * 2, [range(width)] * 2
    c, y, x = np.ix_(range(positions), *of_lanes)
    shifts, spilt, ones = y == x + c * width, y == x + c * width - lanes, (y == x) & (y // width == c)
    entry, element, y, x = np.ix_(*of_entry, *of_lanes)
    turns = (y % width == element) & (x == entry * positions + y // width)
    return np.concatenate([shifts, spilt, ones, turns.reshape(-1, lanes, lanes)]).astype(np.int8)


def _move_elements(k: Kernel, op: RowsJoined, blocks: int) -> None:
    """The longer cache and its image, each a vector whose elements are those of the cache and of the row."""
    lanes, (_, heads, count, width) = k.cfg.block_in, op.x.shape
    cache = np.arange(op.x.nbytes).reshape(heads, count, width)
    row = op.x.nbytes + np.arange(heads * width).reshape(-1, width, lanes).swapaxes(1, 2)  # lanes are heads
    longer = np.concatenate([cache, row.reshape(heads, 1, width)], 1)
    image = longer.reshape(-1, lanes, (count + 1) * width).swapaxes(1, 2)
    sources = [_vector(k.plain(op.x, b=op.x.nbytes // lanes)), _vector(k.input(1))]
    for y, places in ((k.plain(op.output, b=longer.size // lanes), longer), (k.output, image)):
        move = Move(tuple(divmod(place, op.x.nbytes) for place in places.reshape(-1).tolist()))
        with k.scope():
            move_images(k, move, sources, _vector(y), blocks)


def _vector(t: Array) -> Array:
    """`t` as an image of one pixel."""
    return t.merged("b").split("b", n=1, b=t.size, h=1, w=1)


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
    """Write every entry of weights, axis `tile`, with rows and lanes exchanged, axes `tile` and `lane` in any order.

    It times each unit vector is one of its columns.
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
