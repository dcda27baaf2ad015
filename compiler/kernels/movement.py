"""Concatenations, slices, paddings, heads and rows of tables: copies of whole entries, or products with zeros and ones.

Where channels change lanes, every block of the output is the sum of a few blocks of the inputs, each multiplied by the
matrix that moves its lanes. Channels of a constant value get it from the store. Loads skip rows and add padding,
micro-ops skip columns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, product

import numpy as np
from numpy.typing import NDArray

from ...hw.isa import Mem
from ...runtime.symbols import MOST_LIMIT
from .. import graph as g
from ..graph.integer_forms import Requant
from ..graph.movement import Source
from .language import TILE, Array, Kernel, Unfit, by_shape, cuts, every, refuse
from .norm import need_roots
from .recording import whole_blocks


@by_shape()
def concatenate(k: Kernel, op: g.Concat) -> None:
    """Copies of the inputs that are not computed inside the output."""
    known = (1, 2, 3) if len(op.output.shape) == 4 else (1,)
    if op.axis not in known or len(op.output.shape) not in (2, 4) or op.output.shape[0] > k.cfg.batch:
        raise Unfit(f"{op.output.dtype} {op.output.shape} along axis {op.axis}")
    if any(t.data is not None for t in op.inputs):
        raise Unfit("a constant part")
    if op.axis == 1 and not whole_blocks(op, k.cfg):
        parts = [t.shape[1] for t in op.inputs[:-1] if t.shape[1] % k.cfg.block_out]
        raise Unfit(f"{parts[0]} channels are not whole blocks")
    inputs, axis = [k.input(number) for number in range(len(op.inputs))], "nbhw"[op.axis]
    ends = accumulate(x.shape[axis] for x in inputs)
    targets = [k.output.at(**{axis: slice(end - x.shape[axis], end)}) for x, end in zip(inputs, ends)]
    _copy(k, [(x, target) for x, target in zip(inputs, targets) if not x.shares(target)])


@by_shape()
def cut(k: Kernel, op: g.StridedSlice) -> None:
    """Copies of the part that a slice without steps takes, whole blocks of channels of all images of a batch."""
    block, same = k.cfg.block_out, op.x.shape[0] == op.output.shape[0]
    if len(op.x.shape) not in (2, 4) or op.x.dtype != "int8" or not (same or k.cfg.batch == 1):
        raise Unfit(f"{op.x.dtype} {op.x.shape} to {op.output.shape}")
    refuse(any(step != 1 and n > 1 for step, n in zip(op.strides, op.output.shape)), f"steps of {op.strides}")
    refuse(op.begin[1] % block, f"channels from {op.begin[1]} on: blocks have {block}")
    x, begins = k.input(0), [op.begin[0], op.begin[1] // block, *op.begin[2:]]
    part = tuple(slice(begin, begin + n) for begin, n in zip(begins, k.output.shape.values()))
    _copy(k, [(x[part], k.output)])


def _copy(k: Kernel, parts: list[tuple[Array, Array]]) -> None:
    """Copy arrays to arrays with the same axes, in tiles that take turns in two places of each bank."""
    k.need("acc8")
    size = min(TILE, k.bank // 2, max(64, -(-sum(x.size for x, _ in parts) // 4)))
    ys = k.banks(size, places=2)
    for x, y in parts:
        for piece, target in zip(_pieces(x, size), _pieces(y, size)):
            k.store(target, ys.load(piece))


def _pieces(x: Array, size: int) -> Iterator[Array]:
    inner = x.size // x.axes[0].extent
    if inner <= size:
        yield from x.parts(size // inner)
    else:
        for k in range(x.axes[0].extent):
            yield from _pieces(x[k], size)


_TOGETHER = (1, 2, 3, 4, 8, 16)  # numbers of blocks of the output that may share a tile


@dataclass(frozen=True)
class Move:
    """Where the elements of an output come from: images are cut from `begin` on in steps of `steps`, or padded.

    `channels` are (number of the input, its channel) of each channel of the output, None for those of value `value`;
    `pads` are (rows before, after, columns before, after), also of that value.
    """

    channels: tuple[Source | None, ...]
    begin: tuple[int, int] = (0, 0)
    steps: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    value: int = 0


def move_of(op: g.Selection) -> Move | None:
    """The move that `op` is, of int8 images or vectors; None if it moves something else."""
    if op.output.dtype != "int8" or {len(t.shape) for t in op.tensors} not in ({2}, {4}) or not op.whole(0):
        return None
    size = [_steps(op.sources(axis)) for axis in range(2, len(op.output.shape))] or [(0, 1, 0, 0)] * 2
    if None in size:
        return None
    begin, steps, before, behind = zip(*(one for one in size if one))
    pads = before[0], behind[0], before[1], behind[1]
    return Move(op.sources(1), (begin[0], begin[1]), (steps[0], steps[1]), pads, int(op.filling))


def _steps(sources: tuple[Source | None, ...]) -> tuple[int, int, int, int] | None:
    """(first index, step, padding before, padding behind) of an axis; None unless indices of one input are in steps."""
    kept = [k for k, source in enumerate(sources) if source]
    found = [source for source in sources if source]
    first, step = found[0][1], found[1][1] - found[0][1] if len(found) > 1 else 1
    if step < 1 or found != [(0, first + k * step) for k in range(len(found))]:
        return None
    return first, step, kept[0], len(sources) - 1 - kept[-1]


def _terms(move: Move, first: int, lanes: int) -> tuple[dict[Source, bytes], bytes]:
    """(int8 matrix (lanes, lanes) of each block of the inputs, int32 (lanes,) that the store adds), as bytes.

    The products add up to the block of the output that begins with channel `first`.
    """
    matrices = defaultdict[Source, NDArray[np.integer]](partial(np.zeros, (lanes, lanes), np.int8))
    constant = np.zeros(lanes, np.int32)
    for lane, source in enumerate(move.channels[first : first + lanes]):
        if source is None:
            constant[lane] = move.value
        else:
            block, other = divmod(source[1], lanes)
            matrices[source[0], block][lane, other] = 1
    return {source: matrix.tobytes() for source, matrix in matrices.items()}, constant.tobytes()


def join_channels(k: Kernel, op: g.Concat) -> None:
    """A concatenation of channels, unless its parts are whole blocks."""
    if whole_blocks(op, k.cfg):
        raise Unfit("its parts are whole blocks of channels, which are computed at their place, or copied")
    move_channels(k, op)


def move_channels(k: Kernel, op: g.Selection) -> None:
    """A move, in tiles of whole rows of some blocks of the output; those that are in their place stay there."""
    _move(k, op, k.fastest(_move, blocks_together(k.output.shape["b"])))


def blocks_together(blocks: int) -> list[int]:
    """How many of the blocks of an output may share a tile, to be tried."""
    return sorted({min(blocks, some) for some in _TOGETHER}, reverse=True)


def _move(k: Kernel, op: g.Selection, blocks: int) -> None:
    if (move := move_of(op)) is None:
        raise Unfit("it moves other elements than channels, or rows and columns of images in steps")
    inputs = [k.image(number) for number in range(len(op.inputs))]
    out = k.output if len(op.output.shape) == 4 else k.output.split("b", b=k.output.shape["b"], h=1, w=1)
    first = op.x.shape[1] // k.cfg.block_out if inputs[0].shares(out) else 0  # blocks that nothing is added to
    move_images(k, move, inputs, out, blocks, first)


def move_images(k: Kernel, move: Move, inputs: Sequence[Array], out: Array, together: int, first: int = 0) -> None:
    """Record a move of images, axes n, b, h, w, for the blocks of the output from `first` on, some of them together."""
    k.need("overwrite")
    size, (top, _, left, right), (down, across) = k.cfg.block_in, move.pads, move.steps
    images, blocks, height, width = out.shape.values()
    if first == blocks:
        return
    wide = (width - left - right - 1) * across + 1 + left + right  # columns of a load
    terms = [_terms(move, begin, size) for begin in range(0, len(move.channels), size)]
    matrices = [*dict.fromkeys(matrix for block, _ in terms for matrix in block.values())]
    constants = [*dict.fromkeys(added for _, added in terms if any(added))]
    groups = [range(first + part.start, first + part.stop) for part in cuts(blocks - first, together)]
    reads = [[*dict.fromkeys(source for block in group for source in terms[block][0])] for group in groups]
    most = max(1, *map(len, reads))
    rows = min(height, k.slot // (most * wide), k.bank // (together * width))
    refuse(not rows, f"rows of {width} pixels, {wide} with their padding, of all channels that they need, do not fit")

    lanes = k.matrices("lanes", np.frombuffer(b"".join(matrices), np.int8).reshape(-1, size, size))
    added = np.frombuffer(b"".join(constants), np.int32)
    par = k.parameters(Requant(0, 1 << 30, 1, 0), bias=added) if constants else None
    xs = k.slots(most * rows * wide)
    ys = k.banks(together * rows * width)
    for n, (group, sources), y in product(range(images), zip(groups, reads), range(0, height, rows)):
        count = min(rows, height - y)
        tile = xs.next(source=max(1, len(sources)), h=count, w=wide)
        for number, (which, block) in enumerate(sources):
            image = inputs[which][n, block, move.begin[0] :: down, move.begin[1] :]
            image = image[:, : wide - left - right].window(move.value, h=(y - top, count), w=(-left, wide))
            k.load(tile[number], image)
        acc = ys.next(b=len(group), h=count, w=width)
        columns = every(0, width, across)
        for number, block in enumerate(group):
            if not terms[block][0]:  # constants alone
                acc[number] = 0
        with k.together():
            for number, block in enumerate(group):
                for term, (source, matrix) in enumerate(terms[block][0].items()):
                    value = (tile[sources.index(source), :, columns] @ lanes[matrices.index(matrix)]).over("h w")
                    k.multiply(acc[number], value, overwrite=term == 0)
        for number, block in enumerate(group):
            constant = terms[block][1]
            own = None if par is None or constant not in constants else par[constants.index(constant)]
            k.store(out[n, block, y : y + count], acc[number], own)


@by_shape()
def heads(k: Kernel, op: g.Heads) -> None:
    """Heads that are no whole blocks of channels: their lanes move, and those left over become zeros.

    Heads are channels of one image, where each begins a block, from or to channels that follow one another.
    """
    _move_heads(k, op, k.fastest(_move_heads, blocks_together(k.output.shape["n"] * k.output.shape["b"])))


def _move_heads(k: Kernel, op: g.Heads, blocks: int) -> None:
    k.need("overwrite", batch=1)
    (n, c, *_), (count, width, *_) = op.x.shape, op.output.shape
    images, each, block = min(n, count), min(c, width), k.cfg.block_in
    count, whole = max(n, count) // images, -(-each // block) * block
    apart = {"n": images, "b": count * whole // block}
    x, out = k.input(0), k.output
    if n > images:
        places = tuple((0, head * whole + j) for head in range(count) for j in range(each))
        x = x.merged("b", "n", "b").split("b", **apart)
    else:
        places = tuple((0, head * each + j) if j < each else None for head in range(count) for j in range(whole))
        out = out.merged("b", "n", "b").split("b", **apart)
    move_images(k, Move(places), [x], out, blocks)


@by_shape()
def gather(k: Kernel, op: g.Gather) -> None:
    """Rows of a constant table, as embeddings of words: a load for each, by the symbol of its index, and one store.

    It pays where norms and attention follow on the accelerator.
    """
    need_roots(k)
    table, where = op.inputs
    if table.data is None or table.dtype != "int8" or len(table.shape) != 2 or op.axis:
        raise Unfit("it is not a row of a constant int8 matrix")
    if where.dtype != "int32" or len(where.shape) != 1 or where.shape[0] > k.cfg.block_in or where.data is not None:
        raise Unfit(f"it takes {where.dtype} {where.shape} of rows: must be an int32 input of at most {k.cfg.block_in}")
    refuse(table.shape[0] > MOST_LIMIT, f"a table of {table.shape[0]} rows: at most {MOST_LIMIT}")
    rows, out = k.packed_constant("table", table.data), k.output
    found = k.tile(Mem.ACC, **out.shape)
    for number in range(where.shape[0]):
        k.load(found[number], rows[0].moved(k.symbol(1, number, step=rows.axis("n").step)))
    k.store(out, found)
