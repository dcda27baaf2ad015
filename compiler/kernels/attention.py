"""Rotary position embedding, and attention of tokens over caches: scores, exponentials and means of values on chip.

Scores are products of queries, as inputs, with tiles of keys, as weights; a query is masked to the lanes of its group.
The exponentials go to DRAM and come back as inputs, for the tiles of values; meanwhile the ALU makes the reciprocals of
their sums. Lanes of scores are positions, lanes of results are elements of values. Several tokens are more queries;
positions that a token does not see are masked.

Axes: `row` tokens, `q` queries of each group (chunks of all rows), `g` groups, `head` both, `t` tiles of positions, `b`
blocks of a key or a value, `part` the parts of groups in these blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...hw.isa import Mem
from ...runtime import layout
from ...runtime.hostops.attention import LARGEST_WEIGHT, TURN, WEIGHTS, reciprocal_shifts
from .. import graph as g
from ..graph.integer_forms import Requant
from .language import Array, Extents, Kernel, Slots, Tile, Unfit, by_shape, refuse
from .norm import COPIES, inverse_root, need_roots, root_tables

_LOWEST = -(1 << 15)  # and as many bits to the left the smallest int32
_UNSEEN_BITS = 20  # by which -128 is shifted left for positions that are not seen
_SLOTS = 4  # of tiles of keys and values: the next are loaded while one is multiplied


class Part(NamedTuple):
    """The lanes of a group in a block of channels: `mask` is int8 (lanes,), 1 where a lane belongs to the group."""

    group: int
    block: int
    mask: NDArray[np.int8]


def parts(lanes: Sequence[int], groups: Sequence[int], block: int) -> list[Part]:
    """The parts of `groups` by group, then block: lane k, in blocks of `block` lanes, belongs to group `lanes[k]`."""
    padded = np.concatenate([np.asarray(lanes), np.full(-len(lanes) % block, -1)]).reshape(-1, block)
    found = [(k, b, padded[b] == group) for k, group in enumerate(groups) for b in range(len(padded))]
    return [Part(k, b, mask.astype(np.int8)) for k, b, mask in found if mask.any()]


def parts_of(op: g.Attention, block: int) -> tuple[list[Part], list[Part]]:
    """The parts of keys, and the parts of values, of the groups whose values are averaged."""
    groups = sorted(set(op.value_groups) - {-1})
    return parts(op.key_groups * 2, groups, block), parts(op.value_groups, groups, block)


@by_shape()
def attention(k: Kernel, op: g.Attention) -> None:
    """Attention, of as many tokens together as fit, a power of two. Keys, values and tokens are whole blocks."""
    need_roots(k)
    block, (keys, values) = k.cfg.block_in, parts_of(op, k.cfg.block_in)
    (_, key_size, context, _), (_, _, value_size, _) = op.inputs[1].shape, op.inputs[2].shape
    if context % block or value_size % block:
        raise Unfit(f"{context} positions, values of {value_size} elements: must be whole blocks of {block}")
    if op.tokens not in (1, block) or op.tokens > 1 and op.seen % block:
        raise Unfit(f"{op.tokens} tokens, {op.seen} positions: must be one, or {block} and whole blocks of as many")
    if op.tokens * op.chunks > 1 and key_size % block:
        many = f"{op.chunks} chunks" if op.chunks > 1 else f"{op.tokens} tokens"
        raise Unfit(f"keys of {key_size} elements: must be whole blocks of {block} where there are {many}")
    rows = 2 ** (k.most(op.tokens.bit_length(), lambda n: _extents(op, block, 2 ** (n - 1))) - 1)
    in_first, in_second = _extents(op, block, rows)

    tiles, (left, down, right) = in_first[0]["t"], reciprocal_shifts(context)
    # for each lane of a position its tile between -128 and 0, tiles backwards
    unseen = np.zeros((block, 2 * tiles - 1, block), np.int8)
    unseen[:, : tiles - 1] = -128
    unseen[:, tiles - 1][np.arange(block)[:, None] < np.arange(block)] = -128
    places = k.known("seen", unseen, row=block, t=2 * tiles - 1)
    places = places.moved(k.symbol(3, step=1, block=block // op.tokens, within=2 * tiles - 1))
    exponential, tables = k.table("exponential", WEIGHTS), root_tables(k)
    par = k.tile(Mem.PAR, scale=2)
    for number, name in enumerate(("scores", "means")):
        k.load(par[number], k.requant(Requant(0, *op.multipliers[number], 0), f"scale_{name}"))
    scores, products = k.tiles(Mem.ACC, *in_first, high=k.bank)
    q, groups, _ = scores.shape.values()
    results, means = products.pieces({"q": q, "part": len(values)}, {"q": q, "b": products.size // q - len(values)})
    queries, per_head, seen, spread, lanes, copies = k.tiles(Mem.ACC, *in_second, low=k.bank)
    maxima, sums = per_head[0], per_head[1]
    distinct, which = np.unique([part.mask for part in keys], axis=0, return_inverse=True)
    masking = k.constant(Mem.WGT, "diagonals", distinct[:, None, :] * np.eye(block, dtype=np.int8), kept=True)
    diagonals = [masking[number] for number in which.reshape(-1).tolist()]
    slots, cached_keys, cached_values = _caches(k, tiles)
    x_extents = {"q": q, "b": -(-key_size // block)}
    x, masked, weights = k.tiles(Mem.INP, x_extents, queries.shape, scores.shape)
    masks = k.known("lanes", np.stack([part.mask for part in values]), part=len(values))
    stored_queries, stored_weights = k.temporary("queries", **queries.shape), k.temporary("weights", **scores.shape)

    for first, (x_rows, out_rows) in enumerate(zip(k.input(0).parts(rows), k.output.parts(rows))):
        # what does not depend on the queries
        k.load(spread, masks.repeated(q=q))
        k.load(lanes, masks)
        k.load(seen, places[first * rows : (first + 1) * rows, :tiles])
        for tile in (products, per_head, copies):
            tile.merged("entry")[...] = 0
        maxima += _LOWEST
        maxima <<= 16
        hidden = seen.merged("entry")
        hidden <<= _UNSEEN_BITS

        k.load(x, x_rows)
        with k.together():
            for number, part in enumerate(keys):
                queries[:, number] = x[:, part.block] @ diagonals[number]
        loaded = _ahead(slots, cached_keys)
        k.store(stored_queries, queries)
        k.load(masked, stored_queries)
        _multiply_keys(scores, masked, keys, loaded)
        scores.merged("entry").rescale(par[0])
        by_row = scores.merged("entry").split("entry", row=rows, q=scores.size // seen.size, t=tiles)
        with k.together():
            for tile in range(tiles):
                by_row[:, :, tile] += seen[:, tiles - 1 - tile]
        by_head = scores.merged("head", "q", "g")
        maxima.maximum(by_head).max_lanes()
        maxima *= -1
        maxima += LARGEST_WEIGHT
        by_head += maxima
        scores.merged("entry").lookup(exponential)

        k.store(stored_weights, scores)
        loaded = _ahead(slots, cached_values)
        # before the load of the weights, which stops the ALU until they are in DRAM
        sums += by_head
        sums.sum_lanes()
        by_group = sums.split("head", q=q, g=groups)
        with k.together():
            for number, part in enumerate(values):
                spread[:, number] *= by_group[:, part.group]
        shifted = spread.merged("entry")
        shifted <<= left
        for copy in range(COPIES):
            _add_parts(copies[copy], spread, values)
        k.load(weights, stored_weights)
        inverse = inverse_root(copies.merged("entry", "q", "b"), tables)
        inverse >>= down
        inverse *= inverse
        inverse >>= right
        first_tile = 0
        for tile in loaded:
            exponentials = weights[:, :, first_tile : first_tile + tile.shape["t"]]
            with k.together():
                for number, part in enumerate(values):
                    results[:, number] += (exponentials[:, part.group] @ tile[:, part.block]).over("q t")
            first_tile += tile.shape["t"]
        results *= lanes
        _add_parts(means, results, values)
        scaled = means.merged("entry")
        scaled *= inverse
        k.store(out_rows.merged("entry"), scaled, par[1])


def _extents(op: g.Attention, block: int, rows: int) -> tuple[Extents, Extents]:
    """The axes of the tiles in each bank of accumulators, for `rows` tokens together."""
    keys, values = parts_of(op, block)
    q, groups, tiles, deep = rows * op.chunks, 1 + keys[-1].group, -(-op.seen // block), op.inputs[2].shape[2] // block
    results, copies = {"part": len(values)}, {"copy": COPIES, "q": q, "b": deep}
    first = [{"q": q, "g": groups, "t": tiles}, {"entry": q * (len(values) + deep)}]
    per_head, seen = {"kind": 2, "head": q * groups}, {"row": rows, "t": tiles}
    return first, [{"q": q, "part": len(keys)}, per_head, seen, {"q": q, **results}, results, copies]


def _caches(k: Kernel, tiles: int) -> tuple[Slots, list[Array], list[Array]]:
    """Slots of weights, and their loads: blocks of keys for all positions, tiles of values for all blocks."""
    keys, values = k.weights(1).named(h="t")[:, :tiles], k.weights(2).named(b="t", h="b")[:tiles]
    most = max(1, k.cfg.wgt_depth // (2 * _SLOTS))
    key_parts, value_parts = (a.parts(max(1, most // (a.size // a.axes[0].extent))) for a in (keys, values))
    loads = [*key_parts, *value_parts]
    return k.slots(max(part.size for part in loads), Mem.WGT, min(_SLOTS, len(loads))), key_parts, value_parts


def _ahead(slots: Slots, sources: list[Array]) -> Iterator[Tile]:
    """The tiles of `sources`: as many as there are slots are loaded at once, the others when they are needed."""
    loaded = [slots.load(source) for source in sources[: len(slots.places)]]
    return chain(loaded, map(slots.load, sources[len(loaded) :]))


def _multiply_keys(scores: Tile, queries: Tile, keys: Sequence[Part], loaded: Iterator[Tile]) -> None:
    """Products of queries with keys; products with the first block of a group replace what the accumulators hold."""
    k, first, begins = scores.kernel, 0, {part.group: part.block for part in reversed(keys)}
    for tile in loaded:
        for begun in (False, True):
            with k.together():
                for number, part in enumerate(keys):
                    inside = first <= part.block < first + tile.shape["b"]
                    if inside and (part.block > begins[part.group]) == begun:
                        product = (queries[:, number] @ tile[part.block - first]).over("q t")
                        k.multiply(scores[:, part.group], product, overwrite=not begun)
        first += tile.shape["b"]


def _add_parts(blocks: Tile, y: Tile, values: Sequence[Part]) -> None:
    with y.kernel.together():
        for number, part in enumerate(values):
            blocks[:, part.block] += y[:, number]


@by_shape()
def rotary(k: Kernel, op: g.Rotate) -> None:
    """`(a * cos - b * sin, b * cos + a * sin)` of the halves a and b of each chunk of a row.

    Products with cosines are made in one bank of accumulators, those with sines in the other one; then halves of the
    second are added to the others of the first. The position chooses the angles that are loaded.
    """
    need_roots(k)
    block, tokens, half = k.cfg.block_in, op.x.shape[0], op.cosine.shape[1]
    refuse(half % block, f"halves of {half} elements: must be whole blocks of {block}")
    x, out, width = k.input(0).named(n="row"), k.output.named(n="row"), half // block
    cosine, sine = op.cosine.astype(np.int32), op.sine.astype(np.int32)
    # cosines, then the sines for first halves, then the sines for second halves
    values = np.stack([cosine, sine, -sine], axis=1).reshape(len(cosine), -1, 1, block)
    angles = k.known("angles", values, row=len(cosine), part=3, w=width)
    angles = angles.moved(k.symbol(1, step=tokens * angles.axis("row").step))
    # the store removes the fraction of the angles
    facts = {"multiplier": TURN[0], "exponent": TURN[1], "zero_point": 0, "low": -128, "high": 127}
    turn = layout.pack_par(k.cfg, bias=np.zeros(k.cfg.block_out, int), contract="double", **facts)
    par = k.constant(Mem.PAR, "turn", turn, kept=True)
    blocks, chunks = x.axis("b").extent, x.axis("b").extent // (2 * width)
    most = max(1, min(tokens, k.bank // (blocks + 2 * width)))
    row, angle = {"row": most, "b": blocks}, {"row": most, "part": 2, "w": width}
    by_cosine, sines = k.tiles(Mem.ACC, row, angle, high=k.bank)
    by_sine, cosines = k.tiles(Mem.ACC, row, {"row": most, "w": width}, low=k.bank)
    for x_rows, out_rows, turns in zip(x.parts(most), out.parts(most), angles[:tokens].parts(most)):
        count = x_rows.shape["row"]
        cos, sin = k.load(cosines[:count], turns[:, 0]), k.load(sines[:count], turns[:, 1:])
        c, s = k.load(by_cosine[:count], x_rows), k.load(by_sine[:count], x_rows)
        products = c.split("b", half=2 * chunks, w=width)
        products *= cos
        products = s.split("b", chunk=chunks, b=2 * width)
        products *= sin.merged("b", "part", "w")
        halves = {"chunk": count * chunks, "half": 2, "w": width}
        turned, others = (y.merged("all").split("all", **halves) for y in (c, s))
        with k.together():
            turned[:, 0] += others[:, 1]
            turned[:, 1] += others[:, 0]
        k.store(out_rows, c, par)
