"""Heads that are no whole blocks of channels: their lanes move, and those left over become zeros."""

from __future__ import annotations

from .. import graph as g
from .channels import Move, blocks_together, move_images
from .language import Kernel, by_shape


@by_shape()
def heads(k: Kernel, op: g.Heads) -> None:
    """Heads are channels of one image, where each begins a block, from or to channels that follow one another."""
    _move(k, op, k.fastest(_move, blocks_together(k.output.shape["n"] * k.output.shape["b"])))


def _move(k: Kernel, op: g.Heads, blocks: int) -> None:
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
