"""Layers whose weights need more than int8: two int8 parts of every weight, each on a copy of its row.

Weights of uint8 files, less their zero point, are -255..255. With every row of the image twice, and two rows of the
kernel for one, the first holds what int8 can hold of a weight, the second the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...hw.config import Config
from .. import graph as g
from ..graph.rewrite import Producers, Rule, rewrite
from ..kernels import language
from ..kernels.fold import may_fold
from ..kernels.repeat import repeat
from ..kernels.stand_ins import stand_in
from ..limits import most_padding

_LARGEST = 2 * 127  # of two parts


@dataclass(frozen=True, eq=False)
class HostRows(g.Take):
    """Rows of an image of few channels twice, which the host lays out (compiler/kernels/folded_conv.py)."""


@dataclass(frozen=True, eq=False)
class WideConv(g.StandIn, g.QConv2d):
    """A convolution of rows that are there twice."""


def split_weights(graph: g.Graph, cfg: Config) -> g.Graph:
    """Weights beyond int8 become two int8 parts, where `cfg` can repeat rows and pad twice as many."""
    inputs = {t.name for t in graph.inputs}

    def convolution(op: g.QConv2d, readers: g.Readers, producers: Producers) -> list[g.Operator] | None:
        if (found := _split(op, cfg)) is None:
            return None
        (take, conv), source = found, op.x
        while (made := producers.get(source.name)) is not None and (made.rearranges or made.x.dtype == "uint8"):
            source = made.x
        if source.name in inputs and may_fold(conv, cfg):
            take = stand_in(HostRows, take)
        return [take, conv]

    def dense(op: g.QDense, readers: g.Readers, producers: Producers) -> list[g.Operator] | None:
        """A convolution of images of one pixel."""
        ends = op.x, op.output
        x, y = (replace(t, name=f"{op.name}.{k}", shape=(*t.shape, 1, 1), data=None) for k, t in enumerate(ends))
        parameters = op.weight[..., None, None], op.weight_scale, op.bias, op.low, op.high
        found = _split(g.QConv2d(f"{op.name}.image", (x,), y, *parameters, **op.scaling), cfg)
        return found and [g.Reshape(x.name, (op.x,), x), *found, g.Reshape(op.name, (y,), op.output)]

    return rewrite(graph, Rule(g.QConv2d, convolution), Rule(g.QDense, dense))


def _split(op: g.QConv2d, cfg: Config) -> tuple[g.Take, WideConv] | None:
    """Rows twice, and the convolution of them; None where weights need no two parts, or have none."""
    if op.weight.dtype != np.int16 or op.weight.max() > _LARGEST:
        return None
    n, c, h, w = op.x.shape
    top, left, bottom, right = op.pads
    twice = replace(op.x, name=f"{op.name}.rows", shape=(n, c, 2 * h, w), data=None)
    take = g.Take(twice.name, (op.x,), twice, ((), (), tuple(np.repeat(np.arange(h), 2).tolist()), ()))
    if op.dilations[0] > 1 or 2 * max(top, bottom) > most_padding(cfg) or language.why_not(repeat, take, cfg):
        return None
    o, i, kh, kw = op.weight.shape
    first = np.clip(op.weight, -128, 127)
    weight = np.stack([first, op.weight - first], 3).reshape(o, i, 2 * kh, kw).astype(np.int8)
    geometry = {"strides": (2 * op.strides[0], op.strides[1]), "pads": (2 * top, left, 2 * bottom, right)}
    return take, stand_in(WideConv, op, inputs=(twice,), weight=weight, work=op.macs, **geometry)
