"""Means over rows, columns and channels, and means and maxima over windows.

Products with an identity, or with ones, add elements up: loads of inputs run ahead of the array, which adds one entry
per cycle; a schedule of the ALU waits for its loads and takes two. Both units compute maxima where they fit, a schedule
of the ALU computes other windows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import cycle, islice, product

import numpy as np

from ...hw.isa import Mem
from .. import graph as g
from ..graph.integer_forms import Requant, mean_store
from ..limits import most_padding
from ..schedule.pool import pool_of
from .language import TILE, Array, Kernel, Tile, Unfit, cuts, equal_parts, every, refuse

_PARTS = 4  # tiles of an image at least: the loads of one overlap the sums of another


def mean_of_pixels(k: Kernel, op: g.Mean | g.AveragePool | g.ExactAveragePool) -> None:
    """A mean over rows, columns or both, or of windows where one is all of the image.

    The sums stay in the accumulators, so that an image may be larger than any scratchpad.
    """
    axes = tuple(sorted(op.axes))
    if len(op.x.shape) != 4 or not axes or not set(axes) <= {2, 3} or len(op.output.shape) == 3:
        raise Unfit(f"mean over axes {axes} of {len(op.x.shape)} dimensions: only over rows and columns of images")
    x, out = k.input(0), k.output.merged("y")
    n, blocks, h, w = x.shape.values()
    # entries (outer, count, inner) are added up over `count`
    whole, rows, columns = (n * blocks, h * w, 1), (n * blocks, h, w), (n * blocks * h, w, 1)
    outer, count, inner = whole if len(axes) == 2 else rows if axes == (2,) else columns
    x = x.merged("all").split("all", outer=outer, count=count, inner=inner)
    most, each = min(outer, k.slot // (count * inner), k.bank // inner), count
    if k.cfg.block_in != k.cfg.block_out:
        return _mean_on_alu(k, op, x, out)
    if most == 0:
        most, each = 1, min(count, k.slot // inner)
    else:
        most = -(-outer // max(-(-outer // most), min(outer, _PARTS)))
    one, par = k.identity(), k.parameters(mean_requant(op, k.rec.contract))
    xs, ys = k.slots(most * each * inner), k.banks(most * inner)
    for these in cuts(outer, most):
        y = ys.next(outer=these.stop - these.start, inner=inner)
        y[...] = 0
        for part in cuts(count, each):
            y += xs.load(x[these, part]) @ one
        k.store(out[these.start * inner : these.stop * inner], y.merged("y"), par)


def _mean_on_alu(k: Kernel, op: g.Mean | g.AveragePool | g.ExactAveragePool, x: Array, out: Array) -> None:
    """The sums over axis `count` by the ALU, where entries of inputs are parts of those of accumulators."""
    k.need("acc8")
    outer, count, inner = x.shape.values()
    most = min(outer if inner == 1 else 1, k.bank // (count * inner))  # sums of several would have gaps
    refuse(most == 0, f"{count * inner} entries: at most {k.bank}")
    par, ys = k.parameters(mean_requant(op, k.rec.contract)), k.banks(most * count * inner)
    for these in cuts(outer, most):
        sums = ys.load(x[these]).sum_along("count")
        k.store(out[these.start * inner : these.stop * inner], sums.merged("y"), par)


def mean_of_channels(k: Kernel, op: g.Mean) -> None:
    """A mean over channels, pixel by pixel: products with ones add the lanes of all blocks up."""
    k.need("overwrite", batch=1)
    if tuple(op.axes) != (1,) or len(op.x.shape) != 4 or len(op.output.shape) != 4:
        raise Unfit(f"mean over axes {op.axes} of {len(op.x.shape)} dimensions: only over channels of images")
    x, out = k.input(0).merged("pixel", "h", "w"), k.output[:, 0].merged("pixel", "h", "w")
    images, blocks, pixels = x.shape.values()
    each = min(pixels, max(1, min(TILE, k.slot) // blocks))
    ones = np.ones((2, k.cfg.block_out, k.cfg.block_in), np.int8)
    ones[1, :, op.x.shape[1] - (blocks - 1) * k.cfg.block_in :] = 0  # lanes behind the last channel
    add = k.matrices("ones", ones)
    par = k.parameters(mean_requant(op, k.rec.contract))
    xs, ys = k.slots(blocks * each), k.banks(each)
    for image, these in product(range(images), cuts(pixels, each)):
        tile = xs.load(x[image, :, these])
        y = ys.next(pixel=these.stop - these.start)
        y[...] = tile[blocks - 1] @ add[1]
        if blocks > 1:
            y += (tile[: blocks - 1] @ add[0]).over("b pixel")
        k.store(out[image, these], y, par)


def mean_requant(op: g.Mean | g.AveragePool | g.ExactAveragePool, contract: str) -> Requant:
    """The parameters of a store that makes means of sums."""
    match op:
        case g.ExactAveragePool():
            return mean_store(op.shape.taps, op.low, op.high, op.ties_up)
        case g.AveragePool():
            bias = -op.shape.taps * op.x.zero_point
            return Requant(bias, *op.multipliers, op.output.zero_point, op.low, op.high, contract)
        case _:
            bias = -op.count * op.x.zero_point
            return Requant(bias, *op.multipliers, op.output.zero_point, contract=op.contract)


_MOST_CLASSES = 3  # classes of rows or columns: with more, instructions would be too short
_WIDTHS = 4  # the number of widths of tiles that are tried, the largest first


def average_pool(k: Kernel, op: g.AveragePool | g.ExactAveragePool) -> None:
    """A mean of windows; one without multipliers only where all windows have as many elements."""
    refuse(any(op.pads), "windows of different numbers of elements")
    _by_schedule(k, op, "sum", mean_requant(op, k.rec.contract))


def max_pool(k: Kernel, op: g.MaxPool) -> None:
    """A maximum of windows by the ALU alone."""
    _by_schedule(k, op, "max", _store_of(op))


def max_pool_sorted(k: Kernel, op: g.MaxPool) -> None:
    """A maximum of windows by both units: GEMM copies the image to the accumulators, the ALU takes the maxima.

    Products with an identity sort the pixels: those that become results are contiguous, and those that they are
    compared with are in the other bank, so that the ALU reads both in one cycle. Unlike loads to accumulators, those of
    inputs run ahead of the ALU. A schedule places a tensor in a scratchpad, not in a bank, and a virtual thread has a
    copy of every tensor that depends on it; here only the results have two places.
    """
    k.need("overwrite")
    if k.cfg.inp_depth < k.cfg.acc_depth:
        raise Unfit(f"micro-ops name {k.cfg.inp_depth} of {k.cfg.acc_depth} accumulators as a second operand")
    if any(min(taps, stride) > _MOST_CLASSES for taps, stride in zip(op.kernel, op.strides)):
        raise Unfit(f"windows {op.kernel} in steps of {op.strides}: too many classes of rows or columns")
    if any(pad >= taps for pad, taps in zip(op.pads, 2 * op.kernel)):
        raise Unfit(f"padding {op.pads} around windows {op.kernel}: some hold only padding")
    _, height, width = k.output.merged("image", "n", "b").shape.values()
    fitting = ((next((r for r in equal_parts(height) if _fits(k, op, r, c)), 0), c) for c in equal_parts(width))
    tallest = [*islice((tile for tile in fitting if tile[0]), _WIDTHS)]
    refuse(not tallest, f"a window {op.kernel} does not fit the scratchpads")
    rows, columns = tallest[0]
    _max_pool(k, op, k.fastest(_max_pool, dict.fromkeys([*tallest, *((-(-rows // n), columns) for n in (2, 4))])))


def _max_pool(k: Kernel, op: g.MaxPool, results: tuple[int, int]) -> None:
    (rows, columns), (down, across) = results, _parts(op)
    x, out = k.input(0).merged("image", "n", "b"), k.output.merged("image", "n", "b")
    images, height, width = out.shape.values()
    own, *compared = product(down, across)
    sizes = {(v, u): {"h": v.count(rows), "w": u.count(columns)} for v, u in product(down, across)}
    # a pair is in the bank of the results where it is compared with pairs in the other one
    beside = [(v, u) for v, u in compared if (v is own[0]) == (u is own[1])]
    apart = [pair for pair in compared if pair not in beside]

    one, par = k.identity(), k.parameters(_store_of(op))
    xs = k.slots(math.prod(op.shape.reach(rows, columns)))
    places = dict(zip(apart, k.tiles(Mem.ACC, *[sizes[pair] for pair in apart], high=k.bank))) if apart else {}
    a, b, *others = k.tiles(Mem.ACC, sizes[own], sizes[own], *[sizes[pair] for pair in beside], low=k.bank)
    places |= dict(zip(beside, others))
    tiles = product(range(images), range(0, height, rows), range(0, width, columns))
    for (image, top, left), result in zip(tiles, cycle((a, b))):
        h, w = min(rows, height - top), min(columns, width - left)
        firsts = (first * stride - pad for first, stride, pad in zip((top, left), op.strides, op.pads))
        reach = dict(zip("hw", zip(firsts, op.shape.reach(h, w))))
        tile = xs.load(x[image].window(-128, h=reach["h"], w=reach["w"]))
        copies, places[own] = dict[tuple[Part, Part], Tile](), result
        for v, u in product(down, across):
            copies[v, u] = copy = places[v, u].reshaped(h=v.count(h), w=u.count(w))
            pixels = every(v.first, v.count(h), op.strides[0]), every(u.first, u.count(w), op.strides[1])
            copy[...] = tile[pixels] @ one
        for u, v in product(across, down):
            for shift in v.shifts:
                copies[own[0], u].maximum(copies[v, u][shift : shift + h])
        for u in across:
            for shift in u.shifts:
                copies[own].maximum(copies[own[0], u][:, shift : shift + w])
        k.store(out[image, top : top + h, left : left + w], copies[own], par)


@dataclass(frozen=True)
class Part:
    """Rows (or columns) of the image: `count(results)` of them, a stride apart, from `first` on.

    Result i is compared with rows `i + shift` for each of `shifts`; the part without shifts becomes the results.
    """

    first: int
    shifts: tuple[int, ...]

    def count(self, results: int) -> int:
        """Number of rows for `results` results."""
        return results + max(self.shifts, default=0)


def parts(kernel: int, stride: int) -> tuple[Part, ...]:
    """The parts of one dimension, that of the results first."""
    classes = [range(first, kernel, stride) for first in range(min(kernel, stride))]
    own = min(classes, key=len)[0]  # its class has no other, if possible
    others = ([tap for tap in taps if tap != own] for taps in classes)
    compared = (Part(taps[0], tuple((tap - taps[0]) // stride for tap in taps)) for taps in others if taps)
    return (Part(own, ()), *compared)


def _parts(op: g.MaxPool) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
    return parts(op.kernel[0], op.strides[0]), parts(op.kernel[1], op.strides[1])


def _fits(k: Kernel, op: g.MaxPool, rows: int, columns: int) -> bool:
    """True if a tile of so many results fits: its inputs in a slot, its copies in their banks."""
    (down, across), banks = _parts(op), [0, 0]
    for v, u in product(down, across):
        size, own = v.count(rows) * u.count(columns), (v is down[0]) + (u is across[0])
        banks[own == 1] += size * (2 if own == 2 else 1)
    return math.prod(op.shape.reach(rows, columns)) <= k.slot and max(banks) <= k.bank


def _store_of(op: g.MaxPool) -> Requant:
    return Requant(0, 1 << 30, 1, 0, op.low, op.high)


def _by_schedule(k: Kernel, op: g.Pool, kind: str, store: Requant) -> None:
    refuse(max(op.pads) > most_padding(k.cfg), f"padding {op.pads}: at most {most_padding(k.cfg)}")
    scheduled = k.rec.schedule(pool_of, op.shape, kind=kind, epilogue=(("requant", "par"),))
    par = k.requant(store, bias=np.full(op.shape.c, store.bias)).buffer
    k.rec.append(op, scheduled, {"x": k.rec.operand(op, 0), "par": par})
