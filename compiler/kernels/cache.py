"""Caches of attention, written in place at the position, a symbol: with rows, or with a block of the latest values."""

from __future__ import annotations

import numpy as np

from ...hw.isa import Mem
from .. import graph as g
from .language import Kernel, Unfit, by_shape
from .roots import need_roots


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
