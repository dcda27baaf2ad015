"""Images at the beginning of a network: the host lays them out for the first convolutions, or leaves them as they lie.

The host would touch each value of a float32 image, four bytes of it; the accelerator quantises it as it is. That needs
a convolution that reads NHWC rows (compiler/kernels/fold.py), and a scale with exact steps
(compiler/kernels/quantise.py).
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
    """The names of the graph's inputs, and of what the host makes of them before the first layers."""
    found = {t.name for t in graph.inputs}
    for op in graph.ops:
        names = {t.name for t in op.inputs if t.data is None}
        if names and names <= found and (op.copies or op.x.dtype != "int8"):
            found.add(op.output.name)
    return found


def fold_of(op: g.QConv2d, cfg: Config, *, nhwc: bool) -> Fold | None:
    """The layout with which `op` is fastest; None for blocks of channels. With `nhwc` it may stay as it lies."""
    return cheapest_layout(op, cfg, nhwc=nhwc or op.x.shape[1] == 1)


def folds_of(graph: g.Graph, cfg: Config) -> dict[str, Fold]:
    """How the images of the first convolutions will be laid out, by the names of these."""
    given, moves = brought(graph), {op.output.name for op in graph.ops if transposes(op, TO_NCHW)}
    quantised = {op.output.name for op in graph.of(g.QuantizeImage)}
    found = dict[str, Fold | None]()
    for op in graph.of(g.QConv2d):
        if op.x.name in quantised:
            found[op.name] = fold_in_place(op, cfg)
        elif op.x.name in given:
            found[op.name] = fold_of(op, cfg, nhwc=op.x.name in moves)
    return {name: fold for name, fold in found.items() if fold is not None}


def quantised_images(graph: g.Graph, cfg: Config) -> g.Graph:
    """float32 images are quantised in the launch that reads them: with their change of layout one operator."""

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
    """The layout with which `op` takes the least time, and half of the modelled host's; None: channel blocks do.

    One image waits for the host; in a row of them it lays out the next one while the accelerator computes. With `nhwc`
    the image is one in memory, so that it may be read in place. The timing model knows those that promise most.
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
    in_place = fold_in_place(one, cfg) if nhwc else None
    if in_place is None or _bound(one.shape, op.ternary, cfg, in_place) >= _bound(one.shape, op.ternary, cfg, None):
        return best
    return in_place if best is None or needed(in_place) < made[best] else best


def seconds(shape: ConvShape, cfg: Config, fold: Fold | None, cycles: float) -> float:
    """The time of `cycles` of the accelerator, and half of that in which the modelled host lays out an image."""
    if fold is not None and fold.in_place:
        return cycles / cost.CLOCK
    pixels = math.prod(shape.size)
    entries = pixels if fold is None else fold.laid_out * fold.entries
    return cycles / cost.CLOCK + HostModel().moved_seconds(pixels * shape.c + entries * cfg.inp_entry_bytes) / 2


@cost.cached(64)
def _promising(shape: ConvShape, ternary: int, cfg: Config) -> tuple[Fold, ...]:
    """The layouts by the host, those with the least bounds of their time first, below that of blocks of channels."""
    bounds = {fold: _bound(shape, ternary, cfg, fold) for fold in folds(shape, cfg)}
    blocks = _bound(shape, ternary, cfg, None)
    return tuple(sorted((fold for fold in bounds if bounds[fold] < blocks), key=lambda fold: bounds[fold]))


def _bound(shape: ConvShape, ternary: int, cfg: Config, fold: Fold | None) -> float:
    """The time that one image takes at least, with a fold or as blocks of channels: weights, then products or loads."""
    layer = Layer.of(shape, ternary, fold, cfg)
    entries = layer.inputs * math.prod(layer.reads.size)
    weights = layer.gemm * layer.inputs * len(layer.reads.terms)
    bound = cost.moved(striped(cfg), weights * cfg.wgt_entry_bytes)
    bound += cost.roofline(striped(cfg), layer.products, entries * cfg.inp_entry_bytes)
    return seconds(shape, cfg, fold, bound)
