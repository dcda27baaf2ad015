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
    from_host = {t.name for t in graph.inputs}
    for op in graph.ops:
        if isinstance(op, (g.Recode, g.Transpose, g.Reshape)) and op.x.name in from_host:
            from_host.add(op.output.name)

    def convolution(op: g.QConv2d, readers: g.Readers, producers: Producers) -> list[g.Operator] | None:
        if op.weight.dtype != np.int16:
            return None
        split = _split(op, cfg)
        if op.x.name in from_host and isinstance(split[-1], g.QConv2d) and may_fold(split[-1], cfg):
            split = [HostRows(t.name, t.inputs, t.output, t.indices) if isinstance(t, g.Take) else t for t in split]
        return split

    def dense(op: g.QDense, readers: g.Readers, producers: Producers) -> list[g.Operator] | None:
        return _split_dense(op, cfg) if op.weight.dtype == np.int16 else None

    return rewrite(graph, Rule(g.QConv2d, convolution), Rule(g.QDense, dense))


def _split_dense(op: g.QDense, cfg: Config) -> list[g.Operator]:
    """A dense layer as a convolution of images of one pixel."""
    x, y = (replace(t, name=f"{op.name}.{k}", shape=(*t.shape, 1, 1)) for k, t in enumerate((op.x, op.output)))
    facts = {"low": op.low, "high": op.high, **op.scaling}
    parameters = op.weight[..., None, None], op.weight_scale, op.bias
    found = _split(g.QConv2d(f"{op.name}.image", (x,), y, *parameters, **facts), cfg)
    if len(found) == 1:
        return [op]
    return [g.Reshape(x.name, (op.x,), x), *found, g.Reshape(op.name, (y,), op.output)]


def _split(op: g.QConv2d, cfg: Config) -> list[g.Operator]:
    n, c, h, w = op.x.shape
    top, left, bottom, right = op.pads
    twice = replace(op.x, name=f"{op.name}.rows", shape=(n, c, 2 * h, w), data=None)
    rows = tuple(np.repeat(np.arange(h), 2).tolist())
    take = g.Take(twice.name, (op.x,), twice, ((), (), rows, ()))
    if op.dilations[0] > 1 or 2 * max(top, bottom) > most_padding(cfg) or language.why_not(repeat, take, cfg):
        return [op]
    if op.weight.max() > _LARGEST:
        return [op]
    o, i, kh, kw = op.weight.shape
    first = np.clip(op.weight, -128, 127)
    weight = np.stack([first, op.weight - first], 3).reshape(o, i, 2 * kh, kw).astype(np.int8)
    conv = WideConv(
        op.name,
        (twice,),
        op.output,
        weight,
        op.weight_scale,
        op.bias,
        op.low,
        op.high,
        (2 * op.strides[0], op.strides[1]),
        (2 * top, left, 2 * bottom, right),
        op.dilations,
        op.groups,
        work=op.macs,
        **op.scaling,
    )
    return [take, conv]
