"""Moves of channels, beside cuts and padding of images: products with matrices of zeros and ones.

Channels that do not begin a block lie in other lanes before than after. Every block of the output is the sum of a few
blocks of the inputs, each multiplied by the matrix that takes its lanes to theirs. Channels of a constant value get it
from the store. Loads skip rows and add padding, micro-ops skip columns. In a schedule all blocks have equal terms.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np

from .. import graph as g
from ..graph.integer_forms import Requant
from ..graph.movement import Source
from .language import Array, Kernel, Unfit, cuts, every
from .recording import whole_blocks

_TOGETHER = (1, 2, 3, 4, 8, 16)  # blocks of the output that may share a tile


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
    """(first place, step, padding before, behind) of rows or columns; None where they are not of one input in steps."""
    kept = [k for k, source in enumerate(sources) if source]
    found = [source for source in sources if source]
    first, step = found[0][1], found[1][1] - found[0][1] if len(found) > 1 else 1
    if step < 1 or found != [(0, first + k * step) for k in range(len(found))]:
        return None
    return first, step, kept[0], len(sources) - 1 - kept[-1]


def _terms(move: Move, first: int, lanes: int) -> tuple[dict[Source, bytes], bytes]:
    """(The matrix of each block of the inputs whose products add up to a block of the output, what the store adds).

    The block begins with channel `first`; matrices are int8 (lanes, lanes), what is added int32 (lanes,).
    """
    matrices = defaultdict[Source, np.ndarray](partial(np.zeros, (lanes, lanes), np.int8))
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
    first = op.x.shape[1] // k.cfg.block_in if inputs[0].shares(out) else 0  # blocks that nothing is added to
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
    if not rows:
        raise Unfit(f"rows of {width} pixels, {wide} with their padding, of all channels that they need, do not fit")

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
