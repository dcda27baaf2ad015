"""Concatenations and slices as copies of whole entries, by way of the accumulators."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from .. import graph as g
from .language import TILE, Array, Kernel, Unfit, by_shape
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
        parts = [t.shape[1] for t in op.inputs[:-1] if t.shape[1] % k.cfg.block_in]
        raise Unfit(f"{parts[0]} channels are not whole blocks")
    inputs, axis = [k.input(number) for number in range(len(op.inputs))], "nbhw"[op.axis]
    ends = accumulate(x.shape[axis] for x in inputs)
    targets = [k.output.at(**{axis: slice(end - x.shape[axis], end)}) for x, end in zip(inputs, ends)]
    _copy(k, [(x, target) for x, target in zip(inputs, targets) if not x.shares(target)])


@by_shape()
def cut(k: Kernel, op: g.StridedSlice) -> None:
    """Copies of the part that a slice without steps takes, whole blocks of channels of all images of a batch."""
    block, same = k.cfg.block_in, op.x.shape[0] == op.output.shape[0]
    if len(op.x.shape) not in (2, 4) or op.x.dtype != "int8" or not (same or k.cfg.batch == 1):
        raise Unfit(f"{op.x.dtype} {op.x.shape} to {op.output.shape}")
    if any(step != 1 and n > 1 for step, n in zip(op.strides, op.output.shape)):
        raise Unfit(f"steps of {op.strides}")
    if op.begin[1] % block:
        raise Unfit(f"channels from {op.begin[1]} on: blocks have {block}")
    x, begins = k.input(0), [op.begin[0], op.begin[1] // block, *op.begin[2:]]
    part = tuple(slice(begin, begin + n) for begin, n in zip(begins, k.output.shape.values()))
    _copy(k, [(x[part], k.output)])


def _copy(k: Kernel, parts: list[tuple[Array, Array]]) -> None:
    """Copy arrays to arrays with the same axes, in tiles of which two in each bank are loaded and stored by turns."""
    k.need("acc8")
    size = min(TILE, k.bank // 2, max(64, -(-sum(x.size for x, _ in parts) // 4)))
    ys = k.banks(size, places=2)
    for x, y in parts:
        for piece, target in zip(_pieces(x, size), _pieces(y, size)):
            k.store(target, ys.load(piece))


def _pieces(x: Array, size: int) -> Iterator[Array]:
    """Its parts of up to `size` entries, along the first axes."""
    inner = x.size // x.axes[0].extent
    if inner <= size:
        yield from x.parts(size // inner)
    else:
        for k in range(x.axes[0].extent):
            yield from _pieces(x[k], size)
