"""Which layout of an image of few channels takes the least time, of the accelerator and of the host."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import islice

from ...hw.config import Config
from ...hw.units import striped
from .. import cost
from .. import graph as g
from ..conv_shape import ConvShape
from ..target.host import HostModel
from . import language
from .conv import conv2d
from .fold import Fold, fold_in_place, folds, may_fold
from .language import Unfit
from .split_tiles import Layer

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
    if in_place is not None and _pays(one.shape, op.ternary, cfg, in_place):
        return in_place if best is None or needed(in_place) < made[best] else best
    return best


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


def _pays(shape: ConvShape, ternary: int, cfg: Config, fold: Fold) -> bool:
    return _bound(shape, ternary, cfg, fold) < _bound(shape, ternary, cfg, None)


def _bound(shape: ConvShape, ternary: int, cfg: Config, fold: Fold | None) -> float:
    """The time that one image takes at least, with a fold or as blocks of channels: weights, then products or loads."""
    layer = Layer.of(shape, ternary, fold, cfg)
    entries = layer.inputs * math.prod(layer.reads.size)
    weights = layer.gemm * layer.inputs * len(layer.reads.terms)
    bound = cost.moved(striped(cfg), weights * cfg.wgt_entry_bytes)
    bound += cost.roofline(striped(cfg), layer.products, entries * cfg.inp_entry_bytes)
    return seconds(shape, cfg, fold, bound)
