"""Resizes of images: repeated pixels, and bilinear resizes whose weights are int8 multiples of a power of two.

Products with multiples of an identity write every pixel of a tile of whole rows, so that one store takes the tile.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from ...runtime.hostops.resize import ONE, integer_positions, real_positions
from .. import graph as g
from ..graph.integer_forms import mean_store
from .language import Kernel, Unfit, equal_parts, every, refuse

_WEIGHTS = "its weights are no int8 multiples of a power of two"


Taps = tuple[tuple[int, int], ...]  # (place in the input, weight)


@dataclass(frozen=True)
class Interpolation:
    """One axis of a resize: the taps of each output, whose weights add up to `denominator`, a power of two.

    Outputs `period` apart read inputs `step` apart with equal weights, but at the ends.
    """

    period: int
    step: int
    denominator: int
    taps: tuple[Taps, ...]

    @staticmethod
    def of(op: g.ResizeBilinear, k: int) -> Interpolation:
        """Axis `k` of the image: 0 for rows, 1 for columns. Raises `Unfit` where weights have no common denominator."""
        size, out = op.x.shape[2 + k], op.output.shape[2 + k]
        positions = integer_positions if op.offset is None else real_positions
        low, high, upper = positions(size, out, op.align_corners, op.half_pixel_centers)
        upper = np.asarray(upper, np.float64) * (1 if op.offset is None else ONE)
        refuse((upper % 1).any(), _WEIGHTS)
        parts = zip(low.tolist(), high.tolist(), upper.astype(int).tolist())
        weights = [Counter({a: ONE - u}) + Counter({b: u}) for a, b, u in parts]  # without those that are 0
        unit, common = math.gcd(ONE, *(w for found in weights for w in found.values())), math.gcd(size, out)
        taps = (tuple((place, w // unit) for place, w in found.items()) for found in weights)
        return Interpolation(out // common, size // common, ONE // unit, tuple(taps))

    def part(self, first: int, count: int) -> Interpolation:
        """These outputs alone."""
        return replace(self, taps=self.taps[first : first + count])

    @property
    def window(self) -> tuple[int, int]:
        """(first input, number of inputs) that the outputs read."""
        places = [place for taps in self.taps for place, _ in taps]
        return min(places), max(places) + 1 - min(places)

    @property
    def runs(self) -> list[tuple[int, int, Taps]]:
        """The outputs as few runs, those a period apart that are alike: (first, how many, taps of the first)."""
        alike = defaultdict[tuple[int, Taps], list[int]](list)
        for number, taps in enumerate(self.taps):
            periods, phase = divmod(number, self.period)
            alike[phase, tuple((place - periods * self.step, weight) for place, weight in taps)].append(number)
        runs = (alike[key] for key in sorted(alike, key=lambda key: key[0]))
        return [(numbers[0], len(numbers), self.taps[numbers[0]]) for numbers in runs]


def resize_bilinear(k: Kernel, op: g.ResizeBilinear) -> None:
    """A resize, in tiles of whole rows of the output: products with multiples of an identity.

    A pixel is the sum of up to four neighbours, each times a small integer; the store divides. Pixels with equal
    weights and neighbours at equal distances form a grid: one or two instructions. The weights of aligned corners have
    ten bits per axis, twenty per product: they are no int8.
    """
    k.need("overwrite")
    down, across = (Interpolation.of(op, axis) for axis in (0, 1))
    factors = ({weight for taps in axis.taps for _, weight in taps} for axis in (down, across))
    weights = sorted({a * b for a, b in product(*factors)})
    refuse(weights[-1] > 127 or weights[0] < -128, _WEIGHTS)
    x, out = k.input(0).merged("image", "n", "b"), k.output.merged("image", "n", "b")
    (images, _, width), (_, height, columns) = x.shape.values(), out.shape.values()

    def inputs(rows: int) -> int:
        return width * max(down.part(top, rows).window[1] for top in range(0, height, rows))

    sizes = (rows for rows in equal_parts(height) if rows * columns <= k.bank and inputs(rows) <= k.slot)
    if not (rows := next(sizes, 0)):
        raise Unfit(f"a row of {width} pixels, or the one of {columns} that it becomes, does not fit")
    identity = np.eye(k.cfg.block_out, k.cfg.block_in, dtype=np.int8)
    multiples = k.matrices("multiples", np.stack([identity * weight for weight in weights]))
    par = k.parameters(mean_store(down.denominator * across.denominator, ties_up=op.offset is not None))
    xs, ys = k.slots(inputs(rows)), k.banks(rows * columns)
    for image, top in product(range(images), range(0, height, rows)):
        count = min(rows, height - top)
        part = down.part(top, count)
        low, read = part.window
        tile, y = xs.load(x[image, low : low + read]), ys.next(h=count, w=columns)
        for (v, rows_alike, above), (u, columns_alike, beside) in product(part.runs, across.runs):
            grid = y[every(v, rows_alike, down.period), every(u, columns_alike, across.period)]
            with k.together():  # the first neighbour replaces what the accumulators hold
                for number, ((row, a), (column, b)) in enumerate(product(above, beside)):
                    near = tile[every(row - low, rows_alike, down.step), every(column, columns_alike, across.step)]
                    value = (near @ multiples[weights.index(a * b)]).over("h w")
                    k.multiply(grid, value, overwrite=number == 0)
        k.store(out[image, top : top + count], y, par)


def repeat(k: Kernel, op: g.Take) -> None:
    """Each pixel of an image repeated whole times, or a single image that becomes several.

    Products with an identity write every pixel to all of its places, so that a tile of whole rows is one store. The
    tiles of an image that becomes several are stored more than once.
    """
    images, channels, *places = op.indices if len(op.x.shape) == 4 else ((), (0,))
    factors = [max(1, len(found) // n) for n, found in zip(op.x.shape[2:], places)]
    repeats = [tuple(np.repeat(np.arange(n), factor).tolist()) for n, factor in zip(op.x.shape[2:], factors)]
    whole = all(found in ((), every_one) for found, every_one in zip(places, repeats))
    k.need("overwrite", batch=1 if images else 0)
    if not places or channels or op.x.dtype != "int8" or not whole or (images and op.x.shape[0] > 1):
        raise Unfit("it moves elements, other than by whole factors of an image that fits")
    x, (down, across), copies = k.input(0).merged("image", "n", "b"), factors, max(1, len(images))
    count, h, w = x.shape.values()
    most = min(h, k.slot // w, k.bank // (down * across * w))
    refuse(not most, f"it moves elements, in rows of {w}, repeated {down} x {across} times, that do not fit")
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
