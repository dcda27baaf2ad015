"""Means over rows, columns or both, and over channels: products with an identity, or with ones, add the elements up.

Loads of the input scratchpad run ahead of the array, which adds one entry per cycle; a schedule of the ALU waits for
its loads and takes two.
"""

from __future__ import annotations

from functools import singledispatch
from itertools import product

import numpy as np

from .. import graph as g
from ..graph.integer_forms import Requant, mean_store
from .language import TILE, Kernel, Unfit

_PARTS = 4  # at least, of an image in so many blocks: the loads of one overlap the sums of another


def mean_of_pixels(k: Kernel, op: g.Mean | g.Pool) -> None:
    """A mean over rows, columns or both, or of windows where one is all of the image.

    The sums stay in the accumulators, so that an image may be larger than any scratchpad.
    """
    axes = tuple(sorted(op.axes))
    if len(op.x.shape) != 4 or not axes or not set(axes) <= {2, 3} or len(op.output.shape) == 3:
        raise Unfit(f"mean over axes {axes} of {len(op.x.shape)} dimensions: only over rows and columns of images")
    x, out = k.input(0), k.output.merged("y")
    n, blocks, h, w = x.shape.values()
    # entries (outer, count, inner) are added up over `count`
    sizes = {(2, 3): (n * blocks, h * w, 1), (3,): (n * blocks * h, w, 1), (2,): (n * blocks, h, w)}
    outer, count, inner = sizes[axes]
    x = x.merged("all").split("all", outer=outer, count=count, inner=inner)
    most, each = min(outer, k.slot // (count * inner), k.bank // inner), count
    if most == 0:
        most, each = 1, min(count, k.slot // inner)
    else:
        most = -(-outer // max(-(-outer // most), min(outer, _PARTS)))
    one, par = k.identity(), k.parameters(mean_requant(op, k.rec.contract))
    xs, ys = k.slots(most * each * inner), k.banks(most * inner)
    for first in range(0, outer, most):
        these = slice(first, min(first + most, outer))
        y = ys.next(outer=these.stop - these.start, inner=inner)
        y[...] = 0
        for begin in range(0, count, each):
            y += xs.load(x[these, begin : min(begin + each, count)]) @ one
        k.store(out[these.start * inner : these.stop * inner], y.merged("y"), par)


def mean_of_channels(k: Kernel, op: g.Mean) -> None:
    """A mean over channels, pixel by pixel: products with ones add the lanes of all blocks up."""
    k.need("overwrite", batch=1)
    if tuple(op.axes) != (1,) or len(op.x.shape) != 4 or len(op.output.shape) != 4:
        raise Unfit(f"mean over axes {op.axes} of {len(op.x.shape)} dimensions: only over channels of images")
    x, out = (
        k.input(0).merged("pixel", "h", "w"),
        k.output.merged("b pixel", "b", "h", "w").named(**{"b pixel": "pixel"}),
    )
    images, blocks, pixels = x.shape.values()
    each = min(pixels, max(1, min(TILE, k.slot) // blocks))
    ones = np.ones((2, k.cfg.block_out, k.cfg.block_in), np.int8)
    ones[1, :, op.x.shape[1] - (blocks - 1) * k.cfg.block_in :] = 0  # lanes behind the last channel
    add = k.matrices("ones", ones)
    par = k.parameters(mean_requant(op, k.rec.contract))
    xs, ys = k.slots(blocks * each), k.banks(each)
    for image, first in product(range(images), range(0, pixels, each)):
        these = slice(first, min(first + each, pixels))
        tile = xs.load(x[image, :, these])
        y = ys.next(pixel=these.stop - first)
        y[...] = tile[blocks - 1] @ add[1]
        if blocks > 1:
            y += (tile[: blocks - 1] @ add[0]).over("b pixel")
        k.store(out[image, these], y, par)


@singledispatch
def mean_requant(op: g.Mean, contract: str) -> Requant:
    """What the store does with the sums of a mean."""
    return Requant(-op.count * op.x.zero_point, *op.multipliers, op.output.zero_point)


@mean_requant.register
def _(op: g.ExactAveragePool, contract: str) -> Requant:
    return mean_store(op.shape.taps, op.low, op.high, op.ties_up)


@mean_requant.register
def _(op: g.AveragePool, contract: str) -> Requant:
    bias = -op.shape.taps * op.x.zero_point
    return Requant(bias, *op.multipliers, op.output.zero_point, op.low, op.high, contract)
