"""Layouts of the images at the beginning of a network: by the host, or as they lie in memory.

The accelerator quantises a float32 image where it lies if a convolution reads NHWC rows (compiler/kernels/fold.py), and
the scale has exact steps (compiler/kernels/quantise.py); else the host quantises it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import islice

from ...hw.config import Config
from ...hw.units import striped
from .. import cost
from .. import graph as g
from ..conv_shape import ConvShape
from ..graph.rewrite import Producers, Rule, rewrite, transposes, without_unread
from ..kernels import language, table
from ..kernels.conv import conv2d
from ..kernels.fold import Fold, fold_in_place, folds, may_fold
from ..kernels.language import Unfit
from ..kernels.two_units import Layer
from ..target.host import HostModel
from .sequences import TO_NCHW


def brought(graph: g.Graph) -> set[str]:
    """The names of the graph's inputs, and of the tensors that the host computes of them before the first layers."""
    found = {t.name for t in graph.inputs}
    for op in graph.ops:
        names = {t.name for t in op.inputs if t.data is None}
        if names and names <= found and (op.copies or op.x.dtype != "int8"):
            found.add(op.output.name)
    return found


def folds_of(graph: g.Graph, cfg: Config) -> dict[str, Fold]:
    """The layouts of the images of the first convolutions, by the names of these operators."""
    given, moves = brought(graph), {op.output.name for op in graph.ops if transposes(op, TO_NCHW)}
    quantised = {op.output.name for op in graph.of(g.QuantizeImage)}
    found = dict[str, Fold | None]()
    for op in graph.of(g.QConv2d):
        if op.x.name in quantised:
            found[op.name] = fold_in_place(op, cfg)
        elif op.x.name in given:
            found[op.name] = cheapest_layout(op, cfg, nhwc=op.x.name in moves)
    return {name: fold for name, fold in found.items() if fold is not None}


def quantised_images(graph: g.Graph, cfg: Config) -> g.Graph:
    """A float32 image is quantised by the launch that reads it, in one operator with the change of its layout."""

    def image(op: g.Quantize, readers: g.Readers, producers: Producers) -> list[g.Operator] | None:
        move, reader = producers.get(op.x.name), readers.only(op)
        if not op.ties_away or move is None or readers.only(move) is not op or not transposes(move, TO_NCHW):
            return None
        new = g.QuantizeImage(op.name, (move.x,), op.output)
        in_place = isinstance(reader, g.QConv2d) and fold_in_place(reader, cfg)
        return [new] if in_place and not table.refusal(new, cfg) else None

    found = rewrite(graph, Rule(g.Quantize, image))
    return found if found is graph else without_unread(found)


_TRIED = 3  # layouts that the timing model compares
_ALIKE = 1.02  # times of a layer alone that say nothing of it in a network: there others hide its ends


def cheapest_layout(op: g.QConv2d, cfg: Config, *, nhwc: bool) -> Fold | None:
    """The layout with which `op` and half of the host's work take the least time; None for blocks of channels.

    Half, as one image waits for the host, but in a sequence of images the host lays out the next one meanwhile. With
    `nhwc`, or one channel, the image may be read in place. The timing model compares the most promising layouts.
    """
    if not may_fold(op, cfg):
        return None
    x, out = (replace(t, shape=(1, *t.shape[1:])) for t in (op.x, op.output))
    one = replace(op, inputs=(x,), output=out)

    def needed(fold: Fold) -> float:
        try:
            return seconds(one.shape, cfg, fold, language.cycles(conv2d, one, cfg, fold))
        except Unfit:
            return math.inf

    promising = ((fold, needed(fold)) for fold in _promising(one.shape, op.ternary, cfg))
    made = dict(islice((each for each in promising if each[1] < math.inf), _TRIED))
    best = next((fold for fold in made if made[fold] <= _ALIKE * min(made.values())), None)
    in_place = fold_in_place(one, cfg) if nhwc or op.x.shape[1] == 1 else None
    if in_place is None or _bound(one.shape, op.ternary, cfg, in_place) >= _bound(one.shape, op.ternary, cfg, None):
        return best
    return in_place if best is None or needed(in_place) < made[best] else best


def seconds(shape: ConvShape, cfg: Config, fold: Fold | None, cycles: float) -> float:
    """The time of `cycles` of the accelerator, plus half of the host's time for laying out an image."""
    if fold is not None and fold.in_place:
        return cycles / cost.CLOCK
    pixels = math.prod(shape.size)
    entries = pixels if fold is None else fold.laid_out * fold.entries
    return cycles / cost.CLOCK + HostModel().moved_seconds(pixels * shape.c + entries * cfg.inp_entry_bytes) / 2


@cost.cached(64)
def _promising(shape: ConvShape, ternary: int, cfg: Config) -> tuple[Fold, ...]:
    """Layouts by the host whose bound of the time is below that of blocks of channels, the lowest bound first."""
    bounds = {fold: _bound(shape, ternary, cfg, fold) for fold in folds(shape, cfg)}
    blocks = _bound(shape, ternary, cfg, None)
    return tuple(sorted((fold for fold in bounds if bounds[fold] < blocks), key=lambda fold: bounds[fold]))


def _bound(shape: ConvShape, ternary: int, cfg: Config, fold: Fold | None) -> float:
    """A lower bound of the time of one image: the loads of weights, then the longer of products and loads of inputs."""
    layer = Layer.of(shape, ternary, fold, cfg)
    entries = layer.inputs * math.prod(layer.reads.size)
    weights = layer.gemm * layer.inputs * len(layer.reads.terms)
    bound = cost.moved(striped(cfg), weights * cfg.wgt_entry_bytes)
    bound += cost.roofline(striped(cfg), layer.products, entries * cfg.inp_entry_bytes)
    return seconds(shape, cfg, fold, bound)
