"""Moves of channels, beside cuts and padding of images: products with matrices of zeros and ones.

Channels that do not begin a block lie in other lanes before than after. Every block of the output is the sum of a few
blocks of the inputs, each multiplied by the matrix that takes its lanes to theirs. Channels of a constant value get it
from the store. Loads skip rows and add padding, micro-ops skip columns. In a schedule all blocks have equal terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from ...hw.units import striped
from .. import cost
from .. import graph as g
from ..graph.integer_forms import Requant
from .language import Array, Kernel, Unfit, every
from .recording import whole_blocks

_Source = tuple[int, int]  # (number of the input, its channel, or the block of its channels)


@dataclass(frozen=True)
class Move:
    """Where the elements of an output come from: images are cut from `begin` on in steps of `steps`, or padded.

    `channels` are (number of the input, its channel) of each channel of the output, None for those of value `value`;
    `pads` are (rows before, after, columns before, after), also of that value.
    """

    channels: tuple[_Source | None, ...]
    begin: tuple[int, int] = (0, 0)
    steps: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    value: int = 0


@dataclass(frozen=True, eq=False)
class Moved(g.Operator):
    """An operator that is a move, described by it."""

    move: Move


def move_of(op: g.Operator) -> Move | None:
    """The move that `op` is, of int8 images or vectors; None if it moves something else."""
    if isinstance(op, Moved):
        return op.move
    ranks = {len(t.shape) for t in (*op.inputs, op.output)}
    if op.output.dtype != "int8" or ranks not in ({2}, {4}):
        return None
    if isinstance(op, g.Concat) and op.axis == 1:
        return Move(tuple((k, c) for k, t in enumerate(op.inputs) for c in range(t.shape[1])))
    if isinstance(op, g.StridedSlice) and op.output.shape[0] == op.x.shape[0] and min(op.strides[2:], default=1) > 0:
        channels = tuple((0, op.begin[1] + k * op.strides[1]) for k in range(op.output.shape[1]))
        (y, x), (down, across) = (_image(values, default) for values, default in ((op.begin, 0), (op.strides, 1)))
        return Move(channels, (y, x), (down, across))
    if isinstance(op, g.Pad) and not any(op.pads[0]):
        before, after = op.pads[1]
        channels = (*(None,) * before, *((0, c) for c in range(op.x.shape[1])), *(None,) * after)
        (top, bottom), (left, right) = op.pads[2:] or ((0, 0), (0, 0))
        return Move(channels, pads=(top, bottom, left, right), value=int(op.value))
    if isinstance(op, g.Take) and op.indices[1] and not any(op.indices[:1] + op.indices[2:]):
        return Move(tuple((0, c) for c in op.indices[1]))
    return None


def _image(values: tuple[int, ...], default: int) -> tuple[int, int]:
    y, x = values[2:] or (default, default)
    return y, x


class Terms:
    """The blocks of the output as sums: `terms` of each are (source, number of its matrix in `matrices`).

    `constants` are the int32 values that the store adds, by block, None where there are none.
    """

    def __init__(self, move: Move, lanes: int):
        numbers: dict[bytes, int] = {}
        self.matrices: list[np.ndarray] = []
        self.terms: list[list[tuple[_Source, int]]] = []
        self.constants: list[np.ndarray | None] = []
        for first in range(0, len(move.channels), lanes):
            found: dict[_Source, np.ndarray] = {}
            constant = np.zeros(lanes, np.int32)
            for lane, source in enumerate(move.channels[first : first + lanes]):
                if source is None:
                    constant[lane] = move.value
                    continue
                block, other = divmod(source[1], lanes)
                found.setdefault((source[0], block), np.zeros((lanes, lanes), np.int8))[lane, other] = 1
            for matrix in found.values():
                if matrix.tobytes() not in numbers:
                    numbers[matrix.tobytes()] = len(self.matrices)
                    self.matrices.append(matrix)
            self.terms.append([(source, numbers[matrix.tobytes()]) for source, matrix in found.items()])
            self.constants.append(constant if constant.any() else None)

    def groups(self, first: int, count: int) -> list[range]:
        """The blocks of the output from `first` on, `count` in a group."""
        blocks = len(self.terms)
        return [range(block, min(block + count, blocks)) for block in range(first, blocks, count)]

    def sources(self, blocks: range) -> list[_Source]:
        """What these blocks of the output read, each once."""
        return list(dict.fromkeys(source for block in blocks for source, _ in self.terms[block]))


def move_channels(k: Kernel, op: g.Operator) -> None:
    """A move, in tiles of whole rows of some blocks of the output; those that are in their place stay there."""
    if (move := move_of(op)) is None:
        raise Unfit("it moves other elements than channels, or rows and columns of images in steps")
    if isinstance(op, g.Concat) and whole_blocks(op, k.cfg):
        raise Unfit("its parts are whole blocks of channels, which are computed at their place, or copied")
    inputs = [k.image(number) for number in range(len(op.inputs))]
    out = k.output if len(op.output.shape) == 4 else k.output.split("b", b=k.output.shape["b"], h=1, w=1)
    first = op.x.shape[1] // k.cfg.block_in if inputs[0].shares(out) else 0  # blocks that nothing is added to
    move_images(k, move, inputs, out, first)


def move_images(k: Kernel, move: Move, inputs: Sequence[Array], out: Array, first: int = 0) -> None:
    """Record a move of images, axes n, b, h, w, for the blocks of the output from `first` on."""
    k.need("overwrite")
    terms, (top, _, left, right), (down, across) = Terms(move, k.cfg.block_in), move.pads, move.steps
    images, blocks, height, width = out.shape.values()
    if first == blocks:
        return
    wide = (width - left - right - 1) * across + 1 + left + right  # columns of a load
    together, rows = _tile(k, move, terms, inputs[0], out, wide, first)
    groups = terms.groups(first, together)

    lanes = k.matrices("lanes", np.stack(terms.matrices))
    values = {c.tobytes(): c for c in terms.constants if c is not None}
    par = k.parameters(Requant(0, 1 << 30, 1, 0), bias=np.concatenate([*values.values()])) if values else None
    entry = {content: number for number, content in enumerate(values)}
    xs = k.slots(max(1, *(len(terms.sources(group)) for group in groups)) * rows * wide)
    ys = k.banks(together * rows * width)
    for n, group, y in product(range(images), groups, range(0, height, rows)):
        count, sources = min(rows, height - y), terms.sources(group)
        tile = xs.next(source=max(1, len(sources)), h=count, w=wide)
        for number, (which, block) in enumerate(sources):
            image = inputs[which][n, block, move.begin[0] :: down, move.begin[1] :]
            image = image[:, : wide - left - right].window(move.value, h=(y - top, count), w=(-left, wide))
            k.load(tile[number], image)
        acc = ys.next(b=len(group), h=count, w=width)
        columns = every(0, width, across)
        for number, block in enumerate(group):
            if not terms.terms[block]:  # constants alone
                acc[number] = 0
        with k.together():
            for number, block in enumerate(group):
                for term, (source, matrix) in enumerate(terms.terms[block]):
                    value = (tile[sources.index(source), :, columns] @ lanes[matrix]).over("h w")
                    k.multiply(acc[number], value, overwrite=term == 0)
        for number, block in enumerate(group):
            added = terms.constants[block]
            own = None if added is None or par is None else par[entry[added.tobytes()]]
            k.store(out[n, block, y : y + count], acc[number], own)


def _tile(k: Kernel, move: Move, terms: Terms, x: Array, out: Array, wide: int, first: int) -> tuple[int, int]:
    """(blocks of the output, rows) of a tile: of the tallest that fit two slots the one that seems fastest."""
    cfg, (images, blocks, height, width), (top, *_) = k.cfg, out.shape.values(), move.pads
    size = -(-(x.shape["h"] - move.begin[0]) // move.steps[0])  # rows of the input that a load may bring
    found = list[tuple[float, int, int]]()
    for together in range(1, blocks - first + 1):
        groups = [terms.sources(group) for group in terms.groups(first, together)]
        rows = min(height, k.slot // (max(1, *map(len, groups)) * wide), k.bank // (together * width))
        if rows == 0 or max(map(len, terms.terms)) * together > cfg.uop_depth // 2:
            continue
        spans = [(y - top, min(rows, height - y)) for y in range(0, height, rows)]
        if any(max(0, -begin) + max(0, begin + count - size) >= count for begin, count in spans):
            continue  # a load must bring at least one row
        tiles, entries = len(spans), height * width * (blocks - first)
        products = height * width * sum(max(1, len(each)) for each in terms.terms[first:])
        loaded, loads = height * wide * sum(map(len, groups)), tiles * sum(map(len, groups))
        load = cost.transfer(striped(cfg), loaded * cfg.inp_entry_bytes, loads)
        store = cost.transfer(cfg, entries * cfg.out_entry_bytes, tiles * (blocks - first))
        start = (load + store) / (tiles * len(groups))  # what nothing hides
        cycles = images * max(load, store, cost.computed(products, 3 * tiles * len(groups))) + start
        found.append((cycles, together, rows))
    if not found:
        raise Unfit(f"rows of {width} pixels, {wide} with their padding, of all channels that they need, do not fit")
    _, together, rows = min(found)
    return together, rows
