"""Layouts of the images at the beginning of a network: by the host, or as they lie in memory.

The accelerator makes int8 of a float32 or uint8 image where it lies, NHWC or NCHW, if a convolution reads its rows
(compiler/kernels/fold.py), the scale of a float32 image has exact steps (compiler/kernels/quantise.py), and the host
would take longer. Else the host does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from ...hw.config import Config
from ...hw.units import striped
from .. import cost
from .. import graph as g
from ..conv_shape import ConvShape
from ..graph.rewrite import Producers, Rule, moved_from, moved_places, rewrite, transposes, without_unread
from ..kernels import language, table
from ..kernels.conv import conv2d
from ..kernels.fold import Fold, fold_in_place, folds, may_fold
from ..kernels.language import Unfit
from ..kernels.recording import AbsorbedRows, stand_in
from ..kernels.two_units import Layer
from ..target.host import HostModel, tabled
from .rewrites import HostRows
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
    found: dict[str, Fold | None] = {**folds_in_launch(graph.ops, cfg)}
    for op in graph.of(g.QConv2d):
        if op.name not in found and op.x.name in given:
            nhwc = op.x.name in moves
            found[op.name] = cheapest_layout(op, cfg, nhwc=nhwc, planes=not nhwc)
    return {name: fold for name, fold in found.items() if fold is not None}


def folds_in_launch(ops: Sequence[g.Operator], cfg: Config) -> dict[str, Fold]:
    """The layouts of images that operators of a launch leave as the host has them, by the names of their readers."""
    rows = {op.output.name: op.x.name for op in ops if isinstance(op, AbsorbedRows)}
    planes = {op.output.name: op.planes for op in ops if isinstance(op, g.HostImage)}
    found = dict[str, Fold | None]()
    for op in ops:
        if isinstance(op, g.QConv2d) and (image := rows.get(op.x.name, op.x.name)) in planes:
            found[op.name] = fold_in_place(op, cfg, planes=planes[image], copies=1 + (op.x.name in rows))
    return {name: fold for name, fold in found.items() if fold is not None}


def host_images(graph: g.Graph, cfg: Config) -> g.Graph:
    """A float32 or uint8 image becomes int8 in the launch that reads it, from the layout that it lies in."""
    of_bytes = any(t.dtype == "uint8" and len(t.shape) == 4 for t in graph.inputs)
    tables = tabled(graph).producers if of_bytes else {}

    def image(op: g.Operator, readers: g.Readers, producers: Producers) -> list[g.Operator] | None:
        reader, twice = readers.only(op), isinstance(op, HostRows)
        if not isinstance(reader, g.QConv2d) or op.output.dtype != "int8":
            return None
        new = _recoded(op.x if twice else op.output, f"{op.name}.image" if twice else op.name, tables)
        new = new or _quantised(op, readers, producers)
        fold = None if new is None else fold_in_place(reader, cfg, planes=new.planes, copies=1 + twice)
        if new is None or fold is None or table.refusal(new, cfg) or not _pays(new, reader, fold, cfg):
            return None
        if not twice:
            return [new]
        once = replace(new, output=replace(new.output, name=new.name))
        return [once, stand_in(AbsorbedRows, op, inputs=(once.output,))]

    found = rewrite(graph, Rule(g.Operator, image))
    return found if found is graph else without_unread(found)


def _recoded(y: g.Tensor, name: str, tables: Producers) -> g.RecodeImage | None:
    """What makes `y` of an image of uint8 values, where `tables` have a `Recode` for all that computes it."""
    moves, maker = list[g.Operator](), tables.get(y.name)
    while maker is not None and (maker.rearranges or (isinstance(maker, g.Lookup) and maker.same)):
        moves[:0] = [maker] if maker.rearranges else []
        maker = tables.get(maker.x.name)
    if not isinstance(maker, g.Recode):
        return None
    x, before = moved_from(maker.x, tables)
    if len(x.shape) != 4 or len(y.shape) != 4:
        return None
    places, moved = moved_places(x), moved_places(x, *before, *moves)
    planes = np.array_equal(moved, places)
    if planes or np.array_equal(moved, places.transpose(TO_NCHW)):
        return g.RecodeImage(name, (x,), y, planes)
    return None


def _quantised(op: g.Operator, readers: g.Readers, producers: Producers) -> g.QuantizeImage | None:
    """The image of float32 values that `op` quantises, or brings from NHWC to NCHW before or after that."""
    before = producers.get(op.x.name)
    if before is not None and readers.only(before) is not op:
        before = None
    first, move = (op, before) if isinstance(op, g.Quantize) else (before, op)
    if not isinstance(first, g.Quantize) or first.reciprocal or len(op.x.shape) != 4:
        return None
    if move is not None and before is not None and transposes(move, TO_NCHW):
        return g.QuantizeImage(op.name, (before.x,), op.output, False, first.ties_away)
    return g.QuantizeImage(op.name, (op.x,), op.output, True, first.ties_away) if first is op else None


def _pays(new: g.HostImage, reader: g.QConv2d, fold: Fold, cfg: Config) -> bool:
    """True if a launch converts the image and reads it in place in less time than the host would take.

    It does where the image is of float32 values, unless NCHW rows need many products.
    """
    if isinstance(new, g.QuantizeImage) and not new.planes:
        return True
    best = cheapest_layout(reader, cfg, nhwc=not new.planes, planes=new.planes)
    by_host = HostModel().seconds(new) + seconds(reader.shape, cfg, best, table.cycles(reader, cfg, best))
    return (table.cycles(new, cfg) + table.cycles(reader, cfg, fold)) / cost.CLOCK < by_host


_TRIED = 3  # layouts that the timing model compares
_ALIKE = 1.02  # times of a layer alone that say nothing of it in a network: there others hide its ends


def cheapest_layout(op: g.QConv2d, cfg: Config, *, nhwc: bool, planes: bool = False) -> Fold | None:
    """The layout with which `op` and half of the host's work take the least time; None for blocks of channels.

    Half, as one image waits for the host, but in a sequence of images the host lays out the next one meanwhile. With
    `nhwc`, with `planes` (NCHW) or one channel, the image may be read in place. The timing model compares the most
    promising layouts.
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
    in_place = fold_in_place(one, cfg, planes=planes) if nhwc or planes or op.x.shape[1] == 1 else None
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
