"""Images enlarged by whole factors, each pixel repeated, or a single image that becomes several."""

from __future__ import annotations

from itertools import product

import numpy as np

from .. import graph as g
from .language import Kernel, Unfit


def repeat(k: Kernel, op: g.Take) -> None:
    """Products with an identity write every pixel to all of its places, so that a tile of whole rows is one store.

    The tiles of an image that becomes several are stored more than once. Four stages of a schedule, one per phase,
    would be stored apart, pixel by pixel.
    """
    images, channels, *places = op.indices if len(op.x.shape) == 4 else ((), (0,))
    factors = [_factor(n, found) for n, found in zip(op.x.shape[2:], places)]
    k.need("overwrite", batch=1 if images else 0)
    if not places or channels or op.x.dtype != "int8" or not all(factors) or (images and op.x.shape[0] > 1):
        raise Unfit("it moves elements, other than by whole factors of an image that fits")
    x, (down, across), copies = k.input(0).merged("image", "n", "b"), factors, max(1, len(images))
    count, h, w = x.shape.values()
    most = min(h, k.slot // w, k.bank // (down * across * w))
    if not most:
        raise Unfit(f"it moves elements, in rows of {w}, repeated {down} x {across} times, that do not fit")
    out = k.array(k.output.buffer, copy=copies, image=count, y=h * down, x=w * across)
    one = k.identity()
    xs, ys = k.slots(most * w), k.banks(most * w * down * across)
    for image, first in product(range(count), range(0, h, most)):
        tile = xs.load(x[image, first : min(first + most, h)])
        y = ys.next(h=tile.shape["h"], down=down, w=w, across=across)
        y[...] = (tile @ one).over("h w down across")
        y = y.merged("y", "h", "down").merged("x", "w", "across")
        for copy in range(copies):
            k.store(out[copy, image, first * down : first * down + y.shape["y"]], y)


def _factor(size: int, found: tuple[int, ...]) -> int:
    """How often each of `size` indices comes; 0 if not all equally often, in order."""
    if not found:
        return 1
    factor = len(found) // size
    return factor if found == tuple(np.repeat(np.arange(size), factor).tolist()) else 0
