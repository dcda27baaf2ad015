"""Rotary embeddings: pairs of elements turned by an angle that depends on the position."""

from __future__ import annotations

import numpy as np

from ...hw.isa import Mem
from ...runtime import layout
from ...runtime.hostops.attention import TURN
from .. import graph as g
from .language import Kernel, Unfit, by_shape
from .roots import need_roots


@by_shape()
def rotary(k: Kernel, op: g.Rotate) -> None:
    """`(a * cos - b * sin, b * cos + a * sin)` of the halves a and b of each chunk of a row.

    Products with cosines are made in one bank of accumulators, those with sines in the other one; then halves of the
    second are added to the others of the first. The position chooses the angles that are loaded.
    """
    need_roots(k)
    block, tokens, half = k.cfg.block_in, op.x.shape[0], op.cosine.shape[1]
    if half % block:
        raise Unfit(f"halves of {half} elements: must be whole blocks of {block}")
    x, out, width = k.input(0).named(n="row"), k.output.named(n="row"), half // block
    angles = k.known("angles", _angles(op, block), row=len(op.cosine), part=3, w=width)
    angles = angles.moved(k.symbol(1, step=tokens * angles.axis("row").step))
    par = k.constant(Mem.PAR, "turn", _turn(k), kept=True)
    blocks, chunks = x.axis("b").extent, x.axis("b").extent // (2 * width)
    most = max(1, min(tokens, k.bank // (blocks + 2 * width)))
    row, angle = {"row": most, "b": blocks}, {"row": most, "part": 2, "w": width}
    by_cosine, sines = k.tiles(Mem.ACC, row, angle, high=k.bank)
    by_sine, cosines = k.tiles(Mem.ACC, row, {"row": most, "w": width}, low=k.bank)
    for x_rows, out_rows, turns in zip(x.parts(most), out.parts(most), angles[:tokens].parts(most)):
        count = x_rows.shape["row"]
        cosine, sine = k.load(cosines[:count], turns[:, 0]), k.load(sines[:count], turns[:, 1:])
        c, s = k.load(by_cosine[:count], x_rows), k.load(by_sine[:count], x_rows)
        products = c.split("b", half=2 * chunks, w=width)
        products *= cosine
        products = s.split("b", chunk=chunks, b=2 * width)
        products *= sine.merged("b", "part", "w")
        halves = {"chunk": count * chunks, "half": 2, "w": width}
        turned, others = (y.merged("all").split("all", **halves) for y in (c, s))
        with k.together():
            turned[:, 0] += others[:, 1]
            turned[:, 1] += others[:, 0]
        k.store(out_rows, c, par)


def _angles(op: g.Rotate, block: int) -> np.ndarray:
    """int32 (positions, 3 blocks): cosines, then the sines for first halves, then those for second halves."""
    cosine, sine = op.cosine.astype(np.int32), op.sine.astype(np.int32)
    return np.stack([cosine, sine, -sine], axis=1).reshape(len(cosine), -1, 1, block)


def _turn(k: Kernel) -> np.ndarray:
    """The parameters that remove the fraction of the angles."""
    facts = {"zero_point": 0, "low": -128, "high": 127, "contract": "double"}
    return layout.pack_par(k.cfg, bias=np.zeros(k.cfg.block_out, int), multiplier=TURN[0], exponent=TURN[1], **facts)
